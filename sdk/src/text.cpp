// Edit distance, lists for people, and glob matching.
#include "text.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

namespace octavo {
namespace {

// Optimal string alignment distance: insert, delete, replace, swap neighbours.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string> &candidates) {
  // Keys are short; a longer word is no misspelling of one, and would cost quadratic time.
  if (word.size() > 64) return {};
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string &candidate : candidates) {
    const size_t d = distance(word, candidate);
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

bool matches(const std::string &pattern, const std::string &name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace octavo
