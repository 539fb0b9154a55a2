// Reads and checks the rules, and finds the one that decides.
#include "sdk/src/config/layer_rules.h"

#include <algorithm>
#include <charconv>

#include "sdk/src/base/text.h"
#include "sdk/src/config/meaning.h"

namespace octavo {
namespace {

using Texts = std::vector<std::string>;

Texts members() {
  return {"match", "place", "fp8"};
}
Texts places() {
  return {"host", "fp8"};
}
constexpr const char *kOption = "fp8.<backend>.<option>";
constexpr const char *kPatterns = "patterns of layer names, as \"*.mlp.*\",";

bool is_table(const TomlValue &value) {
  const auto *other = std::get_if<OtherToml>(&value);
  return other != nullptr && other->kind == "table";
}

std::string found(const TomlValue &value) {
  return ", found " + kind_of(value) +
         (std::holds_alternative<OtherToml>(value) ? "" : " (" + show(value) + ")");
}

// The number of a rule, counted from 0; none: the entry is not one of an array of tables.
std::optional<size_t> number_of(const Texts &path) {
  if (path.size() < 3 || path[2].empty()) return {};
  size_t number = 0;
  const char *end = path[2].data() + path[2].size();
  const auto read = std::from_chars(path[2].data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return {};
  return number;
}

// What only the user knows.
Fix ask(const std::string &key, const std::string &origin, const std::string &what) {
  return {.key = key,
          .origin = origin,
          .question = "choose " + what + " for " + key + ", or remove the rule"};
}

Texts checked_match(const std::string &key, TomlValue value, const std::string &origin,
                    const std::string &where) {
  if (const auto *text = std::get_if<std::string>(&value)) value = Texts{*text};
  const auto *patterns = std::get_if<Texts>(&value);
  if (patterns == nullptr)
    fail_config(where, key + ": expected a pattern or a list of patterns" + found(value),
                ask(key, origin, kPatterns));
  if (patterns->empty() || std::find(patterns->begin(), patterns->end(), "") != patterns->end())
    fail_config(where,
                key + ": expected patterns of layer or weight names, found " +
                    (patterns->empty() ? "none" : "an empty one"),
                ask(key, origin, kPatterns));
  for (const std::string &pattern : *patterns)
    if (const std::string problem = problem_of_pattern(pattern); !problem.empty())
      fail_config(where,
                  key + ": expected patterns of layer or weight names, found \"" + pattern +
                      "\" with " + problem,
                  ask(key, origin, kPatterns));
  return *patterns;
}

void check_place(const std::string &key, const TomlValue &value, const std::string &origin,
                 const std::string &where) {
  const auto *text = std::get_if<std::string>(&value);
  const Texts all = places();
  if (text != nullptr && std::find(all.begin(), all.end(), *text) != all.end()) return;
  std::string near;
  const std::string words =
      text != nullptr ? not_a_choice(*text, all, &near) : any_of(all) + found(value);
  fail_config(where, key + ": expected " + words,
              near.empty() ? ask(key, origin, any_of(all))
                           : Fix{.key = key, .origin = origin, .value = show(near)});
}

// A pattern that can decide nothing, since the first rule that matches does.
void check_repeated(const LayerRule &rule, const std::vector<LayerRule> &earlier) {
  Texts before;
  for (const std::string &pattern : rule.patterns()) {
    const auto covers = [&](const std::string &one) { return one == pattern || one == "*"; };
    const LayerRule *first = nullptr;
    for (const LayerRule &other : earlier)
      if (first == nullptr && std::any_of(other.patterns().begin(), other.patterns().end(), covers))
        first = &other;
    if (first == nullptr && std::any_of(before.begin(), before.end(), covers)) first = &rule;
    before.push_back(pattern);
    if (first == nullptr) continue;
    Texts others = rule.patterns();
    others.erase(others.begin() + static_cast<ptrdiff_t>(before.size()) - 1);
    const std::string key = rule.key + ".match";
    fail_config(rule.match.origin,
                key + ": expected patterns that no rule before has, found " + show(pattern) +
                    ", and " + first->key + " (" + first->match.origin +
                    ") decides: the first rule that matches counts",
                others.empty()
                    ? ask(rule.key, rule.match.origin, "a place before " + first->key)
                    : Fix{.key = key, .origin = rule.match.origin, .value = show(others)});
  }
}

}  // namespace

void LayerRuleReader::accept(const Texts &path, TomlValue value, const std::string &origin,
                             const std::string &where) {
  const std::optional<size_t> number = number_of(path);
  if (!number)
    fail_config(where,
                "layers.rule: expected tables, each under [[layers.rule]]" +
                    (path.size() > 2 ? ", found a single table" : found(value)),
                ask("layers.rule", origin, "[[layers.rule]]"));
  LayerRule &rule = rules_[*number];
  rule.key = concat("layers.rule.", *number);
  rule.match.origin = rule.match.origin.empty() ? origin : rule.match.origin;
  if (path.size() == 3 && is_table(value)) return;  // which sets nothing
  const std::string key = dotted(path);
  const std::string member = path.size() > 3 ? path[3] : "";
  if (path.size() == 4 && member == "match") {
    rule.match = {checked_match(key, std::move(value), origin, where), origin};
  } else if (path.size() == 4 && member == "place") {
    check_place(key, value, origin, where);
    rule.place = {std::move(value), origin};
  } else if (member == "fp8" && path.size() <= 5 && is_table(value)) {
    return;  // nor does this
  } else if (member == "fp8" && path.size() == 6 && !is_table(value) &&
             !is_key_table("fp8." + path[4])) {
    rule.options[path[4]][path[5]] = {std::move(value), origin};
  } else if (member == "fp8") {
    fail_config(where, key + ": expected an option of a backend, " + kOption + found(value),
                {.key = key, .origin = origin});
  } else {
    const std::string near = nearest(member, members());
    fail_config(
        where,
        "unknown key \"" + key + "\"" +
            (near.empty() ? "; a rule has match, place and " + std::string(kOption)
                          : "; did you mean \"" + rule.key + "." + near + "\"?"),
        {.key = key, .origin = origin, .rename = near.empty() ? "" : rule.key + "." + near});
  }
}

std::vector<LayerRule> LayerRuleReader::take() const {
  std::vector<LayerRule> rules;
  for (const auto &entry : rules_) {
    const size_t number = entry.first;
    const LayerRule &rule = entry.second;
    const auto refuse = [&](const std::string &text, const std::string &key, const char *what) {
      fail_config(rule.match.origin, rule.key + ": expected " + text,
                  ask(key, rule.match.origin, what));
    };
    if (number != rules.size())
      refuse(concat("rules that are numbered from 0 without a gap, found ", rules.size(),
                    " before it"),
             rule.key, "the next number");
    if (rule.patterns().empty())
      refuse("match, the patterns of the layers that it is for, found none", rule.key + ".match",
             kPatterns);
    const bool has_options = !rule.options.empty();
    if (has_options == rule.place.has_value())
      refuse(concat("place or options of a backend (", kOption, "), found ",
                    has_options ? "both" : "neither"),
             rule.key, "a place or options");
    check_repeated(rule, rules);
    rules.push_back(rule);
  }
  return rules;
}

const LayerRule *rule_for(const std::vector<LayerRule> &rules, const std::string &layer,
                          const std::string &weight) {
  for (const LayerRule &rule : rules)
    for (const std::string &pattern : rule.patterns())
      if (matches(pattern, layer) || matches(pattern, weight)) return &rule;
  return nullptr;
}

const std::map<std::string, Setting> &options_for(const LayerRule &rule,
                                                  const std::string &backend) {
  static const std::map<std::string, Setting> none;
  const auto found = rule.options.find(backend);
  return found == rule.options.end() ? none : found->second;
}

}  // namespace octavo
