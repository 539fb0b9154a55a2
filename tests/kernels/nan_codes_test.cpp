/* The code of a NaN and the amax next to one, on every level: for every cast, granularity and
 * format, whatever made it NaN and wherever the element is.
 *
 * The oracle is the rule itself: an element whose product is NaN has the code 7F (7E00 in f16) with
 * the sign bit of the element.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kRows = 35;
constexpr int64_t kCols = 171; /* whole vectors of every level, and what is left of them */
constexpr uint32_t kInputs[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};

/* The bits of an element, and of one that is NaN. */
uint32_t bits_at(const Matrix &m, int64_t row, int64_t col) {
  uint32_t bits = 0;
  std::memcpy(&bits, m.at(row, col), OCTAVO_DTYPE_BITS(m.dtype()) / 8);
  return bits;
}

uint32_t sign_of(const Matrix &m, int64_t row, int64_t col) {
  return bits_at(m, row, col) >> (OCTAVO_DTYPE_BITS(m.dtype()) - 1);
}

uint32_t nan_code(uint32_t dtype, uint32_t sign) {
  return dtype == OCTAVO_F16 ? 0x7E00 | sign << 15 : 0x7F | sign << 7;
}

/* Element i of a row: numbers, zeros, Inf and NaN of both signs, NaN with payloads, signalling
 * ones, in every column of the vectors, since the rows begin with different ones. */
void fill(Matrix *m, bool has_infinity, unsigned seed) {
  m->fill(seed, 3.0f);
  static constexpr uint32_t kPatterns[] = {0x7FC00000, 0xFFC00000, 0x7F812345, 0xFF812345,
                                           0xFFFFFFFF, 0x00000000, 0x80000000, 0x7F800000,
                                           0xFF800000, 0x7FFFFFFF, 0xFFA00000};
  for (int64_t row = 0; row < m->rows(); ++row) {
    for (int64_t col = row % 5; col < m->cols(); col += 5) {
      const uint32_t bits = kPatterns[(col / 5 + row) % 11];
      const uint32_t magnitude = bits & 0x7FFFFFFF;
      if (magnitude == 0x7F800000 && !has_infinity) continue;
      if (magnitude > 0x7F800000 && m->dtype() != OCTAVO_F32 &&
          OCTAVO_DTYPE_BITS(m->dtype()) == 16) {
        /* Not by way of a conversion, which makes a signalling NaN quiet. */
        const auto kept = static_cast<uint32_t>(
            m->dtype() == OCTAVO_BF16 ? bits >> 16
                                      : (bits >> 16 & 0x8000) | 0x7C00 | (bits >> 13 & 0x3FF));
        const auto half = static_cast<uint16_t>(kept);
        std::memcpy(m->at(row, col), &half, sizeof(half));
      } else {
        m->set(row, col, bits_float(static_cast<int32_t>(bits)));
      }
    }
  }
}

bool is_nan_code(uint32_t dtype, uint32_t code) {
  if (dtype == OCTAVO_F16) return (code & 0x7FFF) > 0x7C00;
  return dtype == OCTAVO_E4M3FN ? (code & 0x7F) == 0x7F : (code & 0x7F) > 0x7C;
}

/* Every code of `out` that is NaN, and every element that is; gives how many there are. */
int expect_nans(const Matrix &in, const Matrix &out, bool is_transposed) {
  int count = 0;
  for (int64_t row = 0; row < in.rows(); ++row)
    for (int64_t col = 0; col < in.cols(); ++col) {
      const uint32_t code = is_transposed ? bits_at(out, col, row) : bits_at(out, row, col);
      if (!is_nan_code(out.dtype(), code) && !std::isnan(in.get(row, col))) continue;
      EXPECT_EQ(code, nan_code(out.dtype(), sign_of(in, row, col))) << row << ", " << col;
      if (code != nan_code(out.dtype(), sign_of(in, row, col))) return -1;
      ++count;
    }
  return count;
}

struct Factors {
  float scale; /* of GIVEN */
  float in_scale_inv;
  bool makes_all; /* every element is NaN */
};
constexpr Factors kFactors[] = {
    {1.5f, 1.0f, false},  {kInf, 1.0f, false},  {-kInf, 1.0f, false}, {0.0f, 1.0f, false},
    {kNan, 1.0f, true},   {-kNan, 1.0f, true},  {1.5f, kInf, false},  {1.5f, 0.0f, false},
    {1.5f, kNan, true},   {1.5f, -kNan, true},  {kNan, kInf, true},   {0.0f, kInf, false},
    {1.5f, 0.25f, false}, {-2.0f, 1.0f, false},
};

void with_one_scale(Kernels &kernels) {
  for (const uint32_t in_dtype : kInputs)
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16})
      for (const Factors &f : kFactors)
        for (const int outputs : {1, 2, 3}) {
          Matrix in(in_dtype, kRows, kCols, 3);
          fill(&in, true, 7);
          Matrix out(dtype, kRows, kCols, 1), out_t(dtype, kCols, kRows, 2);
          float inverse = 0.0f;
          const octavo_scale scale_inv = per_tensor(&inverse);
          auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
          c.in = in.tensor();
          c.out = (outputs & 1) != 0 ? out.tensor() : nullptr;
          c.out_t = (outputs & 2) != 0 ? out_t.tensor() : nullptr;
          c.out_scale_inv = &scale_inv;
          c.scale = &f.scale;
          c.in_scale_inv = f.in_scale_inv == 1.0f ? nullptr : &f.in_scale_inv;
          ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
          for (const bool turned : {false, true}) {
            if ((turned ? c.out_t : c.out) == nullptr) continue;
            const int count = expect_nans(in, turned ? out_t : out, turned);
            ASSERT_GT(count, f.makes_all ? kRows * kCols - 1 : 0)
                << in_dtype << " to " << dtype << ", scale " << f.scale << ", factor "
                << f.in_scale_inv << ", turned " << turned;
          }
        }
}

void with_scales_of_rows_and_blocks(Kernels &kernels) {
  constexpr struct {
    uint32_t granularity, rule;
  } kWays[] = {
      {OCTAVO_PER_ROW, OCTAVO_RULE_QUOTIENT},     {OCTAVO_BLOCK_1X128, OCTAVO_RULE_QUOTIENT},
      {OCTAVO_BLOCK_1X128, OCTAVO_RULE_DEEPGEMM}, {OCTAVO_BLOCK_128X128, OCTAVO_RULE_POW2},
      {OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_UP},     {OCTAVO_BLOCK_1X32, OCTAVO_RULE_MX_FLOOR},
      {OCTAVO_BLOCK_32X32, OCTAVO_RULE_MX_FLOOR}};
  for (const uint32_t in_dtype : kInputs)
    for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2})
      for (const auto &way : kWays)
        for (const float factor : {1.0f, kInf, 0.0f, kNan, -kNan})
          for (const bool has_infinity : {true, false}) {
            if (way.rule == OCTAVO_RULE_DEEPGEMM && dtype == OCTAVO_E5M2) continue;
            Matrix in(in_dtype, kRows, kCols, 3);
            fill(&in, has_infinity, 7);
            Matrix out(dtype, kRows + 5, kCols + 5, 1), out_t(dtype, kCols + 5, kRows + 5, 2);
            Scales scales(way.granularity, kRows + 5, kCols + 5, 1);
            Scales scales_t(way.granularity, kCols + 5, kRows + 5, 2);
            auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
            c.in = in.tensor();
            c.out = out.tensor();
            c.out_t = out_t.tensor();
            c.out_scale_inv = scales.get();
            c.out_t_scale_inv = scales_t.get();
            c.in_scale_inv = factor == 1.0f ? nullptr : &factor;
            c.rule = way.rule;
            c.format_max = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
            ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
            for (const bool turned : {false, true})
              ASSERT_GT(expect_nans(in, turned ? out_t : out, turned),
                        std::isnan(factor) ? kRows * kCols - 1 : 0)
                  << in_dtype << " to " << dtype << ", granularity " << way.granularity << ", rule "
                  << way.rule << ", factor " << factor << ", turned " << turned;
          }
}

void of_states(Kernels &kernels) {
  for (const uint32_t granularity : {uint32_t{OCTAVO_FLAT_256}, uint32_t{OCTAVO_EXPANDED_128}})
    for (const uint32_t in_dtype : kInputs)
      for (const float factor : {1.0f, kNan, -kNan}) {
        Matrix in(in_dtype, kRows, kCols);
        fill(&in, true, 7);
        Matrix out(OCTAVO_E4M3FN, kRows, kCols);
        std::vector<float> scales(static_cast<size_t>(kRows * kCols));
        const octavo_scale s = OCTAVO_SCALE(scales.data(), 0, OCTAVO_F32, granularity);
        auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
        c.in = in.tensor();
        c.out = out.tensor();
        c.out_scale_inv = &s;
        c.in_scale_inv = factor == 1.0f ? nullptr : &factor;
        ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
        ASSERT_GT(expect_nans(in, out, false), std::isnan(factor) ? kRows * kCols - 1 : 0)
            << in_dtype << ", granularity " << granularity << ", factor " << factor;
      }
}

/* NaN, and Inf + -Inf, in every place of a vector. */
void of_a_sum_is_positive(Kernels &kernels) {
  constexpr uint64_t kCount = 171;
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2})
    for (uint64_t first = 0; first < 8; ++first) {
      std::vector<uint8_t> codes(2 * kCount, 0x11);
      for (uint64_t i = first; i < kCount; i += 3) {
        const bool is_infinite_sum = dtype == OCTAVO_E5M2 && i % 2 == 0;
        codes[i] = is_infinite_sum ? 0x7C : 0xFF;
        codes[kCount + i] = is_infinite_sum ? 0xFC : i % 4 == 1 ? 0x7F : 0x11;
      }
      std::vector<uint8_t> out(kCount);
      auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
      c.codes = codes.data();
      c.out = out.data();
      c.dtype = dtype;
      c.count = kCount;
      c.shards = 2;
      c.shard_stride = kCount;
      ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK)
          << kernels.host().last_text();
      for (uint64_t i = 0; i < kCount; ++i) {
        const bool is_nan_sum = i >= first && (i - first) % 3 == 0;
        ASSERT_EQ(out[i] == 0x7F, is_nan_sum) << dtype << ", " << i << ": " << +out[i];
      }
    }
}

/* What C's fmax does with a signalling NaN: the result is NaN, and the maximum so far is gone. */
void a_signalling_nan_forgets_no_maximum(Kernels &kernels) {
  for (const uint32_t in_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16})
    for (const uint32_t sign : {0u, 1u})
      for (int64_t place = 0; place < kCols; ++place)
        for (const int64_t peak :
             {int64_t{0}, (place + 1) % kCols, (place + 16) % kCols, kCols - 1}) {
          if (peak == place) continue;
          Matrix in(in_dtype, 1, kCols);
          in.fill(static_cast<unsigned>(place), 0.1f);
          in.set(0, peak, -20.0f);
          const uint32_t bits = in_dtype == OCTAVO_F32    ? 0x7F800001 | sign << 31
                                : in_dtype == OCTAVO_BF16 ? 0x7F81 | sign << 15
                                                          : 0x7C01 | sign << 15;
          std::memcpy(in.at(0, place), &bits, OCTAVO_DTYPE_BITS(in_dtype) / 8);
          const float expected = in.get(0, peak);
          float amax = 0.0f, nonfinite = 0.0f;
          auto measure = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
          measure.in = in.tensor();
          measure.amax = &amax;
          measure.nonfinite = &nonfinite;
          ASSERT_EQ(kernels.table->compute_amax(kernels.ctx(), &measure), OCTAVO_OK);
          ASSERT_EQ(amax, -expected) << in_dtype << " at " << place << ", peak at " << peak;
          ASSERT_EQ(nonfinite, 1.0f);
          for (const uint32_t granularity :
               {uint32_t{OCTAVO_PER_TENSOR}, uint32_t{OCTAVO_PER_ROW}, uint32_t{OCTAVO_BLOCK_1X128},
                uint32_t{OCTAVO_BLOCK_1X32}}) {
            const bool is_tensor = granularity == OCTAVO_PER_TENSOR;
            Matrix out(OCTAVO_E5M2, 1, kCols), out_t(OCTAVO_E5M2, kCols, 1);
            Scales scales(is_tensor ? uint32_t{OCTAVO_PER_ROW} : granularity, 1, kCols);
            Scales scales_t(is_tensor ? uint32_t{OCTAVO_PER_ROW} : granularity, kCols, 1);
            scales.get()->granularity = scales_t.get()->granularity = granularity;
            amax = 0.0f;
            auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
            c.in = in.tensor();
            c.out = out.tensor();
            c.out_t = out_t.tensor();
            c.out_scale_inv = scales.get();
            c.out_t_scale_inv = scales_t.get();
            c.rule = is_mx(granularity) ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_QUOTIENT;
            c.format_max = kMaxE5m2;
            c.amax = &amax;
            ASSERT_EQ(kernels.quantize(c), OCTAVO_OK) << kernels.host().last_text();
            ASSERT_EQ(amax, -expected) << granularity;
            const BlockScale own =
                block_scale(is_mx(granularity) ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_QUOTIENT,
                            -expected, kMaxE5m2, 0.0f, kFloatMax);
            const int64_t block = is_mx(granularity)                  ? 32
                                  : granularity == OCTAVO_BLOCK_1X128 ? 128
                                                                      : kCols;
            ASSERT_EQ(scales.block(0, peak / block), own.scale_inv)
                << in_dtype << " at " << place << ", peak at " << peak << ", " << granularity;
          }
        }
}

void on_every_level(void (*body)(Kernels &)) {
  for (const std::string &level : supported_levels()) {
    SCOPED_TRACE(level);
    Kernels kernels(1, level);
    body(kernels);
  }
}

TEST(NanCodes, with_one_scale) {
  on_every_level(&with_one_scale);
}

TEST(NanCodes, with_scales_of_rows_and_blocks) {
  on_every_level(&with_scales_of_rows_and_blocks);
}

TEST(NanCodes, of_states) {
  on_every_level(&of_states);
}

TEST(NanCodes, of_a_sum_is_positive) {
  on_every_level(&of_a_sum_is_positive);
}

TEST(NanCodes, a_signalling_nan_forgets_no_maximum) {
  on_every_level(&a_signalling_nan_forgets_no_maximum);
}

}  // namespace
}  // namespace octavo::test
