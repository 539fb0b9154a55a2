/* The reader of vector_files.h.
 *
 * Arrays are little-endian on disk, as this host must be.
 */
#include "tests/kernels/vector_files.h"

#include <bit>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

static_assert(std::endian::native == std::endian::little);

namespace octavo::test {
namespace {

std::vector<std::string> split(const std::string &line, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = line.find(separator, begin);
    parts.push_back(line.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

size_t width_of(const std::string &type) {
  if (type == "u8") return 1;
  if (type == "u16") return 2;
  if (type == "u32" || type == "f32") return 4;
  if (type == "f64") return 8;
  throw std::runtime_error("index.csv has the unknown element type '" + type + "'");
}

Csv read_csv(const std::string &path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) throw std::runtime_error("cannot read " + path);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::vector<std::string> header = split(line, ',');
  std::vector<std::vector<std::string>> rows;
  while (std::getline(in, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    rows.push_back(split(line, ','));
    if (rows.back().size() != header.size()) {
      throw std::runtime_error(path + " row " + std::to_string(rows.size()) + " has " +
                               std::to_string(rows.back().size()) + " columns, its header " +
                               std::to_string(header.size()));
    }
  }
  return Csv(std::move(header), std::move(rows));
}

uint32_t hex(const std::string &text, size_t digits) {
  if (text.size() != digits || text.find_first_not_of("0123456789abcdefABCDEF") != text.npos) {
    throw std::runtime_error("'" + text + "' is not a number of " + std::to_string(digits) +
                             " hex digits");
  }
  return static_cast<uint32_t>(std::stoul(text, nullptr, 16));
}

}  // namespace

int64_t VectorFile::count() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Csv::Csv(std::vector<std::string> header, std::vector<std::vector<std::string>> rows)
    : rows_(std::move(rows)) {
  for (size_t i = 0; i < header.size(); ++i) columns_[header[i]] = i;
}

const std::string &Csv::text(size_t row, const std::string &column) const {
  const auto found = columns_.find(column);
  if (found == columns_.end()) throw std::runtime_error("there is no column '" + column + "'");
  return rows_.at(row)[found->second];
}

int Csv::integer(size_t row, const std::string &column) const {
  return std::stoi(text(row, column));
}

float Csv::real(size_t row, const std::string &column) const {
  return std::bit_cast<float>(hex(text(row, column), 8));
}

uint8_t Csv::code(size_t row, const std::string &column) const {
  return static_cast<uint8_t>(hex(text(row, column), 2));
}

const VectorFiles &VectorFiles::get() {
  const char *chosen = std::getenv("OCTAVO_VECTORS");
  static const VectorFiles files(chosen != nullptr && chosen[0] != '\0' ? chosen
                                                                        : OCTAVO_VECTORS_DEFAULT);
  return files;
}

VectorFiles::VectorFiles(std::string root) : root_(std::move(root)) {
  const Csv index = read_csv(root_ + "/index.csv");
  for (size_t row = 0; row < index.rows(); ++row) {
    VectorFile file = {index.text(row, "path"), index.text(row, "dtype"), {}};
    for (const std::string &size : split(index.text(row, "shape_or_rows"), 'x')) {
      file.shape.push_back(std::stoll(size));
    }
    by_path_[file.path] = files_.size();
    files_.push_back(std::move(file));
  }
}

const VectorFile &VectorFiles::file(const std::string &path) const {
  const auto found = by_path_.find(path);
  if (found == by_path_.end()) {
    throw std::runtime_error(path + " is not listed in " + root_ + "/index.csv");
  }
  return files_[found->second];
}

std::vector<std::string> VectorFiles::folders(const std::string &parent) const {
  std::set<std::string> names;
  for (const VectorFile &file : files_) {
    const std::vector<std::string> parts = split(file.path, '/');
    if (parts.size() > 2 && parts[0] == parent) names.insert(parent + "/" + parts[1]);
  }
  return {names.begin(), names.end()};
}

Csv VectorFiles::csv(const std::string &path) const {
  const int64_t expected = file(path).count();
  Csv table = read_csv(root_ + "/" + path);
  if (static_cast<int64_t>(table.rows()) != expected) {
    throw std::runtime_error(path + " has " + std::to_string(table.rows()) +
                             " rows, index.csv says " + std::to_string(expected));
  }
  return table;
}

std::vector<uint8_t> VectorFiles::bytes(const std::string &path) const {
  const VectorFile &entry = file(path);
  std::ifstream in(root_ + "/" + path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + root_ + "/" + path);
  std::vector<uint8_t> data{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const size_t expected = static_cast<size_t>(entry.count()) * width_of(entry.type);
  if (data.size() != expected) {
    throw std::runtime_error(path + " has " + std::to_string(data.size()) +
                             " bytes, index.csv says " + std::to_string(expected));
  }
  return data;
}

void VectorFiles::check_width(const std::string &path, size_t width) const {
  if (width_of(file(path).type) != width) {
    throw std::runtime_error(path + " has elements of type " + file(path).type + ", not of " +
                             std::to_string(width) + " bytes");
  }
}

}  // namespace octavo::test
