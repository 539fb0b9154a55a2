// The only translation unit that sees TOML++: parses, and flattens to entries with positions.
#include "sdk/src/config/toml.h"

#define TOML_EXCEPTIONS 1
// Its assertions would end the process of the host; what they guard is refused by guard_toml.
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <new>
#include <optional>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

constexpr size_t kMaxDepth = 8;

class Flattener {
 public:
  Flattener(const std::string &name, const char *domain) : name_(name), domain_(domain) {}

  void table(const toml::table &t, std::vector<std::string> path) {
    if (path.size() > kMaxDepth) {
      const auto at = t.source().begin;
      throw Failure(OCTAVO_INVALID, domain_, name_, ":", at.line, ":", at.column,
                    ": expected at most 8 levels of tables, found more")
          .with_fix({.line = at.line});
    }
    if (t.empty() && !path.empty()) add(path, OtherToml{"table"}, t.source().begin, t.source());
    for (const auto &[key, node] : t) {
      std::vector<std::string> inner = path;
      inner.emplace_back(key.str());
      visit(node, std::move(inner), key.source().begin);
    }
  }

  std::vector<TomlEntry> take() { return std::move(entries_); }

 private:
  void add(std::vector<std::string> path, TomlValue value, toml::source_position at,
           const toml::source_region &region) {
    entries_.push_back({std::move(path), std::move(value), at.line, at.column, region.begin.line,
                        region.begin.column, region.end.line, region.end.column});
  }

  void visit(const toml::node &node, std::vector<std::string> path, toml::source_position at) {
    if (const auto *t = node.as_table()) {
      table(*t, std::move(path));
    } else if (const auto *a = node.as_array()) {
      array(*a, std::move(path), at);
    } else if (const auto *i = node.as_integer()) {
      add(std::move(path), TomlValue(i->get()), at, node.source());
    } else if (const auto *f = node.as_floating_point()) {
      add(std::move(path), TomlValue(f->get()), at, node.source());
    } else if (const auto *b = node.as_boolean()) {
      add(std::move(path), TomlValue(b->get()), at, node.source());
    } else if (const auto *s = node.as_string()) {
      add(std::move(path), TomlValue(s->get()), at, node.source());
    } else {
      add(std::move(path), OtherToml{"a date or time"}, at, node.source());
    }
  }

  void array(const toml::array &a, std::vector<std::string> path, toml::source_position at) {
    std::vector<std::string> texts;
    size_t index = 0;
    for (const toml::node &node : a) {
      if (const auto *t = node.as_table()) {
        std::vector<std::string> inner = path;
        inner.push_back(std::to_string(index));
        table(*t, std::move(inner));
      } else if (const auto *s = node.as_string()) {
        texts.push_back(s->get());
      } else {
        add(std::move(path), OtherToml{"a list with something other than text"}, at, a.source());
        return;
      }
      ++index;
    }
    if (texts.size() == a.size())
      add(std::move(path), TomlValue(std::move(texts)), at, a.source());
    else if (!texts.empty())  // tables between texts: neither a list of texts nor one of tables
      add(std::move(path), OtherToml{"a list with something other than text"}, at, a.source());
  }

  std::string name_;
  const char *domain_;
  std::vector<TomlEntry> entries_;
};

bool is_toml(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
    return true;
  } catch (const toml::parse_error &) {
    return false;
  }
}

// A line that lacks quotes, which parsers call a wrong boolean or a wrong character.
struct Unquoted {
  std::string problem, line;  // the line as it was meant
};

std::optional<Unquoted> unquoted(std::string_view text, uint32_t number) {
  static const std::string kQuote = "\"";
  const std::vector<std::string> lines = split_lines(text);
  if (number == 0 || number > lines.size()) return std::nullopt;
  const std::string &line = lines[number - 1];
  const size_t equals = line.find('=');
  const size_t at =
      equals == std::string::npos ? equals : line.find_first_not_of(" \t", equals + 1);
  if (at == std::string::npos) return std::nullopt;
  const std::string value = line.substr(at, line.find_last_not_of(" \t\r") + 1 - at);
  const bool is_open =
      value[0] == kQuote[0] && std::count(value.begin(), value.end(), kQuote[0]) == 1;
  const bool is_word = std::isalpha(static_cast<unsigned char>(value[0])) != 0 &&
                       value.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789_.-*/") == std::string::npos;
  if (!is_open && !is_word) return std::nullopt;
  const std::string meant =
      line.substr(0, at) + (is_open ? std::string() : kQuote) + value + kQuote;
  if (!is_toml(meant)) return std::nullopt;
  return Unquoted{is_open ? "a text ends with a quote" : "a text stands in quotes", meant};
}

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, const std::string &name,
                                  const char *domain) {
  text = guard_toml(text, name, domain);
  try {
    // Without the name: toml++ would keep a copy of it, in a constructor that must not throw.
    const toml::table document = toml::parse(text);
    Flattener flattener(name, domain);
    flattener.table(document, {});
    return flattener.take();
  } catch (const toml::parse_error &e) {
    // toml++ reads real numbers through a stream, which takes a failed allocation for a wrong
    // number. What is wrong the second time, too, is no shortage.
    if (is_toml(text)) throw std::bad_alloc();  // GCOVR_EXCL_BR_LINE: octavo_out_of_memory_test
    const auto at = e.source().begin;
    if (const auto slip = unquoted(text, at.line))
      throw Failure(OCTAVO_INVALID, domain, name, ":", at.line, ":", at.column,
                    ": not valid TOML: ", slip->problem, "; did you mean `", slip->line, "`?")
          .with_fix({.value = slip->line, .line = at.line});
    throw Failure(OCTAVO_INVALID, domain, name, ":", at.line, ":", at.column,
                  ": not valid TOML: ", e.description())
        .with_fix({.line = at.line});
  }
}

}  // namespace octavo
