// complete(): a kernels table that is old or has gaps answers OCTAVO_UNSUPPORTED, and never
// crashes.
#include <gtest/gtest.h>

#include <cstring>

#include "sdk/src/loader.h"

namespace octavo {
namespace {

octavo_status copy(void *, const octavo_copy *) {
  return OCTAVO_OK;
}

TEST(CompleteKernelsTest, gaps_and_a_short_table_are_filled) {
  octavo_kernels given{};
  given.kind = OCTAVO_KIND_KERNELS;
  given.copy = copy;
  // An old provider: what lies behind its size is not looked at.
  given.size = OCTAVO_SIZE_THROUGH(octavo_kernels, copy);
  given.scale_values = [](void *, const octavo_scale_values *) -> octavo_status {
    return OCTAVO_INTERNAL;
  };
  const octavo_kernels t = complete(given);
  EXPECT_EQ(t.size, sizeof(octavo_kernels));
  EXPECT_EQ(t.copy, copy);
  EXPECT_EQ(t.scale_values(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.prescale_update(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.quantize_stats(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.prologue(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.prologue_quantize(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.gradient_scale(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.pack(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.probe_device({OCTAVO_DEVICE_CPU, 0}, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.open_device({OCTAVO_DEVICE_CPU, 0}, nullptr, nullptr), OCTAVO_UNSUPPORTED);
  t.close_device(nullptr);
  EXPECT_EQ(t.describe(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.workspace_bytes(nullptr, nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.quantize(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.dequantize(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.compute_amax(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.scale_from_amax(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.delayed_scale_update(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.gemm(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.adam_step(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.sum_quantized(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.sum_rows(nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.sum_of_squares(nullptr, nullptr), OCTAVO_UNSUPPORTED);
}

// A new function of a table must be filled, too: no pointer of a completed table is null.
template <typename Table>
class CompleteTest : public testing::Test {};
using Tables = testing::Types<octavo_backend, octavo_optimizer, octavo_gradients, octavo_fused,
                              octavo_kernels>;
TYPED_TEST_SUITE(CompleteTest, Tables);

TYPED_TEST(CompleteTest, no_function_is_null) {
  TypeParam given{};
  given.size = OCTAVO_SIZE_THROUGH(TypeParam, kind);
  const TypeParam t = complete(given);
  const auto *bytes = reinterpret_cast<const unsigned char *>(&t);
  for (size_t at = 8; at < sizeof(t); at += sizeof(void *)) {
    uint64_t function = 0;
    std::memcpy(&function, bytes + at, sizeof(function));
    EXPECT_NE(function, 0u) << "offset " << at;
  }
}

}  // namespace
}  // namespace octavo
