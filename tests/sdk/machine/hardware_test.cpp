// What this machine has, as liboctavo reads it.
#include "sdk/src/machine/hardware.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Hardware, this_machine_has_cores_and_memory) {
  const Hardware hw = read_hardware();
  EXPECT_GE(hw.cores, 1u);
  EXPECT_GT(hw.memory_bytes, uint64_t{1} << 20);
  EXPECT_FALSE(hw.cuda_text.empty());
}

}  // namespace
}  // namespace octavo
