/* fp32 patterns through kernels/format and through quantize on every level that the machine has,
 * against exact integers: in tests/soak.py all 2^32, otherwise the 2^30 of the chunks on both sides
 * of each value between two codes.
 *
 * NaN is compared by its contract (7F with the sign of the input), everything else by the oracle.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/exact_encoder.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/seed.h"

namespace octavo::test {
namespace {

constexpr uint64_t kPatterns = uint64_t{1} << 32;
constexpr int64_t kChunk = 1 << 16;

/* What quantize must give for kChunk patterns. */
struct Expected {
  std::vector<uint8_t> codes;
  float amax;
  uint64_t wrong; /* codes of kernels/format that differ from the oracle's */
};

Expected expect_chunk(uint32_t dtype, uint64_t first) {
  const bool is_e4m3 = dtype == OCTAVO_E4M3FN;
  const SmallFormat format = is_e4m3 ? kE4m3 : kE5m2;
  Expected expected = {std::vector<uint8_t>(kChunk), 0.0f, 0};
  for (int64_t i = 0; i < kChunk; ++i) {
    const uint32_t bits = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
    const bool is_nan_input = (bits & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t exact = is_nan_input ? (bits >> 31 << 7 | 0x7F) : exact_encode(format, bits);
    const float value = bits_float(static_cast<int32_t>(bits));
    const uint8_t code = is_e4m3 ? encode_e4m3(value) : encode_e5m2(value);
    if (code != exact) ++expected.wrong;
    expected.codes[static_cast<size_t>(i)] = static_cast<uint8_t>(exact);
    if (!is_nan_input && std::fabs(value) > expected.amax) expected.amax = std::fabs(value);
  }
  return expected;
}

/* The number of chunks among the patterns [begin, end) that some level, or kernels/format, gets
 * wrong in a code or in amax. */
uint64_t count_wrong(const std::vector<std::unique_ptr<Kernels>> &levels, uint32_t dtype,
                     uint64_t begin, uint64_t end) {
  Matrix in(OCTAVO_F32, 1, kChunk);
  Matrix out(dtype, 1, kChunk);
  const float scale = 1.0f;
  float scale_inv = 0.0f;
  float amax = 0.0f;
  const octavo_scale out_scale_inv = per_tensor(&scale_inv);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = in.tensor();
  c.out = out.tensor();
  c.out_scale_inv = &out_scale_inv;
  c.scale = &scale;
  c.amax = &amax;
  uint64_t wrong = 0;
  const auto stride = static_cast<uint64_t>(stride_or(8));
  for (uint64_t first = begin; first < end; first += kChunk) {
    if ((first / kChunk + 1) % stride > 1) continue;
    for (int64_t i = 0; i < kChunk; ++i) {
      const uint32_t bits = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
      std::memcpy(in.at(0, i), &bits, sizeof(bits));
    }
    const Expected expected = expect_chunk(dtype, first);
    bool is_wrong = expected.wrong > 0;
    for (const auto &kernels : levels) {
      amax = 0.0f;
      std::memset(out.at(0, 0), 0xA5, static_cast<size_t>(kChunk));
      is_wrong = is_wrong || kernels->quantize(c) != OCTAVO_OK || out.data() != expected.codes ||
                 amax != expected.amax;
    }
    if (is_wrong) ++wrong;
  }
  return wrong;
}

uint64_t count_all_wrong(uint32_t dtype) {
  std::vector<std::unique_ptr<Kernels>> levels;
  for (const std::string &level : supported_levels()) {
    levels.push_back(std::make_unique<Kernels>(0, level));
  }
  constexpr uint64_t kThreads = 4;
  std::atomic<uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      wrong += count_wrong(levels, dtype, kPatterns / kThreads * t, kPatterns / kThreads * (t + 1));
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
