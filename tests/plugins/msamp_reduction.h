// What tests of msamp's gradient reduction share: options, random gradients, values of codes.
#pragma once

#include <cmath>
#include <random>

#include "tests/plugins/reduction_group.h"

namespace octavo::test {

inline constexpr int kTwoShot = 0;
inline constexpr int kOneShot = 1 << 30;

class MsampReduction : public testing::Test {
 protected:
  // Ranks with gradients of these shapes; `more` are options of fp8.msamp with text values.
  void open(uint32_t world, int one_shot_bytes,
            const std::vector<std::pair<const char *, const char *>> &more,
            const std::vector<std::pair<int64_t, int64_t>> &shapes) {
    group.reset();
    request = std::make_unique<Request>();
    request->set("fp8.msamp.one_shot_bytes", one_shot_bytes);
    for (const auto &[name, value] : more) request->set(std::string("fp8.msamp.") + name, value);
    group = std::make_unique<ReductionGroup>(*request, world);
    group->open(shapes);
  }
  std::vector<std::vector<uint8_t>> all_bytes() {
    std::vector<std::vector<uint8_t>> bytes;
    for (uint32_t rank = 0; rank < group->world(); ++rank)
      bytes.push_back(group->gradient_bytes(rank));
    return bytes;
  }
  Environment environment;
  std::unique_ptr<Request> request;
  std::unique_ptr<ReductionGroup> group;
};

// Standard normal values, the same in every run.
class Normal {
 public:
  explicit Normal(uint64_t seed) : bits_(seed) {}
  double operator()() {
    const double u = (static_cast<double>(bits_() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(bits_() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  }

 private:
  std::mt19937_64 bits_;
};

inline float value_of_code(uint8_t code) {
  const float magnitude = value_of(kE4m3, code & 0x7F);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace octavo::test
