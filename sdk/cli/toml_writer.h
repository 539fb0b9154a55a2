// octavo.toml as a command writes it: whole or not at all, with its reasons as comments.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sdk/src/config/toml.h"

namespace octavo::cli {

struct TomlLine {
  std::string key;  // dotted
  TomlValue value;
  std::string comment;  // above the line; empty: none
};

// The lines, grouped by table: those of the root first, the others in the order of their first
// line. `head` is a comment at the top. places, if not null, receives the number of each line.
std::string toml_text(const std::string &head, const std::vector<TomlLine> &lines,
                      std::vector<size_t> *places = nullptr);

// The value as JSON; what Octavo's files have no use for, as the name of its kind.
nlohmann::json json_of_value(const TomlValue &value);

// Throws Failure(OCTAVO_INVALID) where something of this name exists. Checked before any work is
// done; write_file checks again.
void refuse_existing(const std::string &path, bool force);

// Throws Failure, and leaves what is there as it was: without `force`, for a path that exists.
void write_file(const std::string &path, const std::string &text, bool force);

}  // namespace octavo::cli
