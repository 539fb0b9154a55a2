// dequantize, compute_amax, scale_from_amax, quantize_stats, histories, sums and copies, to the
// bit.
#include <cmath>
#include <limits>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kAll[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

constexpr uint32_t kOneScale = OCTAVO_PER_TENSOR;

bool is_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}

// Every code once and again, so also Inf and NaN; plain values spread.
Grid any_values(uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t gap = 0) {
  Grid g = Grid::of(dtype, rows, cols, gap);
  if (!is_code(dtype)) {
    spread(g, seed, -20, 10);
    return g;
  }
  int code = static_cast<int>(seed % 256);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) g.bytes[g.offset(r, c)] = static_cast<uint8_t>(code++);
  return g;
}

Grid any_scales(uint32_t granularity, int64_t rows, int64_t cols, uint64_t seed) {
  Grid g = scales_of(granularity, rows, cols,
                     granularity == OCTAVO_PER_TENSOR || is_state(granularity) ? 0 : 1);
  Numbers numbers(seed);
  for (int64_t r = 0; r < g.rows; ++r)
    for (int64_t c = 0; c < g.cols; ++c) g.put(r, c, std::abs(numbers.spread(-6, 3)));
  return g;
}

}  // namespace

void check_dequantize(const Bench &bench) {
  Trial trial(bench, "dequantize");
  const auto run = [&](const Grid &in, const std::optional<Grid> &scales, uint32_t granularity,
                       uint32_t out, bool accumulate, bool in_place, const std::string &variant) {
    const bool is_special = variant == "special scales";
    Case one;
    one.name = text("dequantize ", name_of(in.dtype), " ", shape_text(in), " to ", name_of(out),
                    scales ? text(", ", granularity_name(granularity)) : "",
                    accumulate ? ", accumulate" : "", in_place ? ", in place" : "");
    one.variant = variant;
    one.question = asking(OCTAVO_KIND_DEQUANTIZE, in.dtype, granularity);
    one.body = [=](Operands &m) {
      auto *c = m.make<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      Grid to = Grid::of(out, in.rows, in.cols, in.stride == in.cols ? 0 : 2);
      spread(to, 77, -3, 3);
      constexpr float kHeld[] = {kInfinity, -kInfinity, kNan, kLargest, -kLargest, -0.0f};
      for (int64_t i = 0; i < to.cols && is_special; ++i) to.put(0, i, kHeld[i % 7 % 6]);
      if (in_place) {
        c->in = c->out = m.out("out", in);
      } else {
        c->in = m.in("in", in);
        c->out = m.out("out", to);
      }
      if (scales) c->scale_inv = m.scale_in("scale_inv", *scales, granularity);
      c->accumulate = accumulate;
      return m.call(&octavo_kernels::dequantize, c);
    };
    trial.run(one);
  };
  uint64_t seed = bench.seed * 100;
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16})
    for (const uint32_t out : kPlain)
      for (const bool accumulate : {false, true}) {
        const std::string variant =
            text(name_of(dtype), " to ", name_of(out), accumulate ? ", accumulate" : "");
        for (const auto &[rows, cols] : {std::pair{1, 1}, {17, 65}, {64, 260}}) {
          const Grid in = any_values(dtype, rows, cols, ++seed, 3);
          run(in, any_scales(kOneScale, rows, cols, seed), kOneScale, out, accumulate, false,
              variant);
        }
        ++seed;
        run(any_values(dtype, 9, 40, seed), any_scales(OCTAVO_PER_ROW, 9, 40, seed), OCTAVO_PER_ROW,
            out, accumulate, false, "scales of rows, " + variant);
        if (!is_code(dtype)) continue;
        for (const uint32_t blocks :
             {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32})
          run(any_values(dtype, 35, 150, seed, 1), any_scales(blocks, 35, 150, seed), blocks, out,
              accumulate, false, text(granularity_name(blocks), ", ", variant));
      }
  for (const uint32_t states : {uint32_t{OCTAVO_FLAT_256}, OCTAVO_EXPANDED_128})
    run(any_values(OCTAVO_E4M3FN, 10, 77, seed), any_scales(states, 10, 77, seed), states,
        OCTAVO_F32, false, false, granularity_name(states));
  for (const uint32_t dtype : kPlain) {
    for (const uint32_t out : kPlain)
      run(any_values(dtype, 13, 50, ++seed, 2), std::nullopt, kOneScale, out, false, false,
          text("plain ", name_of(dtype), " to ", name_of(out)));
    run(any_values(dtype, 13, 50, seed), any_scales(kOneScale, 1, 1, seed), kOneScale, dtype, false,
        true, text("in place, ", name_of(dtype)));
  }
  // Every code by a special scale, added to special values.
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2})
    for (const float scale :
         {0.0f, -1.0f, 0x1p-149f, kLargest, kInfinity, std::copysign(kNan, -1.0f)})
      for (const bool accumulate : {false, true})
        run(any_values(dtype, 1, 256, 0), Grid::of_values({scale}), kOneScale,
            scale == 0    ? OCTAVO_BF16
            : scale == -1 ? OCTAVO_F16
                          : OCTAVO_F32,
            accumulate, false, "special scales");
  run(Grid::of(OCTAVO_E4M3FN, 0, 16), any_scales(kOneScale, 1, 1, seed), kOneScale, OCTAVO_F32,
      false, false, "no element");
  trial.finish();
}

void check_amax(const Bench &bench) {
  Trial trial(bench, "compute_amax");
  uint64_t seed = bench.seed * 200;
  for (const uint32_t dtype : kAll)
    for (const auto &[rows, cols] : {std::pair{0, 8}, {1, 1}, {17, 65}, {130, 300}})
      for (const int kind : {0, 1, 2, 3}) {
        Grid in = Grid::of(dtype, rows, cols, 3);
        spread(in, ++seed, -8, 4);
        if (rows > 0 && (dtype != OCTAVO_E4M3FN || kind == 2))
          spoil(in, (kind & 1) != 0, (kind & 2) != 0);
        for (const float before : {0.0f, 1000.0f, kNan}) {
          if (std::isnan(before) && rows != 17) continue;
          Case one;
          one.name = text("compute_amax of ", name_of(dtype), " ", shape_text(in));
          one.variant = name_of(dtype);
          one.question = asking(OCTAVO_KIND_COMPUTE_AMAX, dtype);
          one.body = [=](Operands &m) {
            auto *c = m.make<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
            c->in = m.in("in", in);
            if (is_code(dtype))
              c->in_scale_inv =
                  m.scale_in("in_scale_inv", Grid::of_values({0.037f}), OCTAVO_PER_TENSOR);
            c->amax = m.values_out("amax", {before});
            if (kind != 0 || before == 0) c->nonfinite = m.values_out("nonfinite", {0.5f});
            return m.call(&octavo_kernels::compute_amax, c);
          };
          trial.run(one);
        }
      }
  // Of the products, not of the elements.
  for (const uint32_t dtype : kAll)
    for (const float factor : {0.0f, 0x1p120f, kInfinity, -kNan}) {
      Case one;
      one.name = text("compute_amax of ", name_of(dtype), ", factor ", factor);
      one.variant = text(name_of(dtype), ", a factor of the input");
      one.question = asking(OCTAVO_KIND_COMPUTE_AMAX, dtype);
      one.body = [=](Operands &m) {
        auto *c = m.make<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
        c->in = m.in("in", row_of(dtype, {0x1p-9f, 448.0f, -0.0f, 400.0f, 0x1p-14f}));
        c->in_scale_inv = m.scale_in("in_scale_inv", Grid::of_values({factor}), kOneScale);
        c->amax = m.values_out("amax", {0x1p-20f});
        c->nonfinite = m.values_out("nonfinite", {0.0f});
        return m.call(&octavo_kernels::compute_amax, c);
      };
      trial.run(one);
    }
  trial.finish();
}

void check_scale(const Bench &bench) {
  Trial trial(bench, "scale_from_amax");
  const std::vector<float> amaxes = {0.0f,      1.0f,      3.7f,      kInfinity,       kNan,
                                     0x1p-149f, 0x1p-140f, 0x1p-120f, 0x1.fffffep127f, 448.0f,
                                     0.001f,    57344.0f,  1e10f,     0x1p-126f,       0x1p100f};
  for (const uint32_t rule :
       {uint32_t{OCTAVO_RULE_QUOTIENT}, uint32_t{OCTAVO_RULE_POW2},
        uint32_t{OCTAVO_RULE_RECIPROCAL}, uint32_t{OCTAVO_RULE_MSAMP}, OCTAVO_RULE_MSAMP04})
    for (const float divide_by : {1.0f, 3.0f, 0x1p-126f, 0x1p-140f})
      for (const int outputs : {1, 2, 3, 7}) {  // 4: kept is scale
        // A quotient of 0 has no power of two.
        const bool is_quotient = rule == OCTAVO_RULE_QUOTIENT || rule == OCTAVO_RULE_RECIPROCAL;
        const float limit = outputs != 3 ? 448.0f : is_quotient ? 0x1p-126f : 1.0f;
        Case one;
        one.name =
            text("scale_from_amax, rule ", rule, ", divide_by ", divide_by, ", limit ", limit);
        one.variant = text("rule ", rule, (outputs & 4) != 0 ? ", kept is scale" : "");
        one.question = asking(OCTAVO_KIND_SCALE_FROM_AMAX);
        one.body = [=](Operands &m) {
          auto *c = m.make<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
          c->amax = m.values_in("amax", amaxes);
          std::vector<float> old(amaxes.size());
          for (size_t i = 0; i < old.size(); ++i) old[i] = 2.5f + static_cast<float>(i);
          if ((outputs & 1) != 0) c->scale = m.values_out("scale", old);
          if ((outputs & 2) != 0) c->scale_inv = m.values_out("scale_inv", old);
          if ((outputs & 4) != 0)
            c->kept = c->scale;
          else if (divide_by != 1)
            c->kept = m.values_in("kept", old);
          c->n = amaxes.size();
          c->format_max = limit;
          c->divide_by = divide_by;
          c->rule = rule;
          return m.call(&octavo_kernels::scale_from_amax, c);
        };
        trial.run(one);
      }
  trial.finish();
}

// Pools of columns, of which each has an unusual value somewhere; two updates in a row.
void check_history(const Bench &bench) {
  Trial trial(bench, "delayed_scale_update");
  uint64_t seed = bench.seed * 300;
  constexpr uint32_t kFlags[] = {0,
                                 OCTAVO_HISTORY_TE,
                                 OCTAVO_HISTORY_TE_UNFUSED,
                                 OCTAVO_HISTORY_MSAMP,
                                 OCTAVO_HISTORY_COUNT_FROM_ONE,
                                 OCTAVO_HISTORY_TE | OCTAVO_HISTORY_DROP_NONFINITE | 8};
  for (const uint32_t rule :
       {uint32_t{OCTAVO_RULE_QUOTIENT}, uint32_t{OCTAVO_RULE_POW2},
        uint32_t{OCTAVO_RULE_RECIPROCAL}, uint32_t{OCTAVO_RULE_MSAMP}, OCTAVO_RULE_MSAMP04})
    for (const uint32_t flags : kFlags)
      for (const uint64_t length : {1, 2, 5})
        for (const uint32_t use_max : {0u, 1u})
          for (const int32_t margin : {0, 2, 30}) {
            if (margin != 0 && flags != OCTAVO_HISTORY_TE) continue;
            const std::vector<float> unusual = {0,         kInfinity, kNan,      0x1p-140f,
                                                0x1p-126f, 0x1p-120f, 0x1p-118f, kLargest,
                                                0x1p-149f, 1,         2,         3};
            const auto n = static_cast<int64_t>(unusual.size()) * 2;
            Grid history = Grid::of(OCTAVO_F32, static_cast<int64_t>(length), n);
            spread(history, ++seed, -5, 3);
            for (int64_t r = 0; r < history.rows; ++r)
              for (int64_t i = 0; i < n; ++i) history.put(r, i, std::abs(history.at(r, i)));
            for (int64_t i = n / 2; i < n; ++i)
              history.put(static_cast<int64_t>(seed) % history.rows, i,
                          unusual[static_cast<size_t>(i) % 9]);
            std::vector<float> amax(static_cast<size_t>(n)), scale(amax.size());
            std::vector<float> counter(amax.size());
            for (size_t i = 0; i < amax.size(); ++i) {
              amax[i] = i < unusual.size() ? unusual[i] : static_cast<float>(i) / 7;
              scale[i] = 3.25f + static_cast<float>(i);
              counter[i] = static_cast<float>(i % 3) * 5;
            }
            Case one;
            one.name = text("delayed_scale_update, length ", length, ", rule ", rule, ", flags ",
                            flags, ", margin ", margin, use_max != 0 ? ", max" : ", most recent");
            one.variant = text("rule ", rule, ", flags ", flags, margin != 0 ? ", margin" : "",
                               use_max != 0 ? ", max" : ", most recent");
            one.question = asking(OCTAVO_KIND_DELAYED_SCALE_UPDATE, 0, 0, flags);
            one.body = [=](Operands &m) {
              float *const amax_at = m.values_out("amax", amax);
              auto *const history_at = reinterpret_cast<float *>(m.place_out("history", history));
              float *const scale_at = m.values_out("scale", scale);
              float *const counter_at = margin == 0 ? m.values_out("counter", counter) : nullptr;
              octavo_status status = OCTAVO_OK;
              for (int turn = 0; turn < 2 && status == OCTAVO_OK; ++turn) {
                auto *c = m.make<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
                c->amax = amax_at;
                c->history = history_at;
                c->scale = scale_at;
                c->counter = counter_at;
                c->n = static_cast<uint64_t>(n);
                c->length = length;
                c->format_max = flags == OCTAVO_HISTORY_MSAMP ? 1.0f : 448.0f;
                c->margin = margin;
                c->use_max = use_max;
                c->rule = rule;
                c->history_flags = flags;
                status = m.call(&octavo_kernels::delayed_scale_update, c);
              }
              return status;
            };
            trial.run(one);
          }
  trial.finish();
}

void check_copy(const Bench &bench) {
  Trial trial(bench, "copy");
  for (const int64_t bytes : {0, 1, 3, 64, 4099, 70000})
    for (const bool from : {true, false}) {
      Case one;
      one.name = text("copy of ", bytes, from ? " bytes" : " zeros");
      one.variant = from ? "" : "zeros";
      one.question = asking(OCTAVO_KIND_COPY);
      one.body = [=](Operands &m) {
        Grid data = Grid::of(OCTAVO_U8, 1, bytes);
        Numbers numbers(static_cast<uint64_t>(bytes) + 1);
        for (uint8_t &b : data.bytes) b = static_cast<uint8_t>(numbers.next());
        auto *c = m.make<octavo_copy>(OCTAVO_KIND_COPY);
        c->out = m.place_out("out", Grid::of(OCTAVO_U8, 1, bytes));
        if (from) c->in = m.place_in("in", data);
        c->bytes = static_cast<uint64_t>(bytes);
        return m.call(&octavo_kernels::copy, c);
      };
      trial.run(one);
    }
  trial.finish();
}

namespace {

// Each row has a scale of its own. Its values are the largest one that does not saturate, the
// largest code's, their neighbours, and the smallest numbers.
Case limits_case(uint32_t codes, const std::vector<float> &scales) {
  const auto rows = static_cast<int64_t>(scales.size());
  Grid in = Grid::of(OCTAVO_F32, rows, 13), coded = Grid::of(codes, rows, 13);
  Grid factors = scales_of(OCTAVO_PER_ROW, rows, 13);
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = scales[static_cast<size_t>(r)];
    factors.put(r, 0, scale);
    const double largest = static_cast<double>(scale) * static_cast<double>(largest_of(codes));
    const auto code = static_cast<float>(largest);
    const auto limit = static_cast<float>(largest * (1 + 0x1p-20));
    const float values[] = {limit,
                            std::nextafter(limit, kInfinity),
                            std::nextafter(limit, 0.0f),
                            code,
                            std::nextafter(code, kInfinity),
                            -limit,
                            kNan,
                            0x1p-149f,
                            -0x1p-149f,
                            0.0f,
                            -0.0f,
                            kInfinity,
                            -std::nextafter(limit, kInfinity)};
    for (int64_t c = 0; c < in.cols; ++c) {
      in.put(r, c, values[c]);
      coded.put(r, c, values[c] / scale);
    }
  }
  Case one;
  one.variant = text("scales of rows, ", name_of(codes), ", at the limit");
  one.name = text("quantize_stats, ", one.variant);
  one.question = asking(OCTAVO_KIND_QUANTIZE_STATS, codes, OCTAVO_PER_ROW);
  one.body = [=](Operands &m) {
    auto *c = m.make<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
    c->in = m.in("in", in);
    c->codes = m.in("codes", coded);
    c->scale_inv = m.scale_in("scale_inv", factors, OCTAVO_PER_ROW);
    c->saturated = m.values_out("saturated", {3});
    c->underflow = m.values_out("underflow", {4});
    c->workspace = m.workspace(c);
    return m.call(&octavo_kernels::quantize_stats, c);
  };
  return one;
}

}  // namespace

// saturated and underflow are counts, exact up to 2^24. The squares are exact to the bit where
// whole numbers make them; elsewhere a relative error of 2^-20 leaves room for any order of a sum
// in float32 of partial sums in float64.
void check_stats(const Bench &bench) {
  Trial trial(bench, "quantize_stats");
  uint64_t seed = bench.seed * 400;
  for (const uint32_t dtype : kPlain)
    for (const uint32_t codes : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16})
      for (const uint32_t granularity :
           {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128,
            OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32})
        for (const int kind : {0, 1, 2}) {
          if (codes == OCTAVO_F16 && is_block(granularity)) continue;
          Grid in = Grid::of(dtype, 33, 140, 1);
          spread(in, ++seed, kind == 1 ? -14 : -4, 12);
          if (kind == 2) spoil(in, true, true);
          const Grid scales = any_scales(granularity, 40, 150, seed);
          Grid coded = Grid::of(codes, 40, 150, 2);
          coded.fill(0);
          for (int64_t r = 0; r < in.rows; ++r)
            for (int64_t c = 0; c < in.cols; ++c)
              coded.put(r, c, in.at(r, c) / scale_at(scales, granularity, coded, r, c));
          Case one;
          one.name = text("quantize_stats of ", name_of(dtype), " and ", name_of(codes), ", ",
                          granularity_name(granularity));
          one.variant =
              text(granularity_name(granularity), ", ", name_of(codes), ", ", name_of(dtype));
          one.question = asking(OCTAVO_KIND_QUANTIZE_STATS, codes, granularity);
          one.body = [=](Operands &m) {
            auto *c = m.make<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
            c->in = m.in("in", in);
            c->codes = m.in("codes", coded);
            c->scale_inv = m.scale_in("scale_inv", scales, granularity);
            c->saturated = m.values_out("saturated", {3});
            if (kind != 1) c->underflow = m.values_out("underflow", {4});
            c->signal = m.values_out("signal", {5});
            if (kind != 2) c->noise = m.values_out("noise", {6});
            c->workspace = m.workspace(c);
            return m.call(&octavo_kernels::quantize_stats, c);
          };
          one.judge = [](const Results &expected, const Results &found) -> std::string {
            for (size_t i = 0; i < expected.size(); ++i) {
              const float e = expected[i].grid.at(0, 0), f = found[i].grid.at(0, 0);
              const bool counts =
                  expected[i].name == "saturated" || expected[i].name == "underflow";
              if (!(std::abs(f - e) <= (counts ? 0 : std::abs(e) * 0x1p-20f)))
                return text(expected[i].name, ": expected ", e, ", found ", f);
            }
            return {};
          };
          trial.run(one);
        }
  // At the limit and beside it, for scales whose product with it is rounded either way.
  std::vector<float> scales = {0x1p-149f, 0x1p-130f, 1.0f, 0x1p119f, kInfinity, kNan, 0.0f};
  Numbers numbers(seed);
  for (int i = 0; i < 24; ++i) scales.push_back(std::abs(numbers.spread(-9, 9)));
  for (const uint32_t codes : {OCTAVO_E4M3FN, OCTAVO_E5M2}) trial.run(limits_case(codes, scales));
  trial.finish();
}

}  // namespace octavo::conformance::kernels
