/* Every level gives the bytes of the baseline, function by function of its table.
 *
 * All codes, all halves, patterns of fp32 with those around every tie of a cast, odd sizes. A scale
 * is never NaN here: which of two NaN a product passes on is the compiler's choice.
 * levels_sums_test.cpp has products and sums, adam_levels_test.cpp fused Adam steps.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/kernels.h"
#include "tests/kernels/levels.h"

namespace octavo::test {
namespace {

constexpr uint32_t kDtypes[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr int64_t kSizes[] = {1, 15, 17, 63, 65, 217};
constexpr float kScales[] = {1.0f, 13.7f, 0x1p-20f, 0x1p30f, 3e38f, 1e-45f};

int64_t width_of(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) / 8;
}

/* Random patterns, and those next to every number at which a cast to 8 bits changes its result. */
std::vector<float> floats() {
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 1e-45f, kFloatMax};
  for (const auto decode : {&decode_e4m3, &decode_e5m2}) {
    for (int code = 0; code < 126; ++code) {
      const float value = decode(static_cast<uint8_t>(code));
      const float tie = value + (decode(static_cast<uint8_t>(code + 1)) - value) / 2;
      for (const float near : {value, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
        values.push_back(near);
        values.push_back(-near);
      }
    }
  }
  std::mt19937 random(5);
  while (values.size() < 20000) {
    values.push_back(bits_float(static_cast<int32_t>(random())));
    values.push_back(std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -36));
  }
  return values;
}

/* Of f32: floats(); else every pattern, those of 8 bits several times. `count` of them, or all. */
Bytes patterns(uint32_t dtype, int64_t count = 0) {
  static const std::vector<float> of_f32 = floats();
  Bytes bytes(dtype == OCTAVO_F32 ? of_f32.size() * 4 : size_t{1} << 17);
  if (dtype == OCTAVO_F32) std::memcpy(bytes.data(), of_f32.data(), bytes.size());
  for (size_t i = 0; dtype != OCTAVO_F32 && i < bytes.size(); ++i) {
    const size_t pattern = width_of(dtype) == 1 ? i : (i / 2) >> (i % 2 * 8);
    bytes[i] = static_cast<uint8_t>(pattern);
  }
  if (count > 0) bytes.resize(static_cast<size_t>(count * width_of(dtype)));
  return bytes;
}

void append_stats(Bytes *bytes, const ValueStats &stats) {
  append(bytes, &stats.amax_bits, 1);
  bytes->push_back(stats.nonfinite ? 1 : 0);
}

TEST(Levels, load_and_store) {
  for (const uint32_t dtype : kDtypes) {
    const Bytes in = patterns(dtype);
    const auto n = static_cast<int64_t>(in.size()) / width_of(dtype);
    expect_equal_levels([&](const Level &level, Bytes *out) {
      std::vector<float> values(static_cast<size_t>(n));
      level.load(dtype, in.data(), n, values.data());
      append(out, values.data(), values.size());
      for (const int64_t size : kSizes) {
        level.load(dtype, in.data() + width_of(dtype), size, values.data());
        append(out, values.data(), static_cast<size_t>(size) + 1);
      }
    });
  }
  const std::vector<float> values = floats();
  for (const uint32_t dtype : kPlain) {
    expect_equal_levels([&](const Level &level, Bytes *out) {
      constexpr int64_t kFirst = 217; /* the sizes begin before it */
      const int64_t width = width_of(dtype), n = static_cast<int64_t>(values.size());
      out->resize(static_cast<size_t>((kFirst + n) * width));
      for (const int64_t size : kSizes)
        level.store(dtype, values.data(), size, out->data() + size * width);
      level.store(dtype, values.data(), n, out->data() + kFirst * width);
    });
  }
}

TEST(Levels, casts_with_one_scale) {
  for (const uint32_t in_dtype : kDtypes) {
    const Bytes in = patterns(in_dtype);
    const auto n = static_cast<int64_t>(in.size()) / width_of(in_dtype);
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
      for (const float scale : kScales) {
        expect_equal_levels([&](const Level &level, Bytes *out) {
          Bytes codes(static_cast<size_t>(n * width_of(dtype)));
          append_stats(out,
                       level.casts.quantize(in_dtype, dtype, in.data(), n, scale, codes.data()));
          append(out, codes.data(), codes.size());
          append_stats(out, level.casts.quantize_past_caches(in_dtype, dtype, in.data(), n - 1,
                                                             scale, codes.data()));
          append(out, codes.data(), codes.size());
          for (const int64_t size : kSizes) {
            const uint8_t *from = in.data() + size * width_of(in_dtype);
            append_stats(out,
                         level.casts.quantize(in_dtype, dtype, from, size, scale, codes.data()));
            append(out, codes.data(), static_cast<size_t>(size * width_of(dtype)));
          }
        });
      }
    }
  }
}

TEST(Levels, casts_with_many_scales) {
  constexpr int64_t kCount = 16384 + 77;
  std::vector<float> scales(kCount);
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = std::ldexp(i % 611 == 7 ? -1.7f : 1.3f, static_cast<int>(i % 40) - 20);
    if (i % 997 == 5) scales[i] = i % 2 == 0 ? 0.0f : INFINITY;
  }
  for (const uint32_t in_dtype : kPlain) {
    const Bytes in = patterns(in_dtype, kCount);
    for (const uint32_t dtype : kCodes) {
      expect_equal_levels([&](const Level &level, Bytes *out) {
        out->resize(3 * kCount);
        level.casts.quantize_each(in_dtype, dtype, in.data(), kCount, scales.data(), out->data());
        uint8_t *to = out->data() + kCount;
        for (const int64_t length : {32, 128}) {
          level.casts.quantize_blocks(in_dtype, dtype, in.data(), kCount, length, scales.data(),
                                      to);
          to += kCount;
        }
      });
    }
  }
}

TEST(Levels, measures) {
  for (const uint32_t dtype : kDtypes) {
    const Bytes in = patterns(dtype);
    for (const int64_t first : {0, 512, 9000}) {
      for (const int64_t n : {64, 217, 4096, 9001}) {
        expect_equal_levels([&](const Level &level, Bytes *out) {
          const uint8_t *from = in.data() + first * width_of(dtype);
          append_stats(out, level.casts.measure(dtype, from, n));
          for (const int64_t length : {32, 128}) {
            std::vector<int32_t> amax(static_cast<size_t>((n + length - 1) / length));
            append_stats(out, level.casts.measure_blocks(dtype, from, n, length, amax.data()));
            append(out, amax.data(), amax.size());
          }
          std::vector<int32_t> each(static_cast<size_t>(n), 0x3F000000);
          level.casts.measure_each(dtype, from, n, each.data());
          append(out, each.data(), each.size());
        });
      }
    }
  }
}

TEST(Levels, transposes_and_look_ups) {
  const Bytes in = patterns(OCTAVO_E4M3FN);
  for (const int64_t rows : {1, 16, 31, 64, 130}) {
    for (const int64_t cols : {1, 16, 33, 64}) {
      expect_equal_levels([&](const Level &level, Bytes *out) {
        out->assign(static_cast<size_t>(cols * (rows + 3)), 0xC3);
        level.casts.transpose(in.data() + 5, 101, rows, cols, out->data(), rows + 3, rows % 2 == 0);
      });
    }
  }
  uint16_t table[256];
  for (int code = 0; code < 256; ++code) {
    const int entry = (code & 0x7F) * 0x1B3 ^ (code % 3 == 0 ? 0x8000 : 0);
    table[code] = code < 128 ? static_cast<uint16_t>(entry) : table[code - 128] ^ 0x8000;
  }
  for_other_levels([&](const Level &level) {
    if (level.casts.look_up == nullptr) return;
    for (const int64_t n : {1, 15, 64, 217, 5000}) {
      std::vector<uint16_t> out(static_cast<size_t>(n));
      level.casts.look_up(table, in.data() + 1, n, out.data(), n == 5000);
      for (size_t at = 0; at < out.size(); ++at) ASSERT_EQ(out[at], table[in[at + 1]]) << at;
    }
  });
}

}  // namespace
}  // namespace octavo::test
