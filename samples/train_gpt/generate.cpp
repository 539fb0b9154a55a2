// The model sees at most one context of bytes; the oldest ones fall out.
#include "generate.h"

#include <algorithm>
#include <cmath>

namespace gpt {
namespace {

constexpr double kTemperature = 0.7;
constexpr uint64_t kStream = ~uint64_t{0};  // apart from those of weights and batches

unsigned char draw(const float *logits, Random &random) {
  const float top = *std::max_element(logits, logits + kBytes);
  double weights[kBytes];
  double sum = 0.0;
  for (int64_t i = 0; i < kBytes; ++i) {
    weights[i] =
        std::exp((static_cast<double>(logits[i]) - static_cast<double>(top)) / kTemperature);
    sum += weights[i];
  }
  double left = random.uniform() * sum;
  for (int64_t i = 0; i < kBytes; ++i) {
    left -= weights[i];
    if (left < 0.0) return static_cast<unsigned char>(i);
  }
  return static_cast<unsigned char>(kBytes - 1);
}

}  // namespace

std::string generate(Model &model, const std::string &prompt, int64_t count, uint64_t seed) {
  Random random(seed, kStream);
  std::vector<unsigned char> bytes(prompt.begin(), prompt.end());
  const auto context = static_cast<size_t>(model.size().context);
  for (int64_t i = 0; i < count; ++i) {
    const size_t time = std::min(bytes.size(), context);
    const float *logits =
        model.logits(bytes.data() + bytes.size() - time, static_cast<int64_t>(time));
    bytes.push_back(draw(logits + (time - 1) * static_cast<size_t>(kBytes), random));
  }
  std::string continuation(bytes.begin() + static_cast<int64_t>(prompt.size()), bytes.end());
  for (char &c : continuation) {
    const bool shown = c == '\n' || (c >= ' ' && c <= '~');
    if (!shown) c = '?';
  }
  return continuation;
}

}  // namespace gpt
