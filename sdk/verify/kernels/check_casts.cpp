// quantize: casts with one scale, with delayed scales, of rows, of blocks and of states.
//
// Every code, scale and amax is compared to the bit.
#include <limits>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr uint32_t kFloat8[] = {OCTAVO_E4M3FN, OCTAVO_E5M2};

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 5}, {17, 65}, {40, 40}, {64, 96}, {130, 517}};

// Lines for squares, and squares for lines.
uint32_t other_of(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_BLOCK_1X128: return OCTAVO_BLOCK_128X128;
    case OCTAVO_BLOCK_128X128: return OCTAVO_BLOCK_1X128;
    case OCTAVO_BLOCK_1X32: return OCTAVO_BLOCK_32X32;
    default: return OCTAVO_BLOCK_1X32;
  }
}

}  // namespace

const char *rule_name(uint32_t rule) {
  switch (rule) {
    case OCTAVO_RULE_GIVEN: return "a given scale";
    case OCTAVO_RULE_QUOTIENT: return "rule QUOTIENT";
    case OCTAVO_RULE_POW2: return "rule POW2";
    case OCTAVO_RULE_RECIPROCAL: return "rule RECIPROCAL";
    case OCTAVO_RULE_MSAMP: return "rule MSAMP";
    case OCTAVO_RULE_MX_UP: return "rule MX_UP";
    case OCTAVO_RULE_MX_FLOOR: return "rule MX_FLOOR";
    case OCTAVO_RULE_DEEPGEMM: return "rule DEEPGEMM";
    case OCTAVO_RULE_DEEPGEMM_POW2: return "rule DEEPGEMM_POW2";
    case OCTAVO_RULE_MSAMP04: return "rule MSAMP04";
    case OCTAVO_RULE_NVFP4: return "rule NVFP4";
    default: return "another rule";
  }
}

octavo_ability Cast::question() const {
  return asking(OCTAVO_KIND_QUANTIZE, codes, granularity, flags);
}

std::string Cast::name() const {
  return text("quantize ", name_of(in.dtype), " ", shape_text(in), " to ", name_of(codes), ", ",
              granularity_name(granularity),
              granularity_t ? text(" and ", granularity_name(*granularity_t)) : "", ", ",
              rule_name(rule), out ? "" : ", no out", out_t ? ", out_t" : "",
              pad_rows + pad_cols > 0 ? ", padded" : "");
}

octavo_quantize *Cast::describe(Operands &m) const {
  auto *c = m.make<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c->in = m.in("in", in);
  if (in_scale_inv) c->in_scale_inv = m.values_in("in_scale_inv", {*in_scale_inv});
  const int64_t rows = in.rows + pad_rows, cols = in.cols + pad_cols;
  const bool dense = is_state(granularity);
  const int64_t scale_gap = granularity == OCTAVO_PER_TENSOR || dense ? 0 : gap > 0 ? 2 : 0;
  if (out) c->out = m.codes_out("out", Grid::of(codes, rows, cols, gap));
  if (out_t) c->out_t = m.codes_out("out_t", Grid::of(codes, cols, rows, gap));
  const bool own = granularity != OCTAVO_PER_TENSOR;
  const uint32_t blocks_t = granularity_t.value_or(granularity);
  if (out || (!own && out_t))
    c->out_scale_inv =
        m.scale_out("out_scale_inv", scales_of(granularity, rows, cols, scale_gap), granularity);
  if (out_t && (own || scale_inv_t))
    c->out_t_scale_inv =
        m.scale_out("out_t_scale_inv", scales_of(blocks_t, cols, rows, scale_gap), blocks_t);
  if (scale) c->scale = m.values_in("scale", {*scale});
  if (counter) c->counter = m.values_in("counter", {*counter});
  if (amax) c->amax = m.values_out("amax", {amax_before});
  if (nonfinite) c->nonfinite = m.values_out("nonfinite", {nonfinite_before});
  c->format_max = format_max.value_or(largest_of(codes));
  c->window = window;
  c->rule = rule;
  c->flags = flags;
  c->eps = eps;
  return c;
}

Case Cast::to_case(const std::string &variant) const {
  Case one;
  one.name = name();
  one.variant = variant;
  one.question = question();
  one.body = [cast = *this](Operands &m) {
    octavo_quantize *c = cast.describe(m);
    c->workspace = m.workspace(c);
    return m.call(&octavo_kernels::quantize, c);
  };
  return one;
}

Grid cast_input(uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t gap) {
  Grid g = Grid::of(dtype, rows, cols, gap);
  spread(g, seed, -14, 4);
  return g;
}

void spoil(Grid &grid, bool with_infinity, bool with_nan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN()};
  for (int64_t i = 0; i < 4; ++i) {
    if (i < 2 ? !with_infinity : !with_nan) continue;
    grid.put((grid.rows - 1) * i / 3, grid.cols * i / 4, values[i]);
  }
}

Grid row_of(uint32_t dtype, const std::vector<float> &values) {
  Grid g = Grid::of(dtype, 1, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) g.put(0, static_cast<int64_t>(i), values[i]);
  return g;
}

// One scale: every rounding of each format, rules, outputs, paddings and what may be null.
void check_quantize(const Bench &bench) {
  Trial trial(bench, "quantize");
  const auto run = [&](const Cast &cast, const std::string &variant) {
    trial.run(cast.to_case(variant));
  };
  for (const uint32_t codes : kCodes) {
    const std::string to = text("to ", name_of(codes));
    for (const Shape &s : kShapes) {
      Cast cast{.in = cast_input(OCTAVO_F32, s.rows, s.cols, bench.seed + 1, 3)};
      cast.codes = codes;
      cast.gap = 5;
      run(cast, to);
      if (s.rows != s.cols) continue;
      cast.out_t = true;  // a square would also fit as it is
      run(cast, to + ", out_t");
    }
    // The scale 1 leaves edges where they are, another one brings them there.
    for (const float unit : {1.0f, 0x1p-5f, 0x1p9f}) {
      Cast cast{.in = row_of(OCTAVO_F32, edges_of(codes, unit))};
      cast.codes = codes;
      cast.rule = OCTAVO_RULE_GIVEN;
      cast.scale = 1 / unit;
      run(cast, to + ", a given scale");
    }
    Cast cast{.in = cast_input(OCTAVO_F32, 33, 70, bench.seed + 2)};
    cast.codes = codes;
    cast.rule = OCTAVO_RULE_GIVEN;
    run(cast, to + ", a given scale");  // null: 1
    cast.scale = 37.25f;
    run(cast, to + ", a given scale");
    cast.rule = OCTAVO_RULE_QUOTIENT;
    cast.out_t = true;
    run(cast, to + ", out_t");
    cast.out = false;
    run(cast, to + ", out_t");
    cast.out = cast.scale_inv_t = true;
    run(cast, to + ", out_t");
    cast.pad_rows = 15, cast.pad_cols = 26, cast.gap = 7;
    run(cast, to + ", padded outputs");
    for (const uint32_t rule : {uint32_t{OCTAVO_RULE_POW2}, uint32_t{OCTAVO_RULE_RECIPROCAL},
                                uint32_t{OCTAVO_RULE_MSAMP}, OCTAVO_RULE_MSAMP04}) {
      cast.rule = rule;
      run(cast, to + ", " + rule_name(rule));
      // fl(fl(1 / a) * M) differs from fl(M / a) in 28 % of amaxes.
      for (uint64_t i = 0; i < 12; ++i) {
        Cast small{.in = cast_input(OCTAVO_F32, 3, 7, bench.seed + 100 + i)};
        small.codes = codes;
        small.rule = rule;
        run(small, to + ", " + rule_name(rule));
      }
    }
  }
  for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16}) {
    for (const uint32_t codes : kFloat8) {
      Cast cast{.in = cast_input(dtype, 19, 67, bench.seed + 3, 1)};
      cast.codes = codes;
      run(cast, text(name_of(dtype), " input"));
      cast.in = row_of(dtype, edges_of(codes, 1.0f));
      cast.rule = OCTAVO_RULE_GIVEN;
      cast.out_t = true;
      run(cast, text(name_of(dtype), " input"));
    }
  }
  for (const uint32_t dtype : kFloat8) {
    Cast cast{.in = cast_input(dtype, 21, 45, bench.seed + 4)};
    cast.in_scale_inv = 0.0371f;
    cast.out_t = true;
    run(cast, text("input in ", name_of(dtype)));
  }
  Cast base{.in = cast_input(OCTAVO_F32, 18, 40, bench.seed + 5)};
  const auto changed = [&](const std::string &variant, const auto &change) {
    Cast cast = base;
    change(cast);
    run(cast, variant);
  };
  changed("amax and nonfinite null", [](Cast &c) { c.amax = c.nonfinite = false; });
  changed("only the amax", [](Cast &c) { c.out = false; });
  changed("no element", [](Cast &c) { c.in = Grid::of(OCTAVO_F32, 0, 40); });
  for (const float value : {0.0f, 0x1p-140f, 0x1p127f}) {
    changed(text("all elements ", value), [&](Cast &c) { c.in.fill(value); });
    changed(text("all elements ", value), [&](Cast &c) { c.in.fill(value), c.scale = 3.5f; });
  }
  changed("eps", [](Cast &c) { c.eps = 100.0f; });
  changed("eps", [](Cast &c) { c.in.fill(0.0f), c.eps = 0x1p-10f; });
  changed("KEEP_POSITIVE", [&](Cast &c) {
    c.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
    spread(c.in, bench.seed + 6, -40, 4);
  });
  trial.finish();
}

void check_quantize_nonfinite(const Bench &bench) {
  Trial trial(bench, "quantize of Inf and NaN");
  for (const uint32_t dtype : kPlain)
    for (const uint32_t codes : kFloat8)
      for (const int kind : {1, 2, 3}) {
        Cast cast{.in = cast_input(dtype, 20, 33, bench.seed + 7)};
        spoil(cast.in, (kind & 1) != 0, (kind & 2) != 0);
        cast.codes = codes;
        cast.out_t = true;
        for (const bool with_scale : {false, true}) {
          if (with_scale) cast.scale = 12.5f;
          trial.run(cast.to_case(text(name_of(dtype), " input")));
        }
        cast.rule = OCTAVO_RULE_GIVEN;
        trial.run(cast.to_case(text(name_of(dtype), " input, a given scale")));
      }
  trial.finish(false);
}

// `counter` decides between the scale of the history and the rule.
void check_quantize_delayed(const Bench &bench) {
  Trial trial(bench, "quantize with counter and window");
  for (const uint32_t codes : kFloat8)
    for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_MSAMP, OCTAVO_RULE_RECIPROCAL})
      for (const float counter : {0.0f, 3.0f, 4.0f, 5.0f}) {
        Cast cast{.in = cast_input(OCTAVO_F32, 18, 35, bench.seed + 8)};
        cast.codes = codes;
        cast.rule = rule;
        cast.scale = 20.5f;
        cast.counter = counter;
        cast.window = 4;
        cast.out_t = counter >= 4;
        trial.run(cast.to_case(rule_name(rule)));
        cast.in.fill(0);
        trial.run(cast.to_case(rule_name(rule)));
      }
  trial.finish(false);
}

void check_quantize_rows(const Bench &bench) {
  Trial trial(bench, "quantize with scales of rows");
  for (const uint32_t codes : kCodes)
    for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2})
      for (const Shape &s : {Shape{1, 1}, Shape{17, 65}, Shape{40, 300}}) {
        Cast cast{.in = cast_input(OCTAVO_F32, s.rows, s.cols, bench.seed + 9, 2)};
        cast.codes = codes;
        cast.granularity = OCTAVO_PER_ROW;
        cast.rule = rule;
        cast.out_t = true;
        cast.gap = 3;
        if (s.rows > 4)
          for (int64_t c = 0; c < s.cols; ++c) cast.in.put(2, c, 0.0f);
        const std::string to = text("to ", name_of(codes), ", ", rule_name(rule));
        trial.run(cast.to_case(to));
        cast.pad_rows = 4, cast.pad_cols = 9, cast.eps = 1e-12f;
        trial.run(cast.to_case(to + ", padded"));
        cast.out = false;
        spoil(cast.in, true, true);
        trial.run(cast.to_case(to + ", padded"));
      }
  for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16}) {
    Cast cast{.in = cast_input(dtype, 15, 70, bench.seed + 10)};
    cast.granularity = OCTAVO_PER_ROW;
    cast.out_t = true;
    trial.run(cast.to_case(text(name_of(dtype), " input")));
  }
  trial.finish();
}

void check_quantize_blocks(const Bench &bench) {
  Trial trial(bench, "quantize with scales of blocks");
  for (const uint32_t granularity :
       {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}) {
    const bool mx = block_cols(granularity) == 32;
    const std::vector<uint32_t> rules =
        mx ? std::vector<uint32_t>{OCTAVO_RULE_MX_UP, OCTAVO_RULE_MX_FLOOR}
           : std::vector<uint32_t>{OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_DEEPGEMM,
                                   OCTAVO_RULE_DEEPGEMM_POW2};
    for (const uint32_t rule : rules)
      for (const uint32_t codes : kFloat8) {
        if (rule >= OCTAVO_RULE_DEEPGEMM && codes != OCTAVO_E4M3FN) continue;
        for (const Shape &s : {Shape{1, 1}, Shape{33, 31}, Shape{130, 161}, Shape{64, 256}}) {
          Cast cast{.in = cast_input(OCTAVO_F32, s.rows, s.cols, bench.seed + 11, 1)};
          cast.codes = codes;
          cast.granularity = granularity;
          cast.rule = rule;
          cast.gap = 2;
          const std::string variant = text(granularity_name(granularity), ", ", rule_name(rule));
          for (int64_t c = 0; c < std::min<int64_t>(s.cols, 128); ++c) cast.in.put(0, c, 0.0f);
          trial.run(cast.to_case(variant));
          cast.out_t = true;
          trial.run(cast.to_case(variant + ", out_t"));
          cast.pad_rows = 31, cast.pad_cols = 40;
          spoil(cast.in, true, s.rows > 1);
          trial.run(cast.to_case(variant + ", padded, with Inf and NaN"));
        }
      }
    Cast mixed{.in = cast_input(OCTAVO_F32, 130, 161, bench.seed + 14)};
    mixed.granularity = granularity;
    mixed.granularity_t = other_of(granularity);
    mixed.rule = rules.front();
    mixed.out_t = true;
    trial.run(mixed.to_case(text(granularity_name(granularity), ", out_t in ",
                                 granularity_name(*mixed.granularity_t))));
    for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16}) {
      Cast cast{.in = cast_input(dtype, 34, 150, bench.seed + 12)};
      cast.granularity = granularity;
      cast.rule = rules.front();
      cast.out_t = true;
      trial.run(cast.to_case(text(granularity_name(granularity), ", ", name_of(dtype), " input")));
    }
  }
  trial.finish();
}

void check_quantize_states(const Bench &bench) {
  Trial trial(bench, "quantize with scales of states");
  for (const uint32_t granularity : {uint32_t{OCTAVO_FLAT_256}, OCTAVO_EXPANDED_128})
    for (const Shape &s : {Shape{1, 1}, Shape{5, 100}, Shape{16, 64}}) {
      Cast cast{.in = cast_input(OCTAVO_F32, s.rows, s.cols, bench.seed + 13)};
      cast.granularity = granularity;
      trial.run(cast.to_case(granularity_name(granularity)));
      cast.flags = OCTAVO_QUANTIZE_KEEP_POSITIVE;
      trial.run(cast.to_case(text(granularity_name(granularity), ", KEEP_POSITIVE")));
    }
  trial.finish();
}

}  // namespace octavo::conformance::kernels
