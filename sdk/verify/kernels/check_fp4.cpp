// Codes of four bits (octavo/draft/fp4.h), two in a byte: casts in each how, and their values, to
// the bit.
#include <cmath>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kBlocks[] = {OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16};

int64_t missing_to_16(int64_t count) {
  return (16 - count % 16) % 16;
}

// Both outputs in rows of whole blocks.
Cast fp4_cast(Grid in, uint32_t granularity) {
  Cast cast{.in = std::move(in)};
  cast.codes = OCTAVO_E2M1;
  cast.granularity = granularity;
  cast.rule = OCTAVO_RULE_NVFP4;
  cast.out_t = true;
  cast.pad_rows = missing_to_16(cast.in.rows);
  cast.pad_cols = missing_to_16(cast.in.cols);
  cast.gap = 6;
  return cast;
}

struct How {
  uint32_t flags;
  float count;
  uint64_t key;
};

Case fp4_case(const Cast &cast, const How &how, const std::string &variant) {
  Case one;
  one.name = text("quantize_fp4, flags ", how.flags, ", step ", how.count, ": ", cast.name());
  one.variant = variant;
  one.question = asking(OCTAVO_KIND_QUANTIZE_FP4, OCTAVO_E2M1, cast.granularity, how.flags);
  one.body = [=](Operands &m) {
    auto *c = m.make<octavo_quantize_fp4>(OCTAVO_KIND_QUANTIZE_FP4);
    c->quantize = cast.describe(m);
    if (how.count != 0) c->count = m.values_in("count", {how.count});
    c->key = how.key;
    c->flags = how.flags;
    return m.call(&octavo_fp4_kernels::quantize_fp4, c);
  };
  return one;
}

Case value_case(uint32_t granularity, uint32_t out, bool accumulate, uint64_t seed) {
  Grid codes = Grid::of(OCTAVO_E2M1, 35, 80, 4);
  for (int64_t r = 0; r < codes.rows; ++r)
    for (int64_t c = 0; c < codes.cols; ++c)
      codes.put_code(r, c, static_cast<uint32_t>(r + c) & 15);
  Grid scales = scales_of(granularity, codes.rows, codes.cols, 1);
  Numbers numbers(seed);
  for (int64_t r = 0; r < scales.rows; ++r)
    for (int64_t c = 0; c < scales.cols; ++c) scales.put(r, c, std::abs(numbers.spread(-6, 7)));
  scales.put_code(0, 1, 0x7F);
  Grid to = Grid::of(out, codes.rows, codes.cols, 2);
  spread(to, seed, -3, 3);
  Case one;
  one.variant = text("dequantize, ", granularity_name(granularity), ", to ", name_of(out));
  one.name = text(one.variant, accumulate ? ", accumulate" : "");
  one.question = asking(OCTAVO_KIND_DEQUANTIZE, OCTAVO_E2M1, granularity);
  one.body = [=](Operands &m) {
    auto *c = m.make<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c->in = m.in("in", codes);
    c->out = m.out("out", to);
    c->scale_inv = m.scale_in("scale_inv", scales, granularity, 37.3f);
    c->accumulate = accumulate;
    return m.call(&octavo_kernels::dequantize, c);
  };
  return one;
}

}  // namespace

void check_fp4(const Bench &bench) {
  Trial trial(bench, "codes of four bits");
  uint64_t seed = bench.seed * 1100;
  for (const uint32_t granularity : kBlocks) {
    const std::string blocks = granularity_name(granularity);
    for (const uint32_t dtype : kPlain)
      for (const auto &[rows, cols] : {std::pair{1, 1}, {33, 31}, {16, 64}, {50, 130}}) {
        Cast cast = fp4_cast(cast_input(dtype, rows, cols, ++seed, 1), granularity);
        trial.run(cast.to_case(text("quantize, ", blocks, ", ", name_of(dtype), " input")));
        cast.pad_rows += 16, cast.pad_cols += 32;
        spoil(cast.in, rows == 50, rows == 33 || rows == 50);
        trial.run(cast.to_case(text("quantize, ", blocks, ", padded, with Inf and NaN")));
        cast.out = false;
        cast.amax = cast.nonfinite = false;
        trial.run(cast.to_case(text("quantize, ", blocks, ", only out_t")));
      }
    // A row of each edge: the block's amax of 6 units leaves them where they are.
    std::vector<float> edges;
    for (const float edge : edges_of(OCTAVO_E2M1, 1.0f)) {
      if (edges.size() % 16 == 0) edges.push_back(6);
      edges.push_back(std::abs(edge) <= 6 ? edge : 0);
    }
    Cast cast = fp4_cast(row_of(OCTAVO_F32, edges), granularity);
    trial.run(cast.to_case(text("quantize, ", blocks)));
    cast.in.fill(0);
    trial.run(cast.to_case(text("quantize, ", blocks)));
    cast = fp4_cast(cast_input(OCTAVO_E4M3FN, 21, 45, ++seed), granularity);
    cast.in_scale_inv = 0.0371f;
    trial.run(cast.to_case(text("quantize, ", blocks, ", input in float8_e4m3fn")));
    cast = fp4_cast(cast_input(OCTAVO_F32, 34, 100, ++seed, 3), granularity);
    cast.granularity_t = granularity == kBlocks[0] ? kBlocks[1] : kBlocks[0];
    trial.run(cast.to_case(text("quantize, ", blocks, ", out_t in the other ones")));
    cast.granularity_t.reset();
    for (const How &how : {How{0, 5, 9},
                           {OCTAVO_FP4_HADAMARD, 0, 0},
                           {OCTAVO_FP4_STOCHASTIC, 0, 7},
                           {OCTAVO_FP4_STOCHASTIC, 12, 0x123456789ABCDEF},
                           {OCTAVO_FP4_HADAMARD | OCTAVO_FP4_STOCHASTIC, 12, 0xFEDCBA987654321}})
      trial.run(fp4_case(cast, how, text("quantize_fp4, ", blocks, ", flags ", how.flags)));
    for (const uint32_t out : kPlain)
      for (const bool accumulate : {false, true})
        trial.run(value_case(granularity, out, accumulate, ++seed));
  }
  trial.finish();
}

}  // namespace octavo::conformance::kernels
