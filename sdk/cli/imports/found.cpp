// Reading a file as text, and arguments as if they came from one.
#include "sdk/cli/imports/found.h"

#include <algorithm>
#include <cstring>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo::cli::imports {
namespace {

std::string_view without_spaces(std::string_view text) {
  return trimmed(text, " \t");
}

std::string_view unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// Where the first byte is that no text has.
void refuse_binary(const std::string &text, const std::string &path) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_character(std::string_view(text).substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0 || byte == 0x7F || (byte < 0x20 && strchr("\t\n\r", text[i]) == nullptr) ||
        byte == 0)
      throw Failure(OCTAVO_INVALID, kImportDomain, place_at(path, text, i),
                    ": expected text in UTF-8, found the byte ", static_cast<int>(byte),
                    "; name an Accelerate config.yaml or a DeepSpeed JSON file");
    i += length;
  }
}

}  // namespace

std::string Found::shown() const {
  if (is_null) return "null";
  if (is_empty) return "{}";
  if (!is_list) return text;
  std::string all;
  for (const std::string &item : items) all += (all.empty() ? "" : ", ") + item;
  return "[" + all + "]";
}

std::string place(const std::string &file, const Found &found) {
  return found.line == 0 ? file : concat(file, ":", found.line, ":", found.column);
}

std::string key_place(const std::string &file, const Found &found) {
  return found.key_line == 0 ? file : concat(file, ":", found.key_line, ":", found.key_column);
}

std::string place_at(const std::string &file, std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const size_t end = before.rfind('\n');
  const size_t start = end == std::string_view::npos ? 0 : end + 1;
  return concat(file, ":", 1 + std::count(before.begin(), before.end(), '\n'), ":",
                byte - start + 1);
}

std::string read_source(const std::string &path) {
  const CheckedFile file(path, kImportDomain);
  if (file.size() > kMostBytes)
    throw Failure(OCTAVO_INVALID, kImportDomain, path, ": expected at most ", kMostBytes,
                  " bytes, found more; a configuration is shorter, so this is another file");
  const std::string text = file.read(kMostBytes);
  refuse_binary(text, path);
  return text;
}

bool split_tuple(std::string_view text, std::vector<std::string> *items) {
  text = without_spaces(text);
  const bool tuple = text.size() >= 2 && ((text.front() == '(' && text.back() == ')') ||
                                          (text.front() == '[' && text.back() == ']'));
  if (!tuple) return false;
  for (const std::string &part : split(text.substr(1, text.size() - 2), ','))
    items->emplace_back(unquoted(without_spaces(part)));
  return true;
}

std::vector<Found> read_arguments(const std::vector<std::string> &arguments) {
  std::vector<Found> all;
  for (const std::string &argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw Failure(OCTAVO_INVALID, kImportDomain, "expected KEY=VALUE, found \"", argument,
                    "\"; write margin=0 as in TERecipeKwargs(margin=0)");
    if (!is_utf8(argument))
      throw Failure(OCTAVO_INVALID, kImportDomain,
                    "expected KEY=VALUE in UTF-8, found other bytes");
    Found f;
    f.key = without_spaces(argument.substr(0, equals));
    const std::string value = argument.substr(equals + 1);
    f.text = unquoted(without_spaces(value));
    f.is_null = without_spaces(value) == "None";
    f.is_list = split_tuple(value, &f.items);
    for (const Found &other : all)
      if (other.key == f.key)
        throw Failure(OCTAVO_INVALID, kImportDomain, f.key, ": expected it once, found it twice");
    all.push_back(f);
  }
  return all;
}

}  // namespace octavo::cli::imports
