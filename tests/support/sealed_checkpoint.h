// Changes a checkpoint and gives it the hashes that it would have had: for tests of what a reader
// checks in files that are whole. By the rules of docs/checkpoints.md and nobody's code.
#pragma once

#include <gtest/gtest.h>
#include <sodium.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace octavo::test {

inline std::string blake2b_hex(const std::string &bytes) {
  unsigned char hash[32];
  crypto_generichash(hash, sizeof(hash), reinterpret_cast<const unsigned char *>(bytes.data()),
                     bytes.size(), nullptr, 0);
  char hex[65];
  return sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
}

// The text with the hash of itself, with 64 zeros in its place, after `mark`. Without the mark it
// stays as it is.
inline std::string sealed_again(std::string text, const std::string &mark) {
  const size_t at = text.find(mark);
  if (at == std::string::npos) return text;
  text.replace(at + mark.size(), 64, std::string(64, '0'));
  return text.replace(at + mark.size(), 64, blake2b_hex(text));
}

inline constexpr char kHeaderSealMark[] = "\"octavo.header_blake2b\":\"";
inline constexpr char kManifestSealMark[] = "\"manifest_blake2b\": \"";

inline std::string whole_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void put_file(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A file of tensors with another text as header, its length and its hash.
inline std::string with_header(const std::string &file, const std::string &json) {
  uint64_t old = 0;
  std::memcpy(&old, file.data(), 8);  // little-endian machines only
  const uint64_t length = json.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &length, 8);
  return sealed_again(head + json, kHeaderSealMark) + file.substr(8 + old);
}
inline std::string header_of(const std::string &file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return file.substr(8, length);
}

// Gives the manifest of the directory the sizes and hashes of the files as they are.
inline void list_again(const std::string &directory) {
  const std::string path = directory + "/manifest.json";
  auto manifest = nlohmann::ordered_json::parse(whole_file(path));
  for (auto &entry : manifest["files"]) {
    const std::string file = whole_file(directory + "/" + entry["name"].get<std::string>());
    const std::string header = header_of(file);
    const size_t at = header.find(kHeaderSealMark);
    entry["bytes"] = file.size();
    if (at != std::string::npos)
      entry["blake2b"] = header.substr(at + std::strlen(kHeaderSealMark), 64);
  }
  put_file(path, sealed_again(manifest.dump(2) + "\n", kManifestSealMark));
}

// Replaces the first `from` in the header of one file, and lists it again.
inline void edit_header(const std::string &directory, const std::string &name,
                        const std::string &from, const std::string &to) {
  const std::string path = directory + "/" + name;
  const std::string file = whole_file(path);
  std::string json = header_of(file);
  const size_t at = json.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  put_file(path, with_header(file, json.replace(at, from.size(), to)));
  list_again(directory);
}

}  // namespace octavo::test
