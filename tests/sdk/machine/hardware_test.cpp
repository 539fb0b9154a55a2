// What this machine has, as liboctavo reads it.
#include "sdk/src/machine/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

TEST(Hardware, this_machine_has_cores_and_memory) {
  const Hardware hw = read_hardware();
  EXPECT_GE(hw.cores, 1u);
  EXPECT_GT(hw.memory_bytes, uint64_t{1} << 20);
  EXPECT_FALSE(hw.cuda_text.empty());
}

TEST(Hardware, gpus_on_the_bus_are_nvidias_and_draw_or_compute) {
  const test::TempDir dir;
  EXPECT_EQ(count_bus_gpus(dir.path() + "/absent"), 0u);
  const auto device = [&](const std::string &name, const char *vendor, const char *kind) {
    std::filesystem::create_directory(dir.path() + "/" + name);
    dir.write(name + "/vendor", vendor);
    dir.write(name + "/class", kind);
  };
  device("0000:00:02.0", "0x8086\n", "0x030000\n");  // another vendor's
  device("0000:01:00.1", "0x10de\n", "0x040300\n");  // the sound of a GPU
  EXPECT_EQ(count_bus_gpus(dir.path()), 0u);
  device("0000:01:00.0", "0x10de\n", "0x030000\n");
  device("0000:41:00.0", "0x10de\n", "0x030200\n");
  std::filesystem::create_directory(dir.path() + "/0000:42:00.0");
  EXPECT_EQ(count_bus_gpus(dir.path()), 2u);
}

}  // namespace
}  // namespace octavo
