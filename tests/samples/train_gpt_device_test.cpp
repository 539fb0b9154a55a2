// Trainings on kernels of third parties: a device that liboctavo knows nothing of but its manifest.
#include <gmock/gmock.h>

#include "tests/samples/replica_group.h"

namespace gpt {
namespace {

using testing::HasSubstr;

// Before the first run, whose options are the whole configuration but for this.
class ThirdParties : public testing::Environment {
 public:
  void SetUp() override { setenv("OCTAVO_PLUGIN_PATH", OCTAVO_DEVICES_DIR, 1); }
};
const auto *const third_parties = testing::AddGlobalTestEnvironment(new ThirdParties);

Options on(const std::string &device, const std::string &kernels = "auto",
           const std::string &layers = "[]") {
  Options options = tiny();
  options.steps = 4;
  options.device = device;
  options.fused = Fused::kNo;  // the least table has no prologue
  options.config = gpt_test::test_directory() + "/octavo.toml";
  gpt_test::write_text(
      options.config, "layers.min_gain = \"off\"\nlayers.skip = []\ndevice.kernels = \"" + kernels +
                          "\"\ndevice.layers = " + layers + "\n");
  return options;
}

void expect_numbers_of_cpu(const char *run, const std::string &device, const std::string &kernels,
                           const std::string &reported) {
  const RunResult cpu = train_once(on("cpu"), run, 1);
  const RunResult other = train_once(on(device, kernels), run, 1);
  ASSERT_EQ(other.steps.size(), 4u);
  EXPECT_EQ(numbers(other), numbers(cpu)) << run;
  EXPECT_THAT(other.report, HasSubstr(reported));
  for (const Placement &p : other.placements) EXPECT_EQ(p.where, other.backend) << p.layer;
}

// The first device that they accept is the second one.
TEST(Devices, all_backends_train_on_a_whole_table) {
  for (const char *run : {"te:recipe=delayed,telemetry=true", "te:recipe=current", "te:recipe=mx",
                          "msamp:opt_level=O1", "msamp:opt_level=O3"})
    expect_numbers_of_cpu(run, "npu", "kernels-npu", "npu:1 (fake), kernels kernels-npu");
}

// Bit-equal: what the contract leaves open, the order of a product's additions, is as on the CPU.
TEST(Devices, the_least_table_trains_current_scaling) {
  expect_numbers_of_cpu("te:recipe=current", "npu", "kernels_plugin",
                        "npu:0 (a stand-in on the CPU), kernels kernels_plugin");
}

TEST(Devices, kernels_of_the_cpu_are_replaced_where_device_kernels_names_others) {
  expect_numbers_of_cpu("te:recipe=delayed", "cpu", "kernels-cpu2",
                        "cpu:0 (fake), kernels kernels-cpu2");
}

std::string refusal(const std::string &run, const std::string &device, const std::string &kernels) {
  try {
    train_once(on(device, kernels), run, 1);
  } catch (const std::exception &e) {
    return e.what();
  }
  return "it trained";
}

TEST(Devices, what_kernels_lack_is_refused_by_name_before_the_first_step) {
  EXPECT_THAT(refusal("te:recipe=delayed", "npu", "kernels_plugin"),
              HasSubstr("lack a call of the backend\n    found: delayed_scale_update: "
                        "kernels_plugin does not have it"));
  EXPECT_THAT(refusal("te:recipe=mx", "npu", "kernels_plugin"),
              HasSubstr("lack a product of the recipe"));
  const std::string msamp = refusal("msamp:opt_level=O2", "npu", "kernels_plugin");
  EXPECT_THAT(msamp, HasSubstr("float16 with scales of tensors: kernels_plugin does not have"));
  EXPECT_THAT(msamp, HasSubstr("adam_step: kernels_plugin does not have it"));
}

TEST(Devices, the_program_takes_any_kind) {
  const char *words[] = {"train_gpt", "--device", "npu"};
  Options options;
  ASSERT_TRUE(parse_options(3, const_cast<char **>(words), options));
  EXPECT_EQ(options.device, "npu");
}

// In the order of the search, which is that of names: kernels-broken refuses every device.
TEST(Devices, auto_asks_one_after_the_other_and_says_who_answered_what) {
  const RunResult found = train_once(on("npu"), "te:recipe=current", 1);
  EXPECT_THAT(found.report, HasSubstr("npu:1 (fake), kernels kernels-npu"));
  EXPECT_THAT(refusal("te:recipe=current", "npu", "kernels-broken"),
              HasSubstr("kernels kernels-broken: it is broken\n    found: fake"));
  EXPECT_THAT(refusal("te:recipe=current", "nqu", "auto"), HasSubstr("did you mean \"npu\"?"));
}

// The number format of the sample int8_kernels, which no kernels have: its layer brings it to each.
TEST(DeviceLayers, a_backend_trains_on_the_layer_that_it_requires_on_every_device) {
  expect_numbers_of_cpu("int8", "npu", "kernels-npu", "npu:1 (fake), kernels int8 on kernels-npu");
  expect_numbers_of_cpu("int8", "cpu", "kernels-cpu2", "kernels int8 on kernels-cpu2");
}

TEST(DeviceLayers, int8_trains_nearly_as_float32_does) {
  Options options = on("cpu");
  options.steps = 40;
  const RunResult exact = train_once(options, "fp32", 1), int8 = train_once(options, "int8", 1);
  const double first = exact.steps.front().loss, last = exact.steps.back().loss;
  EXPECT_LT(last, first - 1);
  // Casts err by half a step of 127 or more to the largest of a block, so by 0.4 to 0.8 % of it.
  EXPECT_NEAR(int8.steps.back().loss, last, 0.02 * first);
  EXPECT_NE(int8.steps.back().loss, last);
}

// Nothing that the kernels below execute changes: tables of octavo/draft are passed on, too.
TEST(DeviceLayers, what_passes_through_one_has_the_same_bits) {
  for (const char *run : {"te:recipe=delayed,telemetry=true", "te:recipe=mx", "msamp:opt_level=O3"})
    for (const char *kernels : {"auto", "kernels-npu"}) {
      const std::string device = std::string(kernels) == "auto" ? "cpu" : "npu";
      const RunResult bare = train_once(on(device, kernels), run, 1);
      const RunResult layered = train_once(on(device, kernels, "[\"int8\"]"), run, 1);
      EXPECT_EQ(numbers(layered), numbers(bare)) << run;
      EXPECT_THAT(layered.report, HasSubstr("kernels int8 on "));
      EXPECT_THAT(bare.report, testing::Not(HasSubstr("kernels int8 on ")));
    }
}

TEST(DeviceLayers, what_the_kernels_below_lack_is_refused_by_name) {
  EXPECT_THAT(refusal("int8", "npu", "kernels_plugin"),
              HasSubstr("layer int8 on kernels_plugin: expected kernels with dequantize, which "
                        "converts dtypes for it\n    found: kernels_plugin does not have it"));
}

}  // namespace
}  // namespace gpt
