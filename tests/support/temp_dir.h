// A directory of its own for one test, removed with everything in it at the end.
//
// Modes are set explicitly, so that what trust checks see does not depend on the user's umask.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace octavo::test {

class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  // For thousands of files that no disk has to see: in memory, where the system offers that.
  static TempDir in_memory() {
    const char *memory = "/dev/shm";
    return TempDir(access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path());
  }
  explicit TempDir(const std::filesystem::path &parent) {
    const auto base = std::filesystem::canonical(parent);
    std::string name = (base / "octavo-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TempDir(const TempDir &) = delete;
  TempDir &operator=(const TempDir &) = delete;

  const std::string &path() const { return path_; }
  std::string operator/(const std::string &name) const { return path_ + "/" + name; }

  std::string make_directory(const std::string &name, mode_t mode = 0755) const {
    const std::string full = *this / name;
    std::filesystem::create_directories(full);
    for (std::filesystem::path p = full; p != path_; p = p.parent_path()) chmod(p.c_str(), 0755);
    chmod(full.c_str(), mode);
    return full;
  }

  std::string write(const std::string &name, const std::string &content, mode_t mode = 0644) const {
    const std::string full = *this / name;
    const auto parent = std::filesystem::path(name).parent_path().string();
    if (!parent.empty() && !std::filesystem::exists(*this / parent)) make_directory(parent);
    std::ofstream(full, std::ios::binary) << content;
    chmod(full.c_str(), mode);
    return full;
  }

  std::string copy(const std::string &from, const std::string &name, mode_t mode = 0755) const {
    const std::string full = *this / name;
    const auto parent = std::filesystem::path(name).parent_path().string();
    if (!parent.empty() && !std::filesystem::exists(*this / parent)) make_directory(parent);
    std::filesystem::copy_file(from, full, std::filesystem::copy_options::overwrite_existing);
    chmod(full.c_str(), mode);
    return full;
  }

 private:
  std::string path_;
};

inline std::string read_text(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A file below /proc/<pid>; empty where the process ends before it is read.
inline std::string read_of_process(const std::string &path) {
  try {
    return read_text(path);
  } catch (const std::ios_base::failure &) {
    return {};
  }
}

}  // namespace octavo::test
