// What a file of another tool says, as a flat list with places.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli::imports {

inline constexpr const char *kImportDomain = "octavo.import";
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostDepth = 32;

struct Found {
  std::string key;   // dotted: fp8_config.margin
  std::string text;  // a scalar as written, without quotes
  std::vector<std::string> items;
  bool is_list = false;
  bool is_null = false;   // null, ~, nothing
  bool is_empty = false;  // {}
  size_t line = 0;        // of the value, counted from 1; 0: the reader does not know
  size_t column = 0;
  size_t key_line = 0;  // of the key
  size_t key_column = 0;

  // As a message shows it.
  std::string shown() const;
};

// "FILE:5:11", or the file alone.
std::string place(const std::string &file, const Found &found);
// The same of a byte of the text, in bytes from the line's begin.
std::string place_at(const std::string &file, std::string_view text, size_t byte);
std::string key_place(const std::string &file, const Found &found);

// The file's bytes. Throws Failure for a directory, a file that cannot be read, more than
// kMostBytes, and bytes that are no text.
std::string read_source(const std::string &path);

// Throw Failure(OCTAVO_INVALID, "FILE:line:column: ...") for text that is malformed, nested deeper
// than kMostDepth, or has one key twice (of YAML: with two values); of YAML also for anchors,
// aliases, tags and a second document.
std::vector<Found> read_yaml(const std::string &text, const std::string &file);
std::vector<Found> read_json(const std::string &text, const std::string &file);

// Arguments KEY=VALUE, with values as Python writes them: quotes and tuples.
std::vector<Found> read_arguments(const std::vector<std::string> &arguments);

// "(true, false, false)" or "[true, false, false]" as items; false if it is neither.
bool split_tuple(std::string_view text, std::vector<std::string> *items);

}  // namespace octavo::cli::imports
