/* tests/kernels/vector_files.h: reads the golden vectors by their index.csv.
 *
 * The folder is OCTAVO_VECTORS of the environment, else the one that the build unpacks from
 * tests/data. Everything that is missing, short or malformed throws, which GoogleTest reports as a
 * failure: no file is skipped.
 */
#ifndef OCTAVO_TESTS_KERNELS_VECTOR_FILES_H
#define OCTAVO_TESTS_KERNELS_VECTOR_FILES_H

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace octavo::test {

/* One line of index.csv. */
struct VectorFile {
  std::string path;
  std::string type; /* u8, u16, u32, f32, f64 or csv */
  std::vector<int64_t> shape;

  int64_t count() const;
};

class Csv {
 public:
  Csv(std::vector<std::string> header, std::vector<std::vector<std::string>> rows);

  size_t rows() const { return rows_.size(); }
  const std::string &text(size_t row, const std::string &column) const;
  bool has(const std::string &column) const { return columns_.count(column) == 1; }
  int integer(size_t row, const std::string &column) const;
  /* A column of eight hex digits as the fp32 number with these bits. */
  float real(size_t row, const std::string &column) const;
  /* A column of two hex digits. */
  uint8_t code(size_t row, const std::string &column) const;

 private:
  std::map<std::string, size_t> columns_;
  std::vector<std::vector<std::string>> rows_;
};

class VectorFiles {
 public:
  static const VectorFiles &get();

  const std::string &root() const { return root_; }
  const std::vector<VectorFile> &files() const { return files_; }
  bool has(const std::string &path) const { return by_path_.count(path) == 1; }
  const VectorFile &file(const std::string &path) const;
  /* The folders right below `parent` ("linear"), sorted. */
  std::vector<std::string> folders(const std::string &parent) const;
  Csv csv(const std::string &path) const;
  /* The bytes of a .bin file, of the size that the index states. */
  std::vector<uint8_t> bytes(const std::string &path) const;

  template <typename T>
  std::vector<T> array(const std::string &path) const {
    const std::vector<uint8_t> raw = bytes(path);
    check_width(path, sizeof(T));
    std::vector<T> values(raw.size() / sizeof(T));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }

 private:
  explicit VectorFiles(std::string root);
  void check_width(const std::string &path, size_t width) const;

  std::string root_;
  std::vector<VectorFile> files_;
  std::map<std::string, size_t> by_path_;
};

}  // namespace octavo::test

#endif
