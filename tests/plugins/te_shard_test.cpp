// octavo.shard/1 of te: which divisions of a weight it refuses and why, and how long packets are.
// The bytes are compared by `octavo plugin verify`.
#include <gmock/gmock.h>

#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kN = 300, kK = 160;

struct Refused {
  std::map<std::string, std::string> options;
  int64_t rows;
  const char *says;
};

TEST(TeShardTest, a_division_that_would_change_codes_is_refused_with_the_reason) {
  const Refused all[] = {
      {{{"recipe", "\"block\""}},
       100,
       "\"w\": expected shards of a multiple of 128 rows, so that scales of 128x128 elements each "
       "follow from one shard, found 100; gather the values of this weight instead of its codes"},
      {{{"recipe", "\"mx\""}}, 16, "a multiple of 32 rows, so that scales of 1x32 elements"},
      {{{"recipe", "\"mx\""}, {"mxfp8_2d_quantization", "true"}},
       48,
       "a multiple of 32 rows, so that scales of 32x32 elements"},
      {{{"recipe", "\"current\""}, {"amax_epsilon", "0.5"}}, 100, "found a lower bound on amax"},
      {{{"telemetry", "true"}}, 100, "expected a cast without telemetry"},
      {{{"override_linear_precision", "\"dgrad\""}},
       100,
       "a product in the host's precision reads the weight itself"},
  };
  for (const Refused &r : all) {
    const TeLayer layer({r.options}, Matrix(kN, kK));
    octavo_shard_plan plan{};
    EXPECT_EQ(layer.shard_plan(r.rows, &plan), OCTAVO_UNSUPPORTED) << r.says;
    EXPECT_THAT(layer.error(), HasSubstr(r.says));
    EXPECT_EQ(plan.packet_bytes, 0u);
  }
}

// One byte an element where both directions of the cache have the same codes, two where not.
TEST(TeShardTest, packets_have_each_code_once) {
  const struct {
    const char *recipe;
    uint64_t bytes;
  } all[] = {
      {"\"delayed\"", 128 * kK + 64},
      {"\"current\"", 128 * kK + 64},
      {"\"block\"", 128 * kK + 2 * 64},  // 1x2 scales, and 2x1
      {"\"mx\"", 2 * 128 * kK + 128 * (kK / 32) + kK * (128 / 32)},
  };
  for (const auto &one : all) {
    const TeLayer layer({{{"recipe", one.recipe}}}, Matrix(kN, kK));
    octavo_shard_plan plan{};
    ASSERT_EQ(layer.shard_plan(128, &plan), OCTAVO_OK) << layer.error();
    EXPECT_EQ(plan.packet_bytes, one.bytes) << one.recipe;
  }
}

}  // namespace
}  // namespace octavo::test
