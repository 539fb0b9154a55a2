// Rounds are compared with themselves: a load that comes and goes hits bf16 and backends alike.
#include "sdk/cli/bench/advice.h"

#include <algorithm>
#include <cctype>

#include "sdk/src/base/text.h"

namespace octavo::cli::bench {
namespace {

// "h.*.mlp" of "h.12.mlp": numbers between dots become one star each.
std::string without_numbers(const std::string &name) {
  std::vector<std::string> parts = split(name, '.');
  std::string joined;
  for (std::string &part : parts) {
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    joined += (joined.empty() ? "" : ".") + (is_number ? "*" : part);
  }
  return joined;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool gains(const Measured &measured, const Timed &backend) {
  if (backend.seconds.empty()) return false;
  size_t won = 0;
  for (size_t i = 0; i < backend.seconds.size(); ++i)
    if (backend.seconds[i] < measured.bf16[i]) ++won;
  return 4 * won >= 3 * backend.seconds.size() && median(backend.seconds) < median(measured.bf16);
}

std::vector<Choice> choices(const std::vector<Measured> &all) {
  std::vector<Choice> made;
  for (size_t b = 0; !all.empty() && b < all.front().backends.size(); ++b) {
    Choice c;
    c.backend = all.front().backends[b].backend;
    for (const Measured &m : all) {
      const bool faster = gains(m, m.backends[b]);
      const size_t count = m.shape.linears.size();
      const bool runs = m.backends[b].refused.empty();
      if (runs) c.runs += count;
      c.everywhere += static_cast<double>(count) * median(runs ? m.backends[b].seconds : m.bf16);
      c.seconds += static_cast<double>(count) * median(faster ? m.backends[b].seconds : m.bf16);
      c.faster.push_back(faster);
      if (faster) c.linears += count;
    }
    made.push_back(c);
  }
  return made;
}

const Choice *best(const std::vector<Choice> &all) {
  const Choice *least = nullptr;
  for (const Choice &c : all)
    if (c.linears > 0 && (least == nullptr || c.seconds < least->seconds)) least = &c;
  return least;
}

std::vector<std::string> patterns(const std::vector<Measured> &all, const std::vector<bool> &faster,
                                  const std::string &front) {
  const auto hits_faster = [&](const std::string &pattern) {
    for (size_t s = 0; s < all.size(); ++s)
      for (const std::string &name : all[s].shape.linears)
        if (faster[s] && (matches(pattern, name) || matches(pattern, name + ".weight")))
          return true;
    return false;
  };
  std::vector<std::string> made;
  const auto add = [&made](const std::string &pattern) {
    if (std::find(made.begin(), made.end(), pattern) == made.end()) made.push_back(pattern);
  };
  for (size_t s = 0; s < all.size(); ++s) {
    if (faster[s]) continue;
    for (const std::string &name : all[s].shape.linears) {
      const std::string pattern = front + without_numbers(name);
      add(hits_faster(pattern) ? front + name : pattern);
    }
  }
  return made;
}

}  // namespace octavo::cli::bench
