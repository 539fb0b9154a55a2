// Finds keys and tables in the configuration's text, and tries an edit by parsing its result.
#include <algorithm>

#include "sdk/src/base/text.h"
#include "sdk/src/config/config.h"
#include "sdk/src/config/remedy.h"

namespace octavo {
namespace {

// The name in a table's header "[name]", empty for every other line.
std::string header_name(const std::string &line) {
  std::string plain;
  for (const char c : line.substr(0, line.find('#')))
    if (c != ' ' && c != '\t' && c != '\r') plain += c;
  if (plain.size() < 3 || plain[0] != '[' || plain[1] == '[' || plain.back() != ']') return {};
  return plain.substr(1, plain.size() - 2);
}

}  // namespace

Source::Source(std::string name, std::string_view text) : name_(std::move(name)) {
  if (name_.empty()) return;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  lines_ = split_lines(text);
  try {
    entries_ = parse_toml(text, name_, "octavo.config");
  } catch (const Failure &) {
    entries_.clear();
  }
}

bool Source::is_valid(const Edit &e, const std::string &key, const std::string &value) const {
  std::string text;
  for (uint32_t n = 0; n <= lines_.size(); ++n) {
    if (n > 0 && (n < e.first || n > e.last)) text += line(n) + '\n';
    if (e.text && n == e.last) text += *e.text + '\n';
  }
  try {
    const std::vector<TomlEntry> entries = parse_toml(text, name_, "octavo.config");
    return key.empty() || std::any_of(entries.begin(), entries.end(), [&](const TomlEntry &one) {
             const std::string path = dotted(one.path);
             return value.empty() ? path == key || path.starts_with(key + ".")
                                  : path == key && show(one.value) == value;
           });
  } catch (const Failure &) {
    return false;
  }
}

uint32_t Source::header_of(const std::string &table) const {
  for (uint32_t n = 1; n <= lines_.size(); ++n)
    if (header_name(line(n)) == table) return n;
  return 0;
}

// The last line with content before the next header.
uint32_t Source::end_of_table(uint32_t header) const {
  uint32_t end = header;
  for (uint32_t n = header + 1; n <= lines_.size(); ++n) {
    const size_t first = line(n).find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    if (line(n)[first] == '[') break;
    end = n;
  }
  return end;
}

uint32_t Source::line_of(const std::string &origin) const {
  if (!origin.starts_with(name_ + ":")) return 0;
  const std::vector<std::string> place = split(origin.substr(name_.size() + 1), ':');
  const bool digits = place.size() == 2 && place[0].size() < 9 &&
                      place[0].find_first_not_of("0123456789") == std::string::npos;
  const uint32_t number =
      digits && !place[0].empty() ? static_cast<uint32_t>(std::stoul(place[0])) : 0;
  return number <= lines_.size() ? number : 0;
}

const TomlEntry *Source::entry_at(const std::string &origin) const {
  for (const TomlEntry &e : entries_)
    if (origin == name_ + ":" + std::to_string(e.line) + ":" + std::to_string(e.column)) return &e;
  return nullptr;
}

Source source_of(const octavo_open_desc &desc) {
  std::string name(view(desc.config_path));
  if (desc.config_text.data != nullptr)
    return Source(name.empty() ? "octavo.toml" : name, view(desc.config_text));
  try {
    return Source(name, name.empty() ? std::string() : read_file(name, "octavo.config"));
  } catch (const Failure &) {
    return Source(name, "");
  }
}

}  // namespace octavo
