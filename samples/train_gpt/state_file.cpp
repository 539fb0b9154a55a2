// 8 bytes of header length, the header as JSON, then the tensors without gaps. Files are read on
// the machine kind that wrote them: numbers lie in memory order, which is little-endian here.
#include "state_file.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "error.h"
#include "files.h"

namespace gpt {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr const char *kTexts = "__metadata__";

[[noreturn]] void refuse(const std::string &path, const std::string &expected,
                         const std::string &found) {
  throw UserError(path, expected, found, "resume from another checkpoint");
}

size_t bytes_of(const StateTensor &t) {
  return static_cast<size_t>(t.rows * t.cols) * sizeof(float);
}

Json header_of(const StateTexts &texts, const std::vector<StateTensor> &tensors) {
  Json header = {{kTexts, texts}};
  size_t at = 0;
  for (const StateTensor &t : tensors) {
    header[t.name] = {
        {"dtype", "F32"}, {"shape", {t.rows, t.cols}}, {"data_offsets", {at, at + bytes_of(t)}}};
    at += bytes_of(t);
  }
  return header;
}

struct Content {
  Json header;
  std::string data;
};

Content read(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse(path, "a file of --save", "no file that can be read");
  std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  uint64_t length = 0;
  if (all.size() >= sizeof length) std::memcpy(&length, all.data(), sizeof length);
  if (all.size() < sizeof length || length > all.size() - sizeof length) {
    refuse(path, "a whole file of --save", "a file that is cut off");
  }
  Content content{
      Json::parse(all.begin() + 8, all.begin() + 8 + static_cast<int64_t>(length), nullptr, false),
      all.substr(8 + length)};
  if (!content.header.is_object() || !content.header.contains(kTexts) ||
      !content.header[kTexts].is_object()) {
    refuse(path, "a file of --save", "a header that is none of its own");
  }
  return content;
}

}  // namespace

void write_state_file(const std::string &path, const StateTexts &texts,
                      const std::vector<StateTensor> &tensors) {
  std::string header = header_of(texts, tensors).dump();
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  std::string all(sizeof length, '\0');
  std::memcpy(all.data(), &length, sizeof length);
  all += header;
  for (const StateTensor &t : tensors) {
    all.append(reinterpret_cast<const char *>(t.data), bytes_of(t));
  }
  write_atomically(path, all);
}

StateTexts read_state_texts(const std::string &path) {
  StateTexts texts;
  const Content content = read(path);  // outlives the loop over it
  for (const auto &[key, value] : content.header[kTexts].items()) {
    if (!value.is_string()) refuse(path, "texts as metadata", "another value as " + key);
    texts[key] = value.get<std::string>();
  }
  return texts;
}

void read_state_file(const std::string &path, const std::vector<StateTensor> &tensors) {
  const Content content = read(path);
  // One description for both: what this run would write is what must stand there.
  Json expected = header_of({}, tensors);
  expected[kTexts] = content.header[kTexts];
  size_t bytes = 0;
  for (const StateTensor &t : tensors) {
    bytes += bytes_of(t);
    const Json here = expected[t.name];
    const Json there = content.header.contains(t.name) ? content.header[t.name] : Json();
    if (there != here)
      refuse(path, t.name + " " + here.dump(), there.is_null() ? "none" : "another");
  }
  if (content.header.size() != expected.size()) {
    refuse(path, std::to_string(tensors.size()) + " tensors of this model",
           std::to_string(content.header.size() - 1));
  }
  if (content.data.size() != bytes) {
    refuse(path, std::to_string(bytes) + " bytes of tensors", std::to_string(content.data.size()));
  }
  const char *next = content.data.data();
  for (const StateTensor &t : tensors) {
    std::memcpy(t.data, next, bytes_of(t));
    next += bytes_of(t);
  }
}

}  // namespace gpt
