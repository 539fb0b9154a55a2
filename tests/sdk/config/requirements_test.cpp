// [fp8.require]: each demand against kernels that lack exactly what it is about.
#include "sdk/src/config/requirements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/request.h"

namespace octavo {
namespace {

using testing::HasSubstr;

octavo_kernels_caps gpu() {
  octavo_kernels_caps caps{};
  caps.size = sizeof(caps);
  caps.kind = OCTAVO_KIND_KERNELS_CAPS;
  caps.id = OCTAVO_STR("cuda.sm90");
  caps.flags = OCTAVO_CAPS_CAPTURE_SAFE | OCTAVO_CAPS_DETERMINISTIC;
  return caps;
}

// Per tensor, and never in the dtype `lacking`.
Serves per_tensor_without(uint32_t lacking) {
  return [=](const octavo_ability &q) {
    return q.granularity == OCTAVO_PER_TENSOR && q.b_granularity == OCTAVO_PER_TENSOR &&
           q.dtype != lacking;
  };
}

// `wanted`: lines of [fp8.require].
std::vector<Verdict> check(const std::string &wanted, const octavo_kernels_caps &caps,
                           const std::string &recipe = "delayed", uint32_t lacking = 0) {
  std::vector<Verdict> verdicts;
  const Config config = load_config(test::Request().text("[fp8.require]\n" + wanted).desc());
  check_fp8_requirements(config, caps, per_tensor_without(lacking), "te", {recipe}, verdicts);
  for (const Verdict &v : verdicts) {
    EXPECT_EQ(v.decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(v.reason, uint32_t{OCTAVO_REASON_REQUIRE});
    EXPECT_FALSE(v.evidence.empty());
  }
  return verdicts;
}

// Exactly one verdict, whose text and remedy begin and go on as given.
void expect_one(const std::vector<Verdict> &verdicts, const std::string &text,
                const std::string &remedy) {
  ASSERT_EQ(verdicts.size(), 1u) << text;
  EXPECT_THAT(verdicts[0].text, HasSubstr(text));
  EXPECT_THAT(verdicts[0].remedy.text, testing::StartsWith(remedy + ", or "));
}

TEST(Requirements, nothing_is_demanded_by_default) {
  EXPECT_TRUE(check("", octavo_kernels_caps{}).empty());
}

TEST(Requirements, everything_is_there) {
  EXPECT_TRUE(
      check("native = true\ndeterministic = true\ngraph_capture = true\nspeed = \"native\"\n"
            "encodings = [\"float8_e4m3fn\", \"float8_e5m2\"]\nscaling = [\"tensor\"]\n"
            "recipes = [\"current\", \"delayed\"]\n",
            gpu())
          .empty());
}

TEST(Requirements, flags_of_the_kernels) {
  octavo_kernels_caps caps = gpu();
  caps.flags |= OCTAVO_CAPS_EMULATED;
  expect_one(check("native = true", caps), "fp8.require.native: FP8 units are required",
             "set fp8.require.native = false");
  caps = gpu();
  caps.flags &= ~uint64_t{OCTAVO_CAPS_DETERMINISTIC};
  expect_one(check("deterministic = true", caps), "bit-identical results are required",
             "set fp8.require.deterministic = false");
  EXPECT_TRUE(check("native = true", caps).empty());
  caps = gpu();
  caps.flags &= ~uint64_t{OCTAVO_CAPS_CAPTURE_SAFE};
  expect_one(check("graph_capture = true", caps), "calls that can be captured",
             "set fp8.require.graph_capture = false");
}

TEST(Requirements, classes_of_speed) {
  octavo_kernels_caps caps = gpu();
  EXPECT_STREQ(speed_class(caps), "native");
  caps.flags |= OCTAVO_CAPS_EMULATED;
  caps.id = OCTAVO_STR("cpu.avx2");
  EXPECT_STREQ(speed_class(caps), "vector");
  EXPECT_TRUE(check("speed = \"vector\"", caps).empty());
  expect_one(check("speed = \"native\"", caps),
             "\"native\" is required, these kernels are \"vector\"",
             "set fp8.require.speed = \"vector\"");
  caps.id = OCTAVO_STR("cpu.baseline");
  EXPECT_STREQ(speed_class(caps), "emulated");
  expect_one(check("speed = \"vector\"", caps), "these kernels are \"emulated\"",
             "set fp8.require.speed = \"any\"");
}

TEST(Requirements, formats_and_scales) {
  expect_one(
      check("encodings = [\"float8_e4m3fn\", \"float8_e5m2\"]", gpu(), "delayed", OCTAVO_E5M2),
      "lack float8_e5m2", "set fp8.require.encodings = [\"float8_e4m3fn\"]");
  expect_one(check("scaling = [\"block_1x32\", \"tensor\"]", gpu()), "lack scales of block_1x32",
             "set fp8.require.scaling = [\"tensor\"]");
}

TEST(Requirements, recipes) {
  expect_one(check("recipes = [\"block\", \"mx\"]", gpu()),
             "one of block and mx is required, backend te would run delayed",
             "set fp8.require.recipes = [\"block\", \"mx\", \"delayed\"]");
  expect_one(check("recipes = [\"mx\"]", gpu(), ""), "backend te has no option recipe",
             "set fp8.require.recipes = []");
}

TEST(Requirements, each_demand_has_its_own_verdict) {
  octavo_kernels_caps caps = gpu();
  caps.flags |= OCTAVO_CAPS_EMULATED;
  const std::vector<Verdict> verdicts = check("native = true\nrecipes = [\"mx\"]", caps);
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_DEVICE});
  EXPECT_EQ(verdicts[1].level, uint32_t{OCTAVO_LEVEL_SESSION});
}

}  // namespace
}  // namespace octavo
