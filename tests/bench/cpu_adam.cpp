// One Adam step of 32 M parameters: with FP8 gradient and first moment, fp16 second moment and
// master weight (11 bytes a parameter), against fp32 throughout (28 bytes). Rate: parameters.
//
// The fp32 opponents are our own table's step and a plain AVX-512 loop. "fp8_and_weight" also casts
// the master weight to the E4M3 weight that products read. "fp8_shrinking" rounds the first moment
// as msamp-fixed does; "fp8_one_pass" and "coat_one_pass" do so with scales from bounds (the draft
// call adam_one_pass; 12 bytes a parameter). "block" and "coat" have both moments in E4M3 with a
// scale for 256 elements, and with dynamic range expansion in groups of 128 (state_format of
// msamp).
#include <cmath>
#include <cstring>

#include "octavo/draft/one_pass.h"
#include "octavo/draft/optimizer.h"
#include "tests/bench/avx512.h"
#include "tests/bench/bench.h"
#include "tests/support/draft_calls.h"

namespace octavo::bench {
namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kCols = 4096;
constexpr int64_t kCount = kRows * kCols;
constexpr float kLr = 1e-4f;

octavo_tensor matrix(const std::string &name, uint32_t dtype) {
  const uint64_t bytes = static_cast<uint64_t>(kCount) * (OCTAVO_DTYPE_BITS(dtype) / 8);
  return tensor(memory(name, bytes), kRows, kCols, dtype);
}

// Small numbers keep every state ordinary however many steps a run takes.
const float *hyper() {
  static const float values[OCTAVO_HYPER_COUNT] = {kLr, 0.9f, 0.999f, 1e-8f, 0.01f, 1.0f, 0, 0};
  return values;
}

enum class Extra { kNone, kWeight, kShrinking, kOnePass };

void step_row(benchmark::State &state, octavo_adam_item item, Extra extra,
              uint32_t granularity = OCTAVO_PER_TENSOR) {
  const bool casts_weight = extra == Extra::kWeight;
  int32_t step = 100;
  item.step = &step;
  item.hyper = hyper();
  auto c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  c.items = &item;
  c.count = 1;
  c.rule = OCTAVO_RULE_MSAMP;
  c.state_granularity = granularity;
  c.workspace = workspace_of("adam.workspace", c);

  octavo_tensor weight = tensor(nullptr, kRows, kCols, OCTAVO_E4M3FN);
  float weight_scale = 83.7f;
  float weight_scale_inv = 0;
  const octavo_scale out_scale_inv = tensor_scale(&weight_scale_inv);
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  if (casts_weight) weight = matrix("adam.weight", OCTAVO_E4M3FN);
  q.in = &item.weight;
  q.in_scale_inv = item.weight_scale_inv;
  q.out = &weight;
  q.out_scale_inv = &out_scale_inv;
  q.scale = &weight_scale;
  q.format_max = 448.0f;
  q.rule = OCTAVO_RULE_GIVEN;
  auto rounded = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  rounded.step = &c;
  rounded.workspace = c.workspace;
  rounded.exp_avg_rounding = OCTAVO_ROUND_SHRINKING;
  float amax[OCTAVO_AMAX_COUNT] = {};
  float *const amaxes[] = {amax};
  auto one_pass = make_call<octavo_adam_one_pass>(OCTAVO_KIND_ADAM_ONE_PASS);
  one_pass.rounded = &rounded;
  one_pass.workspace = c.workspace;
  one_pass.amax = amaxes;
  const auto run = [&] {
    if (extra == Extra::kOnePass) return test::draft_call(&kernels(), context(), &one_pass);
    return extra == Extra::kShrinking ? test::draft_call(&kernels(), context(), &rounded)
                                      : test::draft_call(&kernels(), context(), &c);
  };
  /* The first step of one pass measures its tensors. */
  if (!passed(state, run(), "adam_step")) return;
  for (auto _ : state) {
    if (!passed(state, run(), "adam_step")) return;
    if (casts_weight && !passed(state, kernels().quantize(context(), &q), "quantize")) return;
    benchmark::ClobberMemory();
  }
  count_items(state, kCount);
}

// Repeats the first 2 MiB of a state over all of it: values without the time to make each.
void repeat_start(const octavo_tensor &t) {
  const uint64_t bytes = static_cast<uint64_t>(kCount) * (OCTAVO_DTYPE_BITS(t.dtype) / 8);
  constexpr uint64_t kPiece = uint64_t{2} << 20;
  auto *data = static_cast<char *>(t.data);
  for (uint64_t first = kPiece; first < bytes; first += kPiece) {
    std::memcpy(data + first, data, kPiece);
  }
}

// codes and scale_inv of |normals|^power
float fill_scaled(const octavo_tensor &t, bool is_square) {
  constexpr int64_t kPlain = int64_t{2} << 20;
  auto *values = memory_of<float>("adam.plain", kPlain);
  std::memcpy(values, normals("adam.normals", kPlain), kPlain * sizeof(float));
  if (is_square) {
    for (int64_t i = 0; i < kPlain; ++i) values[i] *= values[i];
  }
  const int64_t count = t.dtype == OCTAVO_F16 ? kPlain / 2 : kPlain;
  float scale = t.dtype == OCTAVO_F16 ? 1.0f : 64.0f;
  const octavo_tensor in = tensor(values, 1, count, OCTAVO_F32);
  octavo_tensor out = tensor(t.data, 1, count, t.dtype);
  if (t.dtype == OCTAVO_F16) {
    auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = &in;
    c.out = &out;
    kernels().dequantize(context(), &c);
  } else {
    float scale_inv = 0;
    const octavo_scale out_scale_inv = tensor_scale(&scale_inv);
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = &in;
    c.out = &out;
    c.out_scale_inv = &out_scale_inv;
    c.scale = &scale;
    c.format_max = 448.0f;
    c.rule = OCTAVO_RULE_GIVEN;
    kernels().quantize(context(), &c);
  }
  repeat_start(t);
  return 1.0f / scale;
}

// The master weight, the gradient and the codes of the first moment; scale_invs: of the first two.
octavo_adam_item coded_item(float *scale_invs) {
  octavo_adam_item item{};
  item.weight = matrix("adam.master", OCTAVO_F16);
  item.gradient = matrix("adam.gradient", OCTAVO_E4M3FN);
  item.exp_avg = matrix("adam.exp_avg", OCTAVO_E4M3FN);
  scale_invs[0] = fill_scaled(item.weight, false);
  scale_invs[1] = fill_scaled(item.gradient, false);
  item.weight_scale_inv = scale_invs;
  item.gradient_scale_inv = scale_invs + 1;
  return item;
}

void fp8_row(benchmark::State &state, Extra extra) {
  float scale_invs[2];
  octavo_adam_item item = coded_item(scale_invs);
  item.exp_avg_sq = matrix("adam.exp_avg_sq", OCTAVO_F16);
  float exp_avg_scale_inv = fill_scaled(item.exp_avg, false);
  float exp_avg_sq_scale_inv = fill_scaled(item.exp_avg_sq, true);
  item.exp_avg_scale_inv = &exp_avg_scale_inv;
  item.exp_avg_sq_scale_inv = &exp_avg_sq_scale_inv;
  step_row(state, item, extra);
}

// Codes and scales of a moment in groups, made from |normals|^power.
float *fill_grouped(const octavo_tensor &t, const std::string &name, uint32_t granularity,
                    bool is_square) {
  const int64_t block = granularity == OCTAVO_FLAT_256 ? 256 : 128;
  const int64_t scales = kCount / block * (granularity == OCTAVO_FLAT_256 ? 1 : 3);
  auto *scale_inv = memory_of<float>(name + ".scales", static_cast<uint64_t>(scales));
  auto *values = memory_of<float>("adam.plain.rows", kCols);
  const float *source = normals("adam.normals", int64_t{2} << 20);
  for (int64_t row = 0; row < kRows; ++row) {
    const float *from = source + row % 512 * kCols;
    for (int64_t i = 0; i < kCols; ++i) values[i] = is_square ? from[i] * from[i] : from[i];
    const octavo_tensor in = tensor(values, 1, kCols, OCTAVO_F32);
    octavo_tensor out = tensor(static_cast<uint8_t *>(t.data) + row * kCols, 1, kCols, t.dtype);
    octavo_scale where = tensor_scale(scale_inv + row * (scales / kRows));
    where.granularity = granularity;
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = &in;
    c.out = &out;
    c.out_scale_inv = &where;
    c.format_max = 448.0f;
    kernels().quantize(context(), &c);
  }
  return scale_inv;
}

void grouped_row(benchmark::State &state, uint32_t granularity, Extra extra) {
  float scale_invs[2];
  octavo_adam_item item = coded_item(scale_invs);
  item.exp_avg_sq = matrix("adam.grouped.exp_avg_sq", OCTAVO_E4M3FN);
  item.exp_avg_scale_inv = fill_grouped(item.exp_avg, "adam.grouped.m", granularity, false);
  item.exp_avg_sq_scale_inv = fill_grouped(item.exp_avg_sq, "adam.grouped.v", granularity, true);
  step_row(state, item, extra, granularity);
}

octavo_adam_item f32_item() {
  octavo_adam_item item{};
  item.weight = tensor(normals("adam.f32.weight", kCount), kRows, kCols, OCTAVO_F32);
  item.gradient = tensor(normals("adam.f32.gradient", kCount), kRows, kCols, OCTAVO_F32);
  item.exp_avg = tensor(normals("adam.f32.exp_avg", kCount), kRows, kCols, OCTAVO_F32);
  item.exp_avg_sq = matrix("adam.f32.exp_avg_sq", OCTAVO_F32);
  return item;
}

void plain_row(benchmark::State &state) {
#if defined(__x86_64__)
  if (!has_avx512()) return state.SkipWithError("this CPU has no AVX-512");
  const octavo_adam_item item = f32_item();
  const AdamConstants constants = {
      0.9f, 0.999f, kLr, std::sqrt(1.0f - 0.9f), 1e-8f, 1.0f - kLr * 0.01f};
  for (auto _ : state) {
    adam_f32(constants, static_cast<const float *>(item.gradient.data), kCount,
             static_cast<float *>(item.weight.data), static_cast<float *>(item.exp_avg.data),
             static_cast<float *>(item.exp_avg_sq.data));
    benchmark::ClobberMemory();
  }
  count_items(state, kCount);
#else
  state.SkipWithError("no AVX-512 in this build");
#endif
}

}  // namespace

void add_adam() {
  benchmark::RegisterBenchmark("Adam/fp8", fp8_row, Extra::kNone);
  benchmark::RegisterBenchmark("Adam/fp8_and_weight", fp8_row, Extra::kWeight);
  benchmark::RegisterBenchmark("Adam/fp8_shrinking", fp8_row, Extra::kShrinking);
  benchmark::RegisterBenchmark("Adam/fp8_one_pass", fp8_row, Extra::kOnePass);
  benchmark::RegisterBenchmark("Adam/coat_one_pass", grouped_row, OCTAVO_EXPANDED_128,
                               Extra::kOnePass);
  benchmark::RegisterBenchmark("Adam/block", grouped_row, OCTAVO_FLAT_256, Extra::kShrinking);
  benchmark::RegisterBenchmark("Adam/coat", grouped_row, OCTAVO_EXPANDED_128, Extra::kShrinking);
  benchmark::RegisterBenchmark("Adam/coat_nearest", grouped_row, OCTAVO_EXPANDED_128, Extra::kNone);
  benchmark::RegisterBenchmark(
      "Adam/ours_f32", [](benchmark::State &state) { step_row(state, f32_item(), Extra::kNone); });
  benchmark::RegisterBenchmark("Adam/plain_f32", plain_row);
}

}  // namespace octavo::bench
