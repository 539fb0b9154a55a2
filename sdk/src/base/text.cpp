// Edit distance, lists for people, and glob matching.
#include "sdk/src/base/text.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

namespace octavo {
namespace {

// Optimal string alignment distance: insert, delete, replace, swap neighbours; `limit` for this
// many and more. Of its table, three rows are kept.
size_t distance(std::string_view a, std::string_view b, size_t limit) {
  // At least one edit for every letter that one of them has more.
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  const size_t width = b.size() + 1;
  std::vector<size_t> rows(3 * width);
  size_t *before = rows.data();    // of two letters ago
  size_t *above = before + width;  // of the letter before
  size_t *row = above + width;
  std::iota(above, above + width, size_t{0});
  size_t least_above = 0;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    size_t least = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
      least = std::min(least, row[j]);
    }
    // No row falls below the least of the two above it.
    if (std::min(least, least_above) >= limit) return limit;
    least_above = least;
    size_t *const free = before;
    before = above;
    above = row;
    row = free;
  }
  return std::min(above[b.size()], limit);
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string> &candidates,
                    size_t most) {
  // Keys are short; a longer word is no misspelling of one, and would cost quadratic time.
  if (word.size() > 64) return {};
  std::string best;
  size_t best_distance = (most == 0 ? std::max<size_t>(2, word.size() / 3) : most) + 1;
  for (const std::string &candidate : candidates) {
    const size_t d = distance(word, candidate, best_distance);
    if (d < best_distance && d < std::max(word.size(), candidate.size())) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string enumerate(const std::vector<std::string> &items, const char *word) {
  if (items.empty()) return "nothing";
  std::string text = items[0];
  for (size_t i = 1; i < items.size(); ++i)
    text += (i + 1 == items.size() ? std::string(" ") + word + " " : ", ") + items[i];
  return text;
}

std::string not_a_choice(const std::string &found, const std::vector<std::string> &choices,
                         std::string *near) {
  std::vector<std::string> quoted;
  for (const std::string &choice : choices) quoted.push_back('"' + choice + '"');
  *near = nearest(found, choices);
  return enumerate(quoted, "or") + ", found \"" + found + '"' +
         (near->empty() ? "" : "; did you mean \"" + *near + "\"?");
}

bool matches(const std::string &pattern, const std::string &name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string problem_of_pattern(const std::string &pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && ++i == pattern.size()) return "a backslash at its end";
    if (pattern[i] != '[') continue;
    // A bracket right after the first one, or after its ! or ^, is one of the set.
    size_t end = i + 1;
    if (end < pattern.size() && (pattern[end] == '!' || pattern[end] == '^')) ++end;
    end = pattern.find(']', end + 1);
    if (end == std::string::npos)
      return "\"[\" without \"]\", which would be one character of a name";
    i = end;
  }
  return {};
}

std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string_view trimmed(std::string_view text, const char *marks) {
  const size_t first = text.find_first_not_of(marks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(marks) - first + 1);
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace octavo
