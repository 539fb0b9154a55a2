// Remedies: how to correct a configuration, in words that can be applied as they are.
//
//   replace line 3 of octavo.toml by `kind = "cpu"`      (or: replace lines 3 to 5 of ...)
//   add `fallback = ["bf16"]` after line 2 of octavo.toml
//   add `device.kind = "cpu"` as the first line of octavo.toml
//   delete line 4 of octavo.toml                          (or: delete lines 4 to 6 of ...)
//   set `device.kind = "cpu"`                             there is no file
//   override `device.kind = "cpu"`, drop the override `fp8.te.margn`
//   run `unset OCTAVO_BACKEND`
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/octavo.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/config/toml.h"

namespace octavo {

// The configuration's text, by lines. Every edit that apply() offers leaves valid TOML,
// unless the text is none to begin with.
class Source {
 public:
  // No file: an empty name.
  Source(std::string name, std::string_view text);

  // The words for `f`; empty where no edit is certain.
  std::string apply(const Fix &f) const;

 private:
  struct Edit {
    uint32_t first = 0;  // the lines that go, counted from 1; last < first: none, and `text` comes
    uint32_t last = 0;   // after line `last`
    std::optional<std::string> text;
  };
  std::string words(const Edit &e) const;
  // Whether the text is TOML after the edit, in which `key`, or a key of the table `key`, is set;
  // with a value, to this one. Empty: nothing in particular.
  bool is_valid(const Edit &e, const std::string &key, const std::string &value) const;
  std::string first_valid(const std::vector<Edit> &edits, const std::string &key = {},
                          const std::string &value = {}) const;
  std::string line(uint32_t number) const { return lines_[number - 1]; }
  uint32_t header_of(const std::string &table) const;
  uint32_t end_of_table(uint32_t header) const;
  const TomlEntry *entry_at(const std::string &origin) const;
  uint32_t line_of(const std::string &origin) const;
  std::string add(const Fix &f) const;
  std::string replace(const Fix &f) const;
  std::string rename(const Fix &f) const;
  std::string remove(const Fix &f) const;

  std::string name_;
  std::vector<std::string> lines_;
  std::vector<TomlEntry> entries_;  // empty when the text is no TOML
};

// What octavo_open would read. Does not throw: what cannot be read has no lines.
Source source_of(const octavo_open_desc &desc);

// `text` as one word of a shell.
std::string shell_word(const std::string &text);

}  // namespace octavo
