// The words of every remedy. An edit is offered only when what it leaves is valid
// (remedy_source.cpp).
#include "sdk/src/config/remedy.h"

#include <algorithm>
#include <cctype>

#include "sdk/src/base/text.h"
#include "sdk/src/config/config.h"

namespace octavo {
namespace {

std::string last_part(const std::string &key) {
  return key.substr(key.rfind('.') + 1);
}

bool is_variable(const std::string &origin) {
  return origin.starts_with("OCTAVO_") &&
         origin.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
}

// A TOML value as the text of an environment variable.
std::string plain_value(const std::string &toml) {
  const bool quoted = toml.size() >= 2 && toml.front() == '"';
  return quoted ? toml.substr(1, toml.size() - 2) : toml;
}

}  // namespace

std::string Source::words(const Edit &e) const {
  if (e.last < e.first) {
    return "add `" + *e.text + "` " +
           (e.last == 0 ? "as the first line of " : concat("after line ", e.last, " of ")) + name_;
  }
  std::string lines = concat("line ", e.first);
  if (e.last > e.first) lines = concat("lines ", e.first, " to ", e.last);
  if (!e.text) return "delete " + lines + " of " + name_;
  return "replace " + lines + " of " + name_ + " by `" + *e.text + "`";
}

std::string Source::first_valid(const std::vector<Edit> &edits, const std::string &key,
                                const std::string &value) const {
  for (const Edit &e : edits)
    if (is_valid(e, key, value)) return words(e);
  return {};
}

std::string Source::add(const Fix &f) const {
  if (name_.empty()) return "set `" + f.key + " = " + f.value + "`";
  std::vector<Edit> edits;
  // Into a rule for layers, after its patterns.
  for (const TomlEntry &e : entries_)
    if (e.path.size() == 4 && e.path[1] == "rule" && e.path[3] == "match")
      if (const std::string rule = dotted({e.path[0], e.path[1], e.path[2], ""});
          f.key.starts_with(rule))
        edits.push_back({e.end_line + 1, e.end_line, f.key.substr(rule.size()) + " = " + f.value});
  // Into the innermost table that the file has.
  for (size_t dot = f.key.rfind('.'); dot != std::string::npos && dot > 0;
       dot = f.key.rfind('.', dot - 1))
    if (const uint32_t header = header_of(f.key.substr(0, dot)); header != 0)
      edits.push_back({header + 1, header, f.key.substr(dot + 1) + " = " + f.value});
  edits.push_back({1, 0, f.key + " = " + f.value});
  return first_valid(edits, f.key, f.value);
}

std::string Source::replace(const Fix &f) const {
  const TomlEntry *e = entry_at(f.origin);
  if (e == nullptr || e->value_line == 0 || e->end_line > lines_.size()) return {};
  const std::string head = line(e->value_line);
  const std::string tail = line(e->end_line);
  if (e->value_column > head.size() + 1 || e->end_column > tail.size() + 1) return {};
  std::string text = head.substr(0, e->value_column - 1) + f.value + tail.substr(e->end_column - 1);
  while (!text.empty() && text.back() == '\r') text.pop_back();
  // Or the line of another key, in whose place this one is.
  const std::string line_of_key = last_part(f.key) + " = " + f.value;
  return first_valid({{e->value_line, e->end_line, text}, {e->line, e->end_line, line_of_key}},
                     f.key, f.value);
}

std::string Source::rename(const Fix &f) const {
  std::vector<Edit> edits;
  const std::string last = last_part(f.key);
  if (const uint32_t header = header_of(f.key); header != 0)
    edits.push_back({header, header, "[" + f.rename + "]"});
  if (const TomlEntry *e = entry_at(f.origin); e != nullptr && e->line <= lines_.size()) {
    const std::string text = line(e->line);
    // A table's name is before the key that it was noticed by, a key's own at its column.
    const size_t column = std::min<size_t>(e->column - 1, text.size());
    const size_t at = dotted(e->path) == f.key ? text.find(last, column) : text.rfind(last, column);
    const bool same_table = f.key.substr(0, f.key.size() - last.size()) ==
                            f.rename.substr(0, f.rename.size() - last_part(f.rename).size());
    if (same_table && at != std::string::npos)
      edits.push_back({e->line, e->line,
                       text.substr(0, at) + last_part(f.rename) + text.substr(at + last.size())});
    // The table's name is the misspelt one.
    const size_t dot = f.key.rfind('.');
    const size_t wanted = f.rename.rfind('.');
    if (dot != std::string::npos && wanted != std::string::npos && last == last_part(f.rename))
      if (const uint32_t header = header_of(f.key.substr(0, dot)); header != 0)
        edits.push_back({header, header, "[" + f.rename.substr(0, wanted) + "]"});
    if (const size_t equals = text.find('='); equals != std::string::npos)
      edits.push_back({e->line, e->line, f.rename + " " + text.substr(equals)});
  } else if (const uint32_t number = line_of(f.origin); number != 0) {
    if (const size_t at = line(number).find(last); at != std::string::npos)
      edits.push_back({number, number,
                       line(number).substr(0, at) + last_part(f.rename) +
                           line(number).substr(at + last.size())});
  }
  const std::string found = first_valid(edits, f.rename);
  return found.empty() ? remove(f) : found;
}

std::string Source::remove(const Fix &f) const {
  std::vector<Edit> edits;
  if (const uint32_t header = header_of(f.key); header != 0)
    edits.push_back({header, end_of_table(header), std::nullopt});
  if (const TomlEntry *e = entry_at(f.origin); e != nullptr)
    edits.push_back({e->line, std::max(e->line, e->end_line), std::nullopt});
  if (const uint32_t number = line_of(f.origin); number != 0)
    edits.push_back({number, number, std::nullopt});
  return first_valid(edits);
}

std::string Source::apply(const Fix &f) const {
  if (!f.question.empty()) return {};
  if (!f.command.empty()) return "run `" + f.command + "`";
  if (f.line > 0) {
    const auto count = static_cast<uint32_t>(lines_.size());
    const uint32_t number = std::min(f.line, std::max(count, 1u));
    if (name_.empty()) return {};
    return words({number, number, f.value.empty() ? std::nullopt : std::optional(f.value)});
  }
  if (f.key.empty()) return {};
  if (f.origin == kOverride) {
    if (!f.rename.empty()) return "override `" + f.rename + "` instead of `" + f.key + "`";
    return f.value.empty() ? "drop the override `" + f.key + "`"
                           : "override `" + f.key + " = " + f.value + "`";
  }
  if (is_variable(f.origin))
    return f.value.empty()
               ? "run `unset " + f.origin + "`"
               : "run `export " + f.origin + "=" + shell_word(plain_value(f.value)) + "`";
  if (!f.rename.empty()) return rename(f);
  if (f.value.empty()) return remove(f);
  return f.origin == "default" || f.origin.empty() ? add(f) : replace(f);
}

std::string shell_word(const std::string &text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/' || c == ':';
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace octavo
