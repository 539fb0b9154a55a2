/* delayed_scale_update of many columns against kernels/format, column by column: every rule, with
 * live values and histories full of zeros, infinities, NaN and negative numbers.
 */
#include "kernels/format/delayed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/history.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

struct Columns {
  std::vector<float> amax, history, scale, counter;

  Columns(size_t n, size_t length, uint32_t seed)
      : amax(n), history(n * length), scale(n), counter(n) {
    std::mt19937 random(seed);
    const auto value = [&] {
      const uint32_t kind = random() % 16;
      if (kind == 0) return std::numeric_limits<float>::infinity();
      if (kind == 1) return std::numeric_limits<float>::quiet_NaN();
      if (kind < 5) return 0.0f;
      const float size = static_cast<float>(random() % 1000 + 1) * 0.01f;
      return kind == 5 ? -size : size;
    };
    for (std::vector<float> *each : {&amax, &history})
      for (float &v : *each) v = value();
    for (float &v : scale) v = static_cast<float>(random() % 100 + 1);
    for (float &v : counter) v = static_cast<float>(random() % 20);
  }
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class DelayedPool : public testing::TestWithParam<uint32_t> {};

TEST_P(DelayedPool, equals_one_column_after_the_other) {
  for (const size_t n : {1u, 2u, 17u, 511u, 512u, 513u, 1100u}) {
    for (const size_t length : {1u, 2u, 3u, 40u}) {
      for (const bool use_max : {true, false}) {
        Kernels kernels;
        Columns found(n, length, static_cast<uint32_t>(n * 7 + length));
        Columns expected = found;
        auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
        c.amax = found.amax.data();
        c.history = found.history.data();
        c.scale = found.scale.data();
        c.counter = found.counter.data();
        c.n = n;
        c.length = length;
        c.format_max = 448.0f;
        c.margin = 1;
        c.use_max = use_max ? 1 : 0;
        c.rule = GetParam();
        c.history_flags = history_of(c.rule);
        ASSERT_EQ(kernels.table->delayed_scale_update(kernels.ctx(), &c), OCTAVO_OK)
            << kernels.host().last_text();
        for (size_t i = 0; i < n; ++i) {
          update_delayed_column(
              {&expected.amax[i], &expected.history[i], &expected.scale[i], &expected.counter[i],
               static_cast<int64_t>(n), static_cast<int64_t>(length)},
              {448.0f, 1, GetParam(), c.history_flags, use_max});
        }
        const auto where = testing::Message() << "n " << n << ", length " << length;
        EXPECT_TRUE(same_bits(found.amax, expected.amax)) << where;
        EXPECT_TRUE(same_bits(found.history, expected.history)) << where;
        EXPECT_TRUE(same_bits(found.scale, expected.scale)) << where;
        EXPECT_TRUE(same_bits(found.counter, expected.counter)) << where;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, DelayedPool,
                         testing::Values(OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2,
                                         OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP,
                                         OCTAVO_RULE_MSAMP04),
                         octavo::test::kNameOfValue);

}  // namespace
}  // namespace octavo::test
