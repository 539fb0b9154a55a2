// complete(): a kernels table that is old or has gaps answers OCTAVO_UNSUPPORTED, and never
// crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "sdk/src/plugin/loader.h"

namespace octavo {
namespace {

octavo_status copy(void *, const octavo_copy *) {
  return OCTAVO_OK;
}

TEST(CompleteKernelsTest, gaps_and_a_short_table_are_filled) {
  octavo_kernels given{};
  given.kind = OCTAVO_KIND_KERNELS;
  given.copy = copy;
  // An old provider: what follows its size is not read.
  given.size = OCTAVO_SIZE_THROUGH(octavo_kernels, copy);
  given.pack = [](void *, const octavo_pack *) -> octavo_status { return OCTAVO_INTERNAL; };
  const octavo_kernels t = complete(given);
  EXPECT_EQ(t.size, sizeof(octavo_kernels));
  EXPECT_EQ(t.copy, copy);
  const auto calls = [](auto... functions) { return std::array{functions(nullptr, nullptr)...}; };
  EXPECT_THAT(calls(t.describe, t.quantize, t.dequantize, t.compute_amax, t.scale_from_amax,
                    t.delayed_scale_update, t.gemm, t.sum_rows, t.quantize_stats, t.prologue,
                    t.prologue_quantize, t.pack),
              testing::Each(OCTAVO_UNSUPPORTED));
  EXPECT_EQ(t.probe_device({OCTAVO_DEVICE_CPU, 0}, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.open_device({OCTAVO_DEVICE_CPU, 0}, nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.workspace_bytes(nullptr, nullptr, nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(t.get_extension(nullptr, octavo_str{nullptr, 0}), nullptr);
  t.close_device(nullptr);
}

// A new function of a table must be filled, too: no pointer of a completed table is null.
template <typename Table>
class CompleteTest : public testing::Test {};
using Tables =
    testing::Types<octavo_backend, octavo_optimizer, octavo_gradients, octavo_fused, octavo_grouped,
                   octavo_shard, octavo_kernels, octavo_memory, octavo_layer>;
TYPED_TEST_SUITE(CompleteTest, Tables);

TYPED_TEST(CompleteTest, no_function_is_null) {
  TypeParam given{};
  given.size = OCTAVO_SIZE_THROUGH(TypeParam, kind);
  const TypeParam t = complete(given);
  const auto *bytes = reinterpret_cast<const unsigned char *>(&t);
  const bool ends_with_calls = std::is_same_v<TypeParam, octavo_layer>;  // which are a table
  for (size_t at = 8; at < sizeof(t) - ends_with_calls * sizeof(void *); at += sizeof(void *)) {
    uint64_t function = 0;
    std::memcpy(&function, bytes + at, sizeof(function));
    EXPECT_NE(function, 0u) << "offset " << at;
  }
}

TYPED_TEST(CompleteTest, a_whole_table_stays_and_an_empty_one_lacks_what_must_be_there) {
  TypeParam given{};
  EXPECT_FALSE(missing_functions(given).empty()) << "a size of zero has no function";
  given.size = sizeof(given);
  const size_t all = missing_functions(given).size();
  EXPECT_EQ(all, missing_functions(TypeParam{}).size());
  std::memset(reinterpret_cast<unsigned char *>(&given) + 8, 0x11, sizeof(given) - 8);
  EXPECT_THAT(missing_functions(given), testing::IsEmpty());
  const TypeParam t = complete(given);
  EXPECT_EQ(std::memcmp(&t, &given, sizeof(t)), 0);
}

}  // namespace
}  // namespace octavo
