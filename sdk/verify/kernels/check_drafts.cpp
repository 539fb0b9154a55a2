// The provisional tables of get_extension: Adam steps, MS-AMP's sums, stochastic roundings; to the
// bit. A table that is not there is not offered.
#include <cmath>

#include "checks.h"
#include "octavo/draft/one_pass.h"
#include "octavo/draft/optimizer.h"

namespace octavo::conformance::kernels {
namespace {

template <typename Table>
void expect_offered(const Side &side, const char *id) {
  if (side.get<Table>() != nullptr) return;
  not_offered(id);
  throw Skip(text("not offered: ", id));
}

Grid moments(uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed, bool positive) {
  Grid g = Grid::of(dtype, rows, cols);
  spread(g, seed, -6, 3);
  for (int64_t r = 0; positive && r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) g.put(r, c, std::abs(g.at(r, c)));
  return g;
}

struct Layout {
  const char *name;
  uint32_t weight, gradient, exp_avg, exp_avg_sq, granularity;
};
constexpr Layout kLayouts[] = {
    {"plain", OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, OCTAVO_PER_TENSOR},
    {"float8_e4m3fn and float16", OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F16,
     OCTAVO_PER_TENSOR},
    {"bfloat16", OCTAVO_BF16, OCTAVO_BF16, OCTAVO_BF16, OCTAVO_BF16, OCTAVO_PER_TENSOR},
    {"float16", OCTAVO_F16, OCTAVO_F16, OCTAVO_F16, OCTAVO_F16, OCTAVO_PER_TENSOR},
    {"float8_e5m2", OCTAVO_F32, OCTAVO_E5M2, OCTAVO_E5M2, OCTAVO_E5M2, OCTAVO_PER_TENSOR},
    {"groups of 256", OCTAVO_F32, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_FLAT_256},
    {"expanded groups of 128", OCTAVO_F32, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_E4M3FN,
     OCTAVO_EXPANDED_128}};

bool is_scaled(uint32_t dtype) {
  return dtype != OCTAVO_F32 && dtype != OCTAVO_BF16;
}

// An Adam step of one parameter.
struct Step {
  Layout l;
  uint32_t decay = OCTAVO_DECAY_DECOUPLED, flags = 0;
  float skip = 0;
  uint64_t seed = 0;

  octavo_adam_step *describe(Operands &m) const {
    auto *c = m.make<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
    auto *item = m.make<octavo_adam_item>();
    constexpr int64_t kRows = 7, kCols = 150;
    const auto one_scale = [&](const char *name, uint32_t dtype, uint32_t granularity) {
      if (!is_scaled(dtype)) return static_cast<float *>(nullptr);
      Grid scales = scales_of(granularity, kRows, kCols);
      scales.fill(0.25f);
      return reinterpret_cast<float *>(m.place_out(name, scales));
    };
    item->weight = *m.out("weight", moments(l.weight, kRows, kCols, seed, false));
    item->gradient = *m.in("gradient", moments(l.gradient, kRows, kCols, seed + 1, false));
    item->exp_avg = *m.out("exp_avg", moments(l.exp_avg, kRows, kCols, seed + 2, false));
    item->exp_avg_sq = *m.out("exp_avg_sq", moments(l.exp_avg_sq, kRows, kCols, seed + 3, true));
    item->weight_scale_inv = one_scale("weight_scale_inv", l.weight, OCTAVO_PER_TENSOR);
    if (is_scaled(l.gradient)) item->gradient_scale_inv = m.values_in("gradient_scale_inv", {0.5f});
    item->exp_avg_scale_inv = one_scale("exp_avg_scale_inv", l.exp_avg, l.granularity);
    item->exp_avg_sq_scale_inv = one_scale("exp_avg_sq_scale_inv", l.exp_avg_sq, l.granularity);
    Grid step_count = Grid::of(OCTAVO_I32, 1, 1);
    std::memset(step_count.bytes.data(), 0, 4);
    step_count.bytes[0] = 3;
    item->step = reinterpret_cast<int32_t *>(m.place_out("step", step_count));
    item->hyper = m.values_in("hyper", {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.5f, 0.0f, 0.0f});
    c->items = item;
    c->count = 1;
    c->skip = m.values_in("skip", {skip});
    c->rule = OCTAVO_RULE_MSAMP;
    c->decay_mode = decay;
    c->state_granularity = l.granularity;
    c->flags = flags;
    return c;
  }
  octavo_adam_rounded *describe_rounded(Operands &m, uint32_t rounding) const {
    auto *c = m.make<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
    c->step = describe(m);
    if (rounding == OCTAVO_ROUND_STOCHASTIC) {
      auto *key = m.make<uint64_t>();
      *key = 0x123456789ABCDEF;
      c->keys = key;
    }
    const bool shrinks = rounding == OCTAVO_ROUND_SHRINKING;
    c->weight_rounding = c->exp_avg_sq_rounding =
        shrinks ? uint32_t{OCTAVO_ROUND_NEAREST_EVEN} : rounding;
    c->exp_avg_rounding = rounding;
    return c;
  }
};
constexpr uint32_t kRoundings[] = {OCTAVO_ROUND_NEAREST_EVEN, OCTAVO_ROUND_SHRINKING,
                                   OCTAVO_ROUND_STOCHASTIC};
const char *rounding_name(uint32_t rounding) {
  return rounding == OCTAVO_ROUND_SHRINKING    ? ", shrinking"
         : rounding == OCTAVO_ROUND_STOCHASTIC ? ", stochastic"
                                               : "";
}

}  // namespace

void check_adam(const Bench &bench) {
  expect_offered<octavo_adam_kernels>(*bench.side, OCTAVO_ADAM_KERNELS_ID);
  Trial trial(bench, OCTAVO_ADAM_KERNELS_ID);
  uint64_t seed = bench.seed * 900;
  for (const Layout &l : kLayouts)
    for (const uint32_t decay :
         {uint32_t{OCTAVO_DECAY_DECOUPLED}, uint32_t{OCTAVO_DECAY_L2}, OCTAVO_DECAY_L2_MSAMP04})
      for (const uint32_t flags : {0u, uint32_t{OCTAVO_ADAM_KEEP_POSITIVE}})
        for (const float skip : {0.0f, 1.0f}) {
          if (decay == OCTAVO_DECAY_L2_MSAMP04 && l.granularity != OCTAVO_PER_TENSOR) continue;
          const Step s = {l, decay, flags, skip, seed += 10};
          Case one;
          const char *const how = decay == OCTAVO_DECAY_DECOUPLED ? ""
                                  : decay == OCTAVO_DECAY_L2      ? ", L2"
                                                                  : ", L2 of MS-AMP 0.4.0";
          one.name = text("adam_step, ", l.name, how, flags != 0 ? ", KEEP_POSITIVE" : "",
                          skip != 0 ? ", skip" : "");
          one.variant = text("adam_step, ", l.name, how);
          one.question = asking(OCTAVO_KIND_ADAM_STEP, l.exp_avg, l.granularity, flags);
          one.body = [=](Operands &m) {
            octavo_adam_step *c = s.describe(m);
            c->workspace = m.workspace(c);
            return m.call(&octavo_adam_kernels::adam_step, c);
          };
          trial.run(one);
        }
  for (const float maximum : {0.0f, 1.0f, 1000.0f})
    for (const float nonfinite : {0.0f, 1.0f}) {
      Case one;
      one.name = text("gradient_scale, max_norm ", maximum, ", nonfinite ", nonfinite);
      one.variant = "gradient_scale";
      one.question = asking(OCTAVO_KIND_GRADIENT_SCALE);
      one.body = [=](Operands &m) {
        auto *c = m.make<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE);
        c->sum = m.values_in("sum", {3.0f, 0.25f, 100.0f});
        c->sum_count = 3;
        c->nonfinite = m.values_in("nonfinite", {nonfinite});
        c->norm = m.values_out("norm", {9});
        c->skip = m.values_out("skip", {9});
        auto *targets = static_cast<float **>(static_cast<void *>(m.make<float *[2]>()));
        targets[0] = m.values_out("grad_scale", {9});
        targets[1] = m.values_out("grad_scale", {8});
        c->grad_scale = targets;
        c->count = 2;
        c->factor = 0.5f;
        c->max_norm = maximum;
        return m.call(&octavo_adam_kernels::gradient_scale, c);
      };
      trial.run(one);
    }
  trial.finish();
}

void check_msamp(const Bench &bench) {
  expect_offered<octavo_msamp_kernels>(*bench.side, OCTAVO_MSAMP_KERNELS_ID);
  Trial trial(bench, OCTAVO_MSAMP_KERNELS_ID);
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2})
    for (const int64_t count : {1, 70, 5001}) {
      Grid codes = Grid::of(dtype, 3, count, 4);
      spread(codes, bench.seed + static_cast<uint64_t>(count), -6, 8);
      Case one;
      one.name = text("sum_quantized of 3 times ", count, " ", name_of(dtype));
      one.variant = text("sum_quantized of ", name_of(dtype));
      one.question = asking(OCTAVO_KIND_SUM_QUANTIZED, dtype);
      one.body = [=](Operands &m) {
        auto *c = m.make<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
        c->codes = m.place_in("codes", codes);
        c->out = m.place_out("out", Grid::of(dtype, 1, count));
        c->count = static_cast<uint64_t>(count);
        c->shards = 3;
        c->shard_stride = static_cast<uint64_t>(codes.stride);
        c->saturated = m.values_out("saturated", {2});
        c->added = m.values_out("added", {3});
        c->dtype = dtype;
        c->count_as = count == 70 ? 2.0f : 0.0f;
        c->workspace = m.workspace(c);
        return m.call(&octavo_msamp_kernels::sum_quantized, c);
      };
      trial.run(one);
    }
  Case values;
  values.name = values.variant = "scale_values";
  values.question = asking(OCTAVO_KIND_SCALE_VALUES);
  values.body = [](Operands &m) {
    auto *c = m.make<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
    c->in = m.values_in("in", {1.5f, -3.0f, 0.0f, 0x1p-140f, 0x1p127f});
    c->out = m.values_out("out", {0, 0, 0, 0, 0});
    c->n = 5;
    c->factor = 3.7f;
    return m.call(&octavo_msamp_kernels::scale_values, c);
  };
  trial.run(values);
  for (const float saturated : {0.0f, 50.0f}) {
    Case one;
    one.name = text("prescale_update, ", saturated, " of 100000 saturated");
    one.variant = "prescale_update";
    one.question = asking(OCTAVO_KIND_PRESCALE_UPDATE);
    one.body = [=](Operands &m) {
      auto *c = m.make<octavo_prescale_update>(OCTAVO_KIND_PRESCALE_UPDATE);
      c->prescale = m.values_out("prescale", {0.0625f});
      c->saturated = m.values_out("saturated", {saturated});
      c->added = m.values_out("added", {100000});
      c->threshold = 1e-5f;
      c->growth = 1.0007f;
      c->low = 0x1p-20f;
      c->high = 1;
      return m.call(&octavo_msamp_kernels::prescale_update, c);
    };
    trial.run(one);
  }
  trial.finish();
}

void check_rounding(const Bench &bench) {
  expect_offered<octavo_rounding_kernels>(*bench.side, OCTAVO_ROUNDING_KERNELS_ID);
  Trial trial(bench, OCTAVO_ROUNDING_KERNELS_ID);
  for (const float count : {0.0f, 5.0f, 16777215.0f})
    for (const float skip : {0.0f, 1.0f}) {
      Case one;
      one.name = text("count from ", count, skip != 0 ? ", skip" : "");
      one.variant = "count";
      one.question = asking(OCTAVO_KIND_COUNT);
      one.body = [=](Operands &m) {
        auto *c = m.make<octavo_count>(OCTAVO_KIND_COUNT);
        c->count = m.values_out("count", {count});
        c->skip = m.values_in("skip", {skip});
        return m.call(&octavo_rounding_kernels::count, c);
      };
      trial.run(one);
    }
  uint64_t seed = bench.seed * 950;
  for (const Layout &l : kLayouts)
    for (const uint32_t rounding : kRoundings)
      for (const float skip : {0.0f, 1.0f}) {
        const Step s = {l, OCTAVO_DECAY_DECOUPLED, OCTAVO_ADAM_KEEP_POSITIVE, skip, seed += 10};
        Case one;
        one.variant = text("adam_rounded, ", l.name, rounding_name(rounding));
        one.name = text(one.variant, skip != 0 ? ", skip" : "");
        one.question = asking(OCTAVO_KIND_ADAM_ROUNDED, l.exp_avg, l.granularity, s.flags);
        one.body = [=](Operands &m) {
          octavo_adam_rounded *c = s.describe_rounded(m, rounding);
          c->workspace = m.workspace(c);
          return m.call(&octavo_rounding_kernels::adam_rounded, c);
        };
        trial.run(one);
      }
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16})
    for (const uint32_t codes : {OCTAVO_E4M3FN, OCTAVO_E5M2})
      for (const uint32_t granularity :
           {OCTAVO_PER_TENSOR, OCTAVO_PER_ROW, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128,
            OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32})
        for (const bool is_transposed : {false, true}) {
          Grid in = Grid::of(dtype, 17, 70, 1);
          spread(in, bench.seed + 31, -6, 4);
          Grid coded = is_transposed ? Grid::of(codes, 74, 20, 2) : Grid::of(codes, 20, 74, 2);
          coded.fill(0);
          for (int64_t r = 0; r < in.rows; ++r)
            for (int64_t c = 0; c < in.cols; ++c)
              coded.put(is_transposed ? c : r, is_transposed ? r : c, in.at(r, c) / 0.5f);
          Grid scales = scales_of(granularity, coded.rows, coded.cols);
          scales.fill(0.5f);
          Case one;
          one.variant =
              text("round_codes in ", name_of(codes), ", ", granularity_name(granularity));
          one.name = text(one.variant, " of ", name_of(dtype), is_transposed ? ", transposed" : "");
          one.question = asking(OCTAVO_KIND_ROUND_CODES, codes, granularity);
          one.body = [=](Operands &m) {
            auto *c = m.make<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);
            c->in = m.in("in", in);
            c->codes = m.out("codes", coded);
            c->scale_inv = m.scale_in("scale_inv", scales, granularity);
            c->count = m.values_in("count", {12});
            c->key = 0x123456789ABCDEF;
            c->is_transposed = is_transposed;
            return m.call(&octavo_rounding_kernels::round_codes, c);
          };
          trial.run(one);
        }
  trial.finish();
}

// Scales from a bound, of what the last step measured or what the call has to measure.
void check_one_pass(const Bench &bench) {
  expect_offered<octavo_one_pass_kernels>(*bench.side, OCTAVO_ONE_PASS_KERNELS_ID);
  Trial trial(bench, OCTAVO_ONE_PASS_KERNELS_ID);
  uint64_t seed = bench.seed * 970;
  for (const Layout &l : kLayouts)
    for (const uint32_t rounding : kRoundings)
      for (const float skip : {0.0f, 1.0f}) {
        const uint32_t flags = skip != 0 ? 0 : uint32_t{OCTAVO_ADAM_KEEP_POSITIVE};
        const Step s = {l, OCTAVO_DECAY_DECOUPLED, flags, skip, seed += 10};
        Case one;
        one.variant = text("adam_one_pass, ", l.name, rounding_name(rounding));
        one.name = text(one.variant, skip != 0 ? ", skip" : "");
        one.question = asking(OCTAVO_KIND_ADAM_ONE_PASS, l.exp_avg, l.granularity, s.flags);
        one.body = [=](Operands &m) {
          auto *c = m.make<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
          c->rounded = s.describe_rounded(m, rounding);
          auto **amax = static_cast<float **>(static_cast<void *>(m.make<float *[1]>()));
          amax[0] = m.values_out("amax", {0, 0, 0, 0});
          c->amax = amax;
          c->workspace = m.workspace(c);
          return m.call(&octavo_one_pass_kernels::adam_one_pass, c);
        };
        trial.run(one);
      }
  trial.finish();
}

}  // namespace octavo::conformance::kernels
