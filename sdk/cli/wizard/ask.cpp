// One question: by its flag, by its default, or on the terminal.
#include <cstdio>

#include "sdk/cli/text_layout.h"
#include "sdk/cli/wizard/menu.h"
#include "sdk/cli/wizard/wizard.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli::wizard {
namespace {

constexpr size_t kLongestAnswer = 4096;

std::string words_of_value(const TomlValue &value) {
  if (const auto *text = std::get_if<std::string>(&value)) return *text;
  if (const auto *flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto *list = std::get_if<std::vector<std::string>>(&value)) {
    std::string words;
    for (const std::string &one : *list) words += (words.empty() ? "" : ",") + one;
    return list->empty() ? "none" : words;
  }
  return show(value);
}

[[noreturn]] void fail_without_answer(const Question &q) {
  print_line("");
  throw Failure(OCTAVO_INVALID, kInitDomain, "expected an answer to \"", q.text,
                "\", found the end of standard input; ", q.flag,
                " answers it, and --yes takes every default");
}

// A line of standard input.
std::string read_answer(const Question &q) {
  std::string line;
  for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
    if (c == EOF && line.empty()) fail_without_answer(q);
    if (c == EOF) break;
    if (line.size() == kLongestAnswer)
      throw Failure(OCTAVO_INVALID, kInitDomain, "expected an answer of at most ", kLongestAnswer,
                    " bytes, found a longer one");
    line += static_cast<char>(c);
  }
  return take_words(line.c_str());
}

// The choice of a number in the list, or the words as they are.
std::string chosen(const std::vector<std::string> &numbered, const std::string &answer) {
  for (size_t i = 0; i < numbered.size(); ++i)
    if (answer == std::to_string(i + 1)) return numbered[i];
  return answer;
}

}  // namespace

TomlValue Wizard::default_of(const Question &q) const {
  Verdict first = verdict_with(q, q.initial);
  if (first.runs) return q.initial;
  for (const Choice &c : q.choices)
    if (TomlValue(c.value).index() == q.initial.index() && verdict_with(q, c.value).runs)
      return c.value;
  throw Failure(OCTAVO_UNSUPPORTED, kInitDomain, q.key,
                ": nothing of it runs here: ", first.reason);
}

TomlValue Wizard::ask(const Question &q) const {
  say("\n%s\n", q.text);
  const TomlValue initial = default_of(q);
  std::vector<std::string> numbered;
  std::vector<Row> rows;
  size_t first = 0;
  for (const Choice &c : q.choices) {
    const Verdict v = verdict_with(q, c.value);
    if (v.runs) numbered.push_back(c.value);
    if (c.value == words_of_value(initial)) first = rows.size();
    const std::string number = v.runs ? std::to_string(numbered.size()) : "-";
    rows.push_back({number + "  " + padded(c.value, 11) + "  " +
                        take_words((v.runs ? c.what : "not here: " + v.reason).c_str()),
                    v.runs});
  }
  if (!rows.empty() && has_keys()) {
    const int chosen_row = choose(rows, first);
    if (chosen_row < 0) fail_without_answer(q);
    return value_of_answer(q, q.choices[static_cast<size_t>(chosen_row)].value);
  }
  for (const Row &row : rows) say("  %s\n", row.text.c_str());
  while (true) {
    say("[%s]: ", words_of_value(initial).c_str());
    std::fflush(stdout);
    const std::string line = read_answer(q);
    if (line.empty()) return initial;
    try {
      const TomlValue value = value_of_answer(q, chosen(numbered, line));
      const Verdict v = verdict_with(q, value);
      if (v.runs) return value;
      say("not here: %s\n", take_words(v.reason.c_str()).c_str());
    } catch (const Failure &f) {
      say("%s\n", take_words(f.what()).c_str());
    }
  }
}

void Wizard::answer(Question q) {
  if (std::string_view(q.key) == "fp8.backend") q.choices = backends_;
  const auto given = given_.find(q.flag);
  if (given == given_.end()) return add(q, yes_ ? default_of(q) : ask(q));
  const TomlValue value = value_of_answer(q, given->second);
  const Verdict v = verdict_with(q, value);
  if (!v.runs)
    throw Failure(OCTAVO_UNSUPPORTED, kInitDomain, q.flag, " ", given->second, ": ", v.reason);
  add(q, value);
}

}  // namespace octavo::cli::wizard
