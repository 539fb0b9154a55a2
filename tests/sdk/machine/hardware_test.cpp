// What a GPU must have before FP8 runs on it: the first thing that is wrong is
// reported.
#include "sdk/src/machine/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Hardware healthy() {
  Hardware hw;
  hw.cuda_driver = true;
  hw.cuda_version = 12040;
  hw.driver_version = "550.54.14";
  hw.cuda_text = "driver for CUDA 12.4";
  hw.cuda_devices = {{0, "H100", 9, 0, uint64_t{80} << 30, uint64_t{79} << 30}};
  return hw;
}

struct Broken {
  const char *what;
  uint32_t reason;
  void (*damage)(Hardware &hw);
  const char *text;
  const char *evidence;
};

TEST(Hardware, nothing_is_refused_on_a_gpu_with_fp8_units) {
  EXPECT_FALSE(refuse_cuda(healthy()));
  Hardware two = healthy();
  two.cuda_devices.insert(two.cuda_devices.begin(), {0, "A100", 8, 0, 1 << 30, 1 << 30});
  EXPECT_FALSE(refuse_cuda(two)) << "one of them is enough";
  Hardware ada = healthy();
  ada.cuda_devices[0].capability_major = 8;
  ada.cuda_devices[0].capability_minor = 9;
  EXPECT_FALSE(refuse_cuda(ada));
}

TEST(Hardware, what_is_missing_is_named) {
  const Broken cases[] = {
      {"driver", OCTAVO_REASON_DRIVER,
       [](Hardware &hw) {
         hw.cuda_driver = false;
         hw.cuda_text = "no driver: libcuda.so.1 was not found";
       },
       "offers no CUDA device", "libcuda.so.1 was not found, version 550.54.14"},
      {"version", OCTAVO_REASON_DRIVER, [](Hardware &hw) { hw.cuda_version = 11080; },
       "the driver is too old", "version 550.54.14"},
      {"devices", OCTAVO_REASON_DEVICE, [](Hardware &hw) { hw.cuda_devices.clear(); },
       "offers no CUDA device", "driver for CUDA 12.4"},
      {"instance", OCTAVO_REASON_DEVICE,
       [](Hardware &hw) {
         hw.cuda_devices.clear();
         hw.mig_devices = 2;
       },
       "is in MIG mode", "2 GPU(s) in MIG mode"},
      {"capability", OCTAVO_REASON_DEVICE,
       [](Hardware &hw) { hw.cuda_devices[0].capability_major = 8; }, "no GPU here has FP8 units",
       "GPU 0: H100, capability 8.0"},
      {"memory", OCTAVO_REASON_DEVICE,
       [](Hardware &hw) { hw.cuda_devices[0].free_bytes = 3 << 20; }, "512 MiB of free memory",
       "3 of 81920 MiB free"},
  };
  for (const Broken &c : cases) {
    Hardware hw = healthy();
    c.damage(hw);
    std::string repair;
    const std::optional<Verdict> v = refuse_cuda(hw, &repair);
    ASSERT_TRUE(v) << c.what;
    EXPECT_EQ(v->reason, c.reason) << c.what;
    EXPECT_EQ(v->level, uint32_t{OCTAVO_LEVEL_DEVICE});
    EXPECT_THAT(v->text, HasSubstr(c.text)) << c.what;
    EXPECT_THAT(v->evidence, HasSubstr(c.evidence)) << c.what;
    EXPECT_THAT(v->remedy.text, StartsWith("set device.kind = \"cpu\" or \"auto\"")) << c.what;
    // What no driver and no setting brings has no repair.
    EXPECT_EQ(repair.empty(), v->remedy.text.find(", or ") == std::string::npos) << c.what;
    EXPECT_THAT(v->remedy.text, HasSubstr(repair)) << c.what;
  }
}

TEST(Hardware, this_machine_has_cores_and_memory) {
  const Hardware hw = read_hardware();
  EXPECT_GE(hw.cores, 1u);
  EXPECT_GT(hw.memory_bytes, uint64_t{1} << 20);
  EXPECT_FALSE(hw.cuda_text.empty());
}

}  // namespace
}  // namespace octavo
