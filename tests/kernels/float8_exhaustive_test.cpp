/* All 2^32 fp32 patterns through kernels/format and through quantize, against exact integers.
 *
 * NaN is compared by its contract (7F with the sign of the input), everything else by the oracle.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/kernels/exact_encoder.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

constexpr uint64_t kPatterns = uint64_t{1} << 32;
constexpr int64_t kChunk = 1 << 16;

/* The number of wrong codes among the patterns [begin, end). */
uint64_t count_wrong(Kernels *kernels, uint32_t dtype, uint64_t begin, uint64_t end) {
  const bool is_e4m3 = dtype == OCTAVO_E4M3FN;
  const SmallFormat format = is_e4m3 ? kE4m3 : kE5m2;
  Matrix in(OCTAVO_F32, 1, kChunk);
  Matrix out(dtype, 1, kChunk);
  const float scale = 1.0f;
  float scale_inv = 0.0f;
  const octavo_scale out_scale_inv = per_tensor(&scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_scale_inv = &out_scale_inv;
  c.scale = &scale;
  uint64_t wrong = 0;
  for (uint64_t first = begin; first < end; first += kChunk) {
    for (int64_t i = 0; i < kChunk; ++i) {
      const uint32_t bits = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
      std::memcpy(in.at(0, i), &bits, sizeof(bits));
    }
    if (kernels->quantize(c) != OCTAVO_OK) return kPatterns;
    for (int64_t i = 0; i < kChunk; ++i) {
      const uint32_t bits = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
      const bool is_nan_input = (bits & 0x7FFFFFFF) > 0x7F800000;
      const uint32_t expected =
          is_nan_input ? (bits >> 31 << 7 | 0x7F) : exact_encode(format, bits);
      const float value = bits_float(static_cast<int32_t>(bits));
      const uint8_t code = is_e4m3 ? encode_e4m3(value) : encode_e5m2(value);
      if (code != expected || out.code(0, i) != expected) ++wrong;
    }
  }
  return wrong;
}

uint64_t count_all_wrong(uint32_t dtype) {
  Kernels kernels(0);
  constexpr uint64_t kThreads = 4;
  std::atomic<uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      wrong +=
          count_wrong(&kernels, dtype, kPatterns / kThreads * t, kPatterns / kThreads * (t + 1));
    });
  }
  for (std::thread &thread : threads) thread.join();
  return wrong;
}

TEST(Float8Exhaustive, e4m3_equals_exact_integers_everywhere) {
  EXPECT_EQ(count_all_wrong(OCTAVO_E4M3FN), 0u);
}

TEST(Float8Exhaustive, e5m2_equals_exact_integers_everywhere) {
  EXPECT_EQ(count_all_wrong(OCTAVO_E5M2), 0u);
}

}  // namespace
}  // namespace octavo::test
