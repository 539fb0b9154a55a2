// layers.min_gain: the table of sizes, where it is applied, and what the host learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/cpu/table.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/negotiate/min_gain.h"
#include "sdk/src/run/run.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

octavo_kernels_caps caps_with(uint64_t flags) {
  octavo_kernels_caps caps{};
  caps.size = sizeof(caps);
  caps.kind = OCTAVO_KIND_KERNELS_CAPS;
  caps.flags = flags;
  return caps;
}

const octavo_kernels_caps kEmulated = caps_with(OCTAVO_CAPS_EMULATED | OCTAVO_CAPS_DETERMINISTIC);
const octavo_kernels_caps kWithUnits = caps_with(OCTAVO_CAPS_DETERMINISTIC);

Config config_of(const std::string &value) {
  return load_config(Request().set("layers.min_gain", value).desc());
}

TEST(MinGain, is_applied_where_its_value_says) {
  EXPECT_TRUE(filters_small("torchao", kEmulated));
  EXPECT_TRUE(filters_small("torchao", kWithUnits));
  EXPECT_FALSE(filters_small("auto", kEmulated));
  EXPECT_TRUE(filters_small("auto", kWithUnits));
  EXPECT_FALSE(filters_small("off", kEmulated));
  EXPECT_FALSE(filters_small("off", kWithUnits));
}

// Both borders of torchao's filter for tensor-wise scales, and one step beyond each.
TEST(MinGain, table_of_sizes) {
  struct Size {
    int64_t n, k;
    bool stays;
  };
  const Size sizes[] = {{1, 1, true},        {1024, 4096, true},  {1025, 4096, false},
                        {1024, 4097, false}, {1025, 16, false},   {16, 4097, false},
                        {1024, 16, true},    {16, 4096, true},    {2048, 8192, false},
                        {1025, 4097, false}, {4096, 1024, false}, {512, 512, true}};
  const Config config = config_of("torchao");
  for (const Size &s : sizes)
    EXPECT_EQ(too_small(config, kEmulated, s.n, s.k).has_value(), s.stays) << s.n << " x " << s.k;
  for (const Size &s : sizes) {
    EXPECT_FALSE(too_small(config_of("off"), kWithUnits, s.n, s.k)) << s.n << " x " << s.k;
    EXPECT_FALSE(too_small(config_of("auto"), kEmulated, s.n, s.k)) << s.n << " x " << s.k;
    EXPECT_EQ(too_small(config_of("auto"), kWithUnits, s.n, s.k).has_value(), s.stays);
  }
}

TEST(MinGain, verdict_says_why_and_what_to_do) {
  const auto verdict = too_small(config_of("torchao"), kEmulated, 768, 3072);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->level, uint32_t{OCTAVO_LEVEL_LAYER});
  EXPECT_EQ(verdict->decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(verdict->reason, uint32_t{OCTAVO_REASON_TOO_SMALL});
  EXPECT_STREQ(reason_name(verdict->reason), "too-small");
  EXPECT_EQ(verdict->text,
            "runs in the host: with N = 768 and K = 3072 it is too small to be faster in FP8");
  EXPECT_EQ(verdict->evidence,
            "K <= 4096 with N <= 1024 is not converted: layers.min_gain = \"torchao\", override");
  EXPECT_EQ(verdict->remedy.text, "set layers.min_gain = \"off\" to run the layer in FP8");
}

class MinGainRun : public testing::Test {
 protected:
  void SetUp() override { put_fake(dir, "plugins"); }
  Request &request(const std::string &toml) {
    return request_.text("plugins.trust = \"dev\"\nfp8.backend = \"fake\"\n" + toml)
        .plugins(dir / "plugins");
  }
  // A weight of 512 x 512, one of 2048 x 512, and a linear on each; the small one's answer.
  static Answer add_layers(octavo_run *run) {
    EXPECT_EQ(add_weight(run, "small.weight", 512, 512).id, 0u);
    EXPECT_EQ(add_weight(run, "large.weight", 2048, 512).id, 1u);
    const Answer small = add_linear(run, "small", 0);
    const Answer large = add_linear(run, "large", 1);
    EXPECT_EQ(large.verdict.decision, uint32_t{OCTAVO_ACCEPT});
    EXPECT_EQ(large.id, small.id == OCTAVO_NONE ? 0u : 1u) << "a declined linear uses up no id";
    EXPECT_EQ(octavo_seal(run), OCTAVO_OK);
    return small;
  }

  Environment environment;
  TempDir dir;
  Request request_;
  RunPtr run;
};

TEST_F(MinGainRun, small_linear_stays_and_the_report_says_so) {
  ASSERT_EQ(request("[layers]\nmin_gain = \"torchao\"").open(run), OCTAVO_OK)
      << request_.host.error();
  const Answer small = add_layers(run.get());
  EXPECT_EQ(small.status, OCTAVO_OK);
  EXPECT_EQ(small.id, OCTAVO_NONE);
  EXPECT_EQ(small.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(small.verdict.reason, uint32_t{OCTAVO_REASON_TOO_SMALL});
  EXPECT_THAT(text_of(small.verdict.evidence), HasSubstr("octavo.toml:4:1"));
  std::string out;
  ASSERT_EQ(octavo_report(run.get(), OCTAVO_STR("json"), Request::append_line, &out), OCTAVO_OK);
  const json j = json::parse(out);
  EXPECT_EQ(j["layers"][0]["placed"], "host");
  EXPECT_EQ(j["layers"][0]["verdict"]["reason"], "too-small");
  EXPECT_EQ(j["layers"][1]["placed"], "fp8");
  EXPECT_EQ(j["min_gain"]["effect"], "linears of K <= 4096 with N <= 1024 are not converted");
}

TEST_F(MinGainRun, emulated_fp8_runs_every_size_by_default) {
  ASSERT_EQ(request("").open(run), OCTAVO_OK) << request_.host.error();
  EXPECT_EQ(add_layers(run.get()).id, 0u);
  std::string out;
  ASSERT_EQ(request_.print(octavo_explain, "text", out), OCTAVO_OK);
  EXPECT_THAT(out, HasSubstr("min_gain   auto (default): no layer is left out for speed: FP8 is "
                             "emulated on this device\n"));
}

TEST_F(MinGainRun, skip_is_named_before_size) {
  ASSERT_EQ(request("[layers]\nmin_gain = \"torchao\"\nskip = [\"small\"]").open(run), OCTAVO_OK);
  EXPECT_EQ(add_weight(run.get(), "w", 2048, 512).id, 0u);
  EXPECT_EQ(add_linear(run.get(), "small", 0).verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
}

octavo_status describe_units(void *ctx, octavo_kernels_caps *out) {
  const octavo_status status = octavo_cpu_kernels()->describe(ctx, out);
  out->flags &= ~uint64_t{OCTAVO_CAPS_EMULATED};
  return status;
}

// The CPU's kernels in the role of a device with FP8 units: "auto" filters, "off" does not.
TEST_F(MinGainRun, auto_filters_on_a_device_with_fp8_units) {
  for (const std::string value : {"auto", "off"}) {
    auto host = std::make_unique<octavo_host>(*request_.host.get());
    const octavo_open_desc desc = request("[layers]\nmin_gain = \"" + value + "\"").desc();
    Negotiation n = prepare(desc);
    negotiate(n, desc, host.get());
    ASSERT_NE(n.choice(), nullptr) << refusal(n);
    octavo_kernels kernels = *octavo_cpu_kernels();
    kernels.describe = describe_units;
    n.device = std::make_unique<OpenDevice>(octavo_device{OCTAVO_DEVICE_CPU, 0}, kernels, nullptr,
                                            host.get());
    run.reset(open_handle(std::make_unique<octavo_run>(std::move(n), std::move(host))));
    const Answer small = add_layers(run.get());
    EXPECT_EQ(small.id == OCTAVO_NONE, value == "auto");
    EXPECT_EQ(small.verdict.reason,
              uint32_t{value == "auto" ? OCTAVO_REASON_TOO_SMALL : OCTAVO_REASON_NONE});
    std::string out;
    ASSERT_EQ(octavo_report(run.get(), OCTAVO_STR("text"), Request::append_line, &out), OCTAVO_OK);
    EXPECT_THAT(out, HasSubstr(value == "auto" ? "with N = 512 and K = 512" : "min_gain   off"));
  }
}

}  // namespace
}  // namespace octavo::test
