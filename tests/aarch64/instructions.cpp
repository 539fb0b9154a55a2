/* One verb of the CPU kernels, or one register tile: instructions.py counts what an emulator
 * executes between two calls of octavo_mark.
 *
 *   aarch64_instructions NAME
 *
 * The level is that of OCTAVO_FORCE_KERNELS. Prints how many elements (tiles: products) the work
 * has. Without a name: all names.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cpu/level.h"
#include "kernels/cpu/table.h"
#include "octavo/hpp/text.hpp"
#include "octavo/kernels.h"
#include "tests/support/draft_calls.h"

extern "C" __attribute__((noinline)) void octavo_mark() {
  asm volatile("");
}

namespace octavo {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kCols = 64;
constexpr int64_t kElements = kRows * kCols;
constexpr int64_t kSteps = 512; /* of K */

void expect(bool is_true, const char *what) {
  if (is_true) return;
  std::fprintf(stderr, "expected %s\n", what);
  std::exit(1);
}

/* A tensor of numbers of ordinary size. */
struct Numbers {
  std::vector<uint8_t> bytes;
  octavo_tensor tensor;

  explicit Numbers(uint32_t dtype, int64_t rows = kRows)
      : bytes(static_cast<size_t>(rows * kCols * OCTAVO_DTYPE_BITS(dtype) / 8)),
        tensor{bytes.data(), rows, kCols, kCols, dtype, 0} {
    uint32_t words[8];
    uint32_t random = 1;
    /* No exponent is extreme, and no code of 8 bits is NaN. */
    const uint32_t mask = OCTAVO_DTYPE_BITS(dtype) == 8 ? 0x07070707 : 0x07FF07FF;
    for (size_t at = 0; at < bytes.size(); at += sizeof(words)) {
      for (uint32_t &word : words) {
        random = random * 1664525u + 1013904223u;
        word = 0x38383838 | (random >> 4 & mask);
      }
      std::memcpy(bytes.data() + at, words, sizeof(words));
    }
  }
};

class Verbs {
 public:
  Verbs() {
    host_.size = sizeof(host_);
    host_.kind = OCTAVO_KIND_HOST;
    host_.abi_major = OCTAVO_ABI_MAJOR;
    host_.abi_minor = OCTAVO_ABI_MINOR;
    host_.diagnose = [](void *, const octavo_diagnostic *) {};
    host_.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
    const octavo_status status = table_->open_device({OCTAVO_DEVICE_CPU, 0}, &host_, &ctx_);
    expect(status == OCTAVO_OK, "the level of OCTAVO_FORCE_KERNELS");
  }
  ~Verbs() { table_->close_device(ctx_); }
  Verbs(const Verbs &) = delete;
  Verbs &operator=(const Verbs &) = delete;

  void quantize(uint32_t from, uint32_t to, bool turns) {
    const Numbers in(from);
    Numbers out(to);
    float inverse = 0.0f;
    float amax = 0.0f;
    const float scale = 1.7f;
    const octavo_scale scale_inv = OCTAVO_SCALE(&inverse, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
    auto c = make<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    c.in = &in.tensor;
    (turns ? c.out_t : c.out) = &out.tensor;
    c.out_scale_inv = &scale_inv;
    c.scale = &scale;
    c.amax = &amax;
    count([&] { return table_->quantize(ctx_, &c); });
  }

  void dequantize(uint32_t from, uint32_t to) {
    const Numbers in(from);
    Numbers out(to);
    float inverse = 0.3f;
    const octavo_scale scale_inv = OCTAVO_SCALE(&inverse, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
    auto c = make<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = &in.tensor;
    c.scale_inv = OCTAVO_DTYPE_BITS(from) == 8 ? &scale_inv : nullptr;
    c.out = &out.tensor;
    count([&] { return table_->dequantize(ctx_, &c); });
  }

  void sum_codes() {
    const Numbers in(OCTAVO_E4M3FN, 4 * kRows);
    Numbers out(OCTAVO_E4M3FN);
    auto c = make<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
    c.codes = in.tensor.data;
    c.out = out.tensor.data;
    c.count = c.shard_stride = kElements;
    c.shards = 4;
    c.dtype = OCTAVO_E4M3FN;
    count([&] { return test::draft_call(table_, ctx_, &c); });
  }

  /* is_msamp: the low-bit states of MS-AMP, else fp32. */
  void adam(bool is_msamp) {
    Numbers weight(is_msamp ? OCTAVO_F16 : OCTAVO_F32);
    Numbers exp_avg(is_msamp ? OCTAVO_E4M3FN : OCTAVO_F32);
    Numbers exp_avg_sq(is_msamp ? OCTAVO_F16 : OCTAVO_F32);
    const Numbers gradient(is_msamp ? OCTAVO_E4M3FN : OCTAVO_F32);
    float inverses[] = {0x1p-10f, 0x1p-12f, 0x1p-20f, 0x1p-6f};
    float hyper[OCTAVO_HYPER_COUNT] = {};
    hyper[OCTAVO_HYPER_LR] = 1e-3f;
    hyper[OCTAVO_HYPER_BETA1] = 0.9f;
    hyper[OCTAVO_HYPER_BETA2] = 0.999f;
    hyper[OCTAVO_HYPER_EPS] = 1e-8f;
    hyper[OCTAVO_HYPER_GRAD_SCALE] = 1.0f;
    int32_t step = 6;
    octavo_adam_item item = {};
    item.weight = weight.tensor;
    item.exp_avg = exp_avg.tensor;
    item.exp_avg_sq = exp_avg_sq.tensor;
    item.gradient = gradient.tensor;
    if (is_msamp) {
      item.weight_scale_inv = &inverses[0];
      item.exp_avg_scale_inv = &inverses[1];
      item.exp_avg_sq_scale_inv = &inverses[2];
      item.gradient_scale_inv = &inverses[3];
    }
    item.step = &step;
    item.hyper = hyper;
    auto c = make<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
    c.items = &item;
    c.count = 1;
    c.rule = OCTAVO_RULE_MSAMP;
    count([&] { return test::draft_call(table_, ctx_, &c); });
  }

 private:
  template <typename Verb>
  static void count(Verb verb) {
    octavo_mark();
    const octavo_status status = verb();
    octavo_mark();
    expect(status == OCTAVO_OK, "a call that succeeds");
    std::printf("%lld\n", static_cast<long long>(kElements));
  }

  const octavo_kernels *table_ = octavo_cpu_kernels();
  octavo_host host_ = {};
  void *ctx_ = nullptr;
};

/* The forced one. */
const Level &level_of_environment() {
  const char *name = std::getenv("OCTAVO_FORCE_KERNELS");
  for (int i = 0; i < kLevelCount; ++i) {
    if (name != nullptr && std::strcmp(name, kLevels[i].name) == 0) return *kLevels[i].level;
  }
  expect(false, "OCTAVO_FORCE_KERNELS");
  return *kLevels[0].level;
}

/* A whole tile; the array says of which kind. */
template <size_t kCount>
void tile(const GemmTile (Level::*tiles)[kCount]) {
  const Level &level = level_of_environment();
  const std::vector<float> a(static_cast<size_t>(kSteps * level.tile_rows), 1.0f);
  const std::vector<float> b(static_cast<size_t>(kSteps * level.tile_cols), 1.0f);
  float out[kMaxTileRows * kMaxTileCols];
  octavo_mark();
  (level.*tiles)[level.tile_rows - 1](a.data(), b.data(), kSteps, out);
  octavo_mark();
  std::printf("%lld\n", static_cast<long long>(kSteps * level.tile_rows * level.tile_cols));
}

/* Blocks of 32 elements, as MX has them: the amax of each, then codes. */
void blocks() {
  const Level &level = level_of_environment();
  const Numbers in(OCTAVO_F32);
  const Numbers out(OCTAVO_E4M3FN);
  const std::vector<float> scales(kElements / 32, 2.0f);
  std::vector<int32_t> amax(kElements / 32);
  octavo_mark();
  level.casts.measure_blocks(OCTAVO_F32, in.tensor.data, kElements, 32, amax.data());
  level.casts.quantize_blocks(OCTAVO_F32, OCTAVO_E4M3FN, in.tensor.data, kElements, 32,
                              scales.data(), out.tensor.data);
  octavo_mark();
  std::printf("%lld\n", static_cast<long long>(kElements));
}

struct Case {
  const char *name;
  void (*run)(Verbs *verbs);
};

constexpr Case kCases[] = {
    {"f32_to_e4m3", [](Verbs *v) { v->quantize(OCTAVO_F32, OCTAVO_E4M3FN, false); }},
    {"f32_to_e5m2", [](Verbs *v) { v->quantize(OCTAVO_F32, OCTAVO_E5M2, false); }},
    {"bf16_to_e4m3", [](Verbs *v) { v->quantize(OCTAVO_BF16, OCTAVO_E4M3FN, false); }},
    {"f16_to_e4m3", [](Verbs *v) { v->quantize(OCTAVO_F16, OCTAVO_E4M3FN, false); }},
    {"f32_to_e4m3_transposed", [](Verbs *v) { v->quantize(OCTAVO_F32, OCTAVO_E4M3FN, true); }},
    {"f32_to_e4m3_blocks_of_32", [](Verbs *) { blocks(); }},
    {"e4m3_to_f32", [](Verbs *v) { v->dequantize(OCTAVO_E4M3FN, OCTAVO_F32); }},
    {"e5m2_to_f32", [](Verbs *v) { v->dequantize(OCTAVO_E5M2, OCTAVO_F32); }},
    {"e4m3_to_bf16", [](Verbs *v) { v->dequantize(OCTAVO_E4M3FN, OCTAVO_BF16); }},
    {"f16_to_f32", [](Verbs *v) { v->dequantize(OCTAVO_F16, OCTAVO_F32); }},
    {"f32_to_f16", [](Verbs *v) { v->dequantize(OCTAVO_F32, OCTAVO_F16); }},
    {"sum_of_4_e4m3", [](Verbs *v) { v->sum_codes(); }},
    {"adam_f32", [](Verbs *v) { v->adam(false); }},
    {"adam_msamp", [](Verbs *v) { v->adam(true); }},
    {"tile_exact", [](Verbs *) { tile(&Level::exact); }},
    {"tile_ordered", [](Verbs *) { tile(&Level::ordered); }},
};

}  // namespace
}  // namespace octavo

int main(int argc, char **argv) {
  octavo::Verbs verbs;
  for (const octavo::Case &item : octavo::kCases) {
    if (argc < 2) std::printf("%s\n", item.name);
    if (argc >= 2 && std::strcmp(argv[1], item.name) == 0) item.run(&verbs);
  }
}
