// quantize of zeros, Inf, NaN, subnormal and the largest numbers, in values and in parameters.
//
// Every rule meets every amax of a list, with limits of the format, eps and earlier contents of the
// accumulators that take turns: each value of a parameter meets each rule.
#include <limits>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

// What an amax may be: 0, subnormal, below and at limits of rules, and beside a power of two of 448
// and of 57344. The last one is of NaN only, which an amax ignores.
constexpr float kAmaxes[] = {0.0f,     0x1p-149f, 0x1.8p-148f, 0x1p-140f,  0x1p-126f,  0x1p-120f,
                             1e-5f,    1.0f,      3584.0f,     3584.0002f, 28671.998f, 28672.0f,
                             0x1p100f, kLargest,  kInfinity,   kNan};
constexpr size_t kCount = std::size(kAmaxes);
// Contents of *amax before a call: what a call leaves, what it replaces, and NaN, which stays.
constexpr float kBefore[] = {0.0f, kNan, 0x1p-130f, kInfinity, 1000.0f};

void accumulate_from(Cast &cast, size_t turn) {
  cast.amax_before = kBefore[turn % std::size(kBefore)];
  cast.nonfinite_before = static_cast<float>(turn / std::size(kBefore) % 2);
}

std::vector<float> special_values(bool is_finite) {
  std::vector<float> all = {0.0f,       1.0f,    0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f, kLargest,
                            1.7014e38f, 1.0001f, 0x1p-10f,  449.0f,           1e-30f};
  if (!is_finite) all.insert(all.end(), {kInfinity, kNan});
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) all.push_back(-all[i]);
  return all;
}

// A given scale: eps, the limit and the counter say nothing.
void run_given(Trial &trial) {
  struct Factors {
    std::optional<float> of_input;
    float scale;
  };
  std::vector<Factors> all;
  for (const float scale : {0.0f, -0.0f, 0x1p-149f, 0x1p-30f, -0x1p-30f, -1.0f, kLargest, kInfinity,
                            -kInfinity, kNan, -kNan})
    all.push_back({std::nullopt, scale});
  for (const float of_input : {0.0f, -2.0f, 0x1p-120f, 0x1p120f, kInfinity, kNan, -kNan})
    all.push_back({of_input, 2.5f});
  size_t turn = 0;
  for (const uint32_t codes : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16}) {
    for (const Factors &f : all)
      for (const bool is_finite : {true, false}) {
        if (is_finite && !f.of_input) continue;
        Cast cast{.in = row_of(OCTAVO_F32, special_values(is_finite))};
        cast.codes = codes;
        cast.in_scale_inv = f.of_input;
        cast.rule = OCTAVO_RULE_GIVEN;
        cast.scale = f.scale;
        cast.format_max = 0;
        cast.eps = 100;
        accumulate_from(cast, ++turn);
        const std::string variant = text("to ", name_of(codes), ", a given scale",
                                         f.of_input ? ", a factor of the input" : "");
        trial.run(cast.to_case(variant));
        cast.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
        trial.run(cast.to_case(variant + ", KEEP_POSITIVE"));
      }
    for (const float counter : {0.0f, 9.0f, kNan}) {
      Cast cast{.in = row_of(OCTAVO_F32, special_values(false))};
      cast.codes = codes;
      cast.rule = OCTAVO_RULE_GIVEN;
      cast.scale = 20.5f;
      cast.counter = counter;
      cast.window = 4;
      trial.run(cast.to_case(text("to ", name_of(codes), ", a given scale and a counter")));
    }
  }
}

constexpr uint32_t kTensorRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL,
                                     OCTAVO_RULE_MSAMP};

// An element of this amax, half of it, 0 and NaN.
void put_amax(Grid &grid, int64_t row, int64_t col, float amax) {
  for (int64_t i = 0; i < 4; ++i)
    grid.put(row, col + i, i == 0 ? -amax : i == 1 ? amax / 2 : i == 2 ? 0.0f : kNan);
}

void run_tensor(Trial &trial) {
  for (const uint32_t rule : kTensorRules)
    for (size_t i = 0; i < kCount; ++i)
      for (const bool is_small : {false, true}) {
        Cast cast{.in = Grid::of(OCTAVO_F32, 1, 4)};
        put_amax(cast.in, 0, 0, kAmaxes[i]);
        cast.codes = i % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
        cast.rule = rule;
        // So small a limit that the quotient of the largest amax is subnormal.
        if (is_small) cast.format_max = 1;
        if (is_small) cast.scale = 3.5f;
        cast.eps = is_small && i % 3 == 1 ? 100.0f : 0.0f;
        accumulate_from(cast, i);
        trial.run(cast.to_case(text("one scale, ", rule_name(rule))));
      }
}

void run_rows(Trial &trial) {
  size_t turn = 0;
  for (const uint32_t rule : kTensorRules)
    for (const float limit : {448.0f, 1.0f, 65504.0f})
      for (const float eps : {0.0f, 0x1p-130f, 100.0f, kLargest}) {
        Cast cast{.in = Grid::of(OCTAVO_F32, kCount, 4)};
        for (size_t i = 0; i < kCount; ++i)
          put_amax(cast.in, static_cast<int64_t>(i), 0, kAmaxes[i]);
        cast.granularity = OCTAVO_PER_ROW;
        cast.codes = turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
        cast.rule = rule;
        cast.format_max = limit;
        cast.eps = eps;
        accumulate_from(cast, ++turn);
        trial.run(cast.to_case(text("scales of rows, ", rule_name(rule))));
      }
}

// One row, in which each block has an amax of its own.
void run_blocks(Trial &trial) {
  size_t turn = 0;
  const auto run = [&](uint32_t granularity, uint32_t rule, uint32_t dtype, float limit,
                       float eps) {
    const int64_t width = block_cols(granularity);
    Cast cast{.in = Grid::of(dtype, 1, width * static_cast<int64_t>(kCount))};
    cast.in.fill(0);
    for (size_t i = 0; i < kCount; ++i)
      put_amax(cast.in, 0, static_cast<int64_t>(i) * width, kAmaxes[i]);
    // Of these dtypes the smallest numbers leave a finite quotient.
    if (dtype != OCTAVO_F32 && dtype != OCTAVO_BF16) cast.in_scale_inv = 0x1p-130f;
    cast.granularity = granularity;
    cast.rule = rule;
    cast.format_max = limit;
    cast.eps = eps;
    accumulate_from(cast, ++turn);
    trial.run(cast.to_case(
        text(granularity_name(granularity), ", ", rule_name(rule), ", ", name_of(dtype))));
  };
  for (const uint32_t granularity :
       {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    const bool mx = block_cols(granularity) == 32;
    const uint32_t first = mx ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_QUOTIENT;
    const uint32_t second = mx ? OCTAVO_RULE_MX_FLOOR : OCTAVO_RULE_POW2;
    for (const uint32_t rule : {first, second}) {
      for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E5M2})
        run(granularity, rule, dtype, 448, 0);
      for (const float limit : {1.0f, 3.0f, 57344.0f})
        run(granularity, rule, OCTAVO_F32, limit, limit == 3 ? 100.0f : 0x1p-130f);
    }
    if (mx) continue;
    for (const uint32_t rule : {OCTAVO_RULE_DEEPGEMM, OCTAVO_RULE_DEEPGEMM_POW2})
      for (const float eps : {0.0f, 100.0f}) run(granularity, rule, OCTAVO_F32, 448, eps);
  }
}

// Groups of a state: Inf and NaN are no amax, and a row has no gap, whatever its stride.
void run_states(Trial &trial) {
  for (const bool is_long : {false, true}) {
    Cast cast{.in = Grid::of(OCTAVO_F32, 1, 256 * kCount + 9, is_long ? 5 : 0)};
    spread(cast.in, 5, -8, 4);
    for (size_t i = 0; i < kCount; ++i) {
      const auto first = static_cast<int64_t>(i) * 256;
      for (int64_t c = 0; i % 2 == 0 && c < 256; ++c) cast.in.put(0, first + c, 0);
      put_amax(cast.in, 0, first + 7, kAmaxes[i]);
    }
    cast.granularity = OCTAVO_FLAT_256;
    cast.eps = 100;
    cast.format_max = 1;
    if (is_long) cast.in_scale_inv = 0x1p40f;
    if (is_long) cast.gap = 3;
    accumulate_from(cast, is_long ? 1 : 8);
    trial.run(cast.to_case("groups of 256"));
  }
}

}  // namespace

void check_quantize_special(const Bench &bench) {
  Trial trial(bench, "quantize of special values");
  run_given(trial);
  run_tensor(trial);
  run_rows(trial);
  run_blocks(trial);
  run_states(trial);
  trial.finish(false);
}

}  // namespace octavo::conformance::kernels
