// libFuzzer target of the numbers in tensors, scales, histories and counters: the CPU kernels, on
// the baseline and on the best level of this CPU. Both must refuse alike and leave the same bits.
//
// The first bytes of an input choose a call, its formats and its shape, the others are the content
// of its memory, again and again. Each piece of memory has the size that the contract states.
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/cpu/table.h"
#include "octavo/draft/optimizer.h"
#include "octavo/draft/rounding.h"
#include "octavo/hpp/text.hpp"
#include "pieces.h"
#include "tests/fuzz/c_abi/script.h"
#include "tests/support/draft_calls.h"

namespace octavo::fuzz {
namespace {

constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kGranularities[] = {OCTAVO_PER_TENSOR,    OCTAVO_PER_ROW,    OCTAVO_BLOCK_1X128,
                                       OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32};
constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_GIVEN,  OCTAVO_RULE_POW2,
                               OCTAVO_RULE_MX_UP,    OCTAVO_RULE_MSAMP,  OCTAVO_RULE_RECIPROCAL,
                               OCTAVO_RULE_MX_FLOOR, OCTAVO_RULE_MSAMP04};

// What an input says of a call; read once, before either side.
struct Choice {
  uint32_t call;
  uint32_t plain, code, any;
  uint32_t granularity, granularity_t, rule;
  uint32_t flags;
  int64_t rows, cols;
};

Choice choose(Script &s) {
  static constexpr int64_t kRows[] = {1, 2, 3, 5, 31, 33};
  static constexpr int64_t kCols[] = {1, 7, 16, 33, 64, 129};
  Choice c{};
  c.call = s.byte();
  c.plain = kPlain[s.below(3)];
  c.code = kCodes[s.below(3)];
  c.any = kAny[s.below(5)];
  c.granularity = kGranularities[s.below(6)];
  c.granularity_t = kGranularities[s.below(6)];
  c.rule = kRules[s.below(8)];
  c.flags = s.word();
  c.rows = kRows[s.below(6)];
  c.cols = kCols[s.below(6)];
  return c;
}

const octavo_kernels &table() {
  return *octavo_cpu_kernels();
}

octavo_status quantize(void *ctx, const Choice &choice, Pieces &m) {
  auto c = make<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = m.tensor(choice.any, choice.rows, choice.cols);
  if ((choice.flags & 1) != 0) c.in_scale_inv = m.multipliers();
  const int64_t more = choice.flags >> 1 & 1;
  if ((choice.flags & 4) == 0) {
    c.out = m.tensor(choice.code, choice.rows + more, choice.cols + more);
    c.out_scale_inv = m.scale(choice.granularity, c.out->rows, c.out->cols);
  }
  if ((choice.flags & 8) != 0) {
    c.out_t = m.tensor(choice.code, choice.cols + more, choice.rows + more);
    c.out_t_scale_inv = m.scale(choice.granularity_t, c.out_t->rows, c.out_t->cols);
  }
  if ((choice.flags & 16) != 0) c.scale = m.multipliers();
  if ((choice.flags & 32) != 0) c.counter = m.floats();
  c.window = 4;
  c.amax = m.floats();
  c.nonfinite = m.floats();
  c.rule = choice.rule;
  c.format_max = largest_of(choice.code);
  c.flags = choice.flags >> 6 & 1;
  return table().quantize(ctx, &c);
}

octavo_status read_codes(void *ctx, const Choice &choice, Pieces &m) {
  const bool turns = (choice.flags & 1) != 0;
  octavo_tensor *codes = m.tensor(choice.code, choice.rows, choice.cols);
  octavo_scale *scale_inv = m.scale(choice.granularity, choice.rows, choice.cols);
  octavo_tensor *plain = turns && choice.call % 3 == 2
                             ? m.tensor(choice.plain, choice.cols, choice.rows)
                             : m.tensor(choice.plain, choice.rows, choice.cols);
  if (choice.call % 3 == 0) {
    auto c = make<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    c.in = codes, c.scale_inv = scale_inv, c.out = plain, c.accumulate = turns ? 1 : 0;
    return table().dequantize(ctx, &c);
  }
  if (choice.call % 3 == 1) {
    auto c = make<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
    c.in = plain, c.codes = codes, c.scale_inv = scale_inv;
    c.saturated = m.floats(), c.underflow = m.floats();
    return table().quantize_stats(ctx, &c);
  }
  auto c = make<octavo_round_codes>(OCTAVO_KIND_ROUND_CODES);
  c.in = plain, c.codes = codes, c.scale_inv = scale_inv;
  c.count = m.floats(), c.key = choice.flags, c.is_transposed = turns ? 1 : 0;
  return test::draft_call(&table(), ctx, &c);
}

octavo_status scales(void *ctx, const Choice &choice, Pieces &m) {
  const auto n = static_cast<uint64_t>(choice.cols);
  if ((choice.flags & 1) != 0) {
    auto c = make<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
    c.amax = m.floats(choice.cols), c.scale = m.floats(choice.cols);
    c.scale_inv = m.floats(choice.cols), c.kept = m.floats(choice.cols);
    c.n = n, c.format_max = 448, c.divide_by = 2, c.rule = choice.rule;
    const std::vector<float> kept(c.kept, c.kept + n);
    const octavo_status status = table().scale_from_amax(ctx, &c);
    // Whatever an amax is: from a scale that can be used follows another one.
    for (size_t i = 0; status == OCTAVO_OK && choice.rule != OCTAVO_RULE_MSAMP04 && i < n; ++i)
      expect(!is_usable_amax(kept[i]) || is_usable_amax(c.scale[i]), "a finite scale above 0",
             "rule " + std::to_string(choice.rule) + ", amax " + std::to_string(c.amax[i]) +
                 ", kept " + std::to_string(kept[i]) + ", scale " + std::to_string(c.scale[i]));
    return status;
  }
  auto c = make<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
  c.amax = m.floats(choice.cols), c.history = m.floats(choice.cols * choice.rows);
  c.scale = m.floats(choice.cols);
  if ((choice.flags & 2) != 0) c.counter = m.floats(choice.cols);
  c.n = n, c.length = static_cast<uint64_t>(choice.rows), c.format_max = 57344;
  c.margin = static_cast<int32_t>(choice.flags >> 8 & 31), c.use_max = choice.flags >> 2 & 1;
  c.rule = choice.rule, c.history_flags = choice.flags >> 3 & 15;
  return table().delayed_scale_update(ctx, &c);
}

octavo_status adam(void *ctx, const Choice &choice, Pieces &m) {
  static constexpr uint32_t kStates[] = {OCTAVO_PER_TENSOR, OCTAVO_FLAT_256, OCTAVO_EXPANDED_128};
  const uint32_t states = kStates[choice.flags % 3];
  const auto state = [&](uint32_t dtype, float *&scale_inv) {
    if (dtype != OCTAVO_F32 && dtype != OCTAVO_BF16)
      scale_inv = m.multipliers(
          states == OCTAVO_EXPANDED_128 ? 3 * divide_up(choice.rows * choice.cols, 128)
          : states == OCTAVO_FLAT_256   ? divide_up(choice.rows * choice.cols, 256)
                                        : 1);
    return *m.tensor(dtype, choice.rows, choice.cols);
  };
  octavo_adam_item item{};
  item.weight = *m.tensor(choice.plain, choice.rows, choice.cols);
  if (choice.plain == OCTAVO_F16) item.weight_scale_inv = m.multipliers();
  item.gradient = *m.tensor(choice.any, choice.rows, choice.cols);
  if (choice.any != OCTAVO_F32 && choice.any != OCTAVO_BF16)
    item.gradient_scale_inv = m.multipliers();
  const uint32_t code = states == OCTAVO_PER_TENSOR ? choice.code : OCTAVO_E4M3FN;
  item.exp_avg = state((choice.flags & 64) != 0 ? OCTAVO_F32 : code, item.exp_avg_scale_inv);
  item.exp_avg_sq = state((choice.flags & 128) != 0 ? OCTAVO_F32 : code, item.exp_avg_sq_scale_inv);
  item.step = static_cast<int32_t *>(m.take(OCTAVO_F32, 1));
  item.hyper = m.floats(OCTAVO_HYPER_COUNT);
  auto c = make<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  c.items = &item, c.count = 1, c.rule = OCTAVO_RULE_MSAMP, c.state_granularity = states;
  c.decay_mode = choice.flags >> 8 & 1, c.flags = choice.flags >> 9 & 1;
  static constexpr uint32_t kHow[] = {OCTAVO_ROUND_NEAREST_EVEN, OCTAVO_ROUND_STOCHASTIC,
                                      OCTAVO_ROUND_SHRINKING, OCTAVO_ROUND_NEAREST_EVEN};
  const uint64_t key = choice.flags;
  auto r = make<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  r.step = &c, r.keys = &key;
  r.weight_rounding = kHow[choice.flags >> 10 & 1];
  r.exp_avg_rounding = kHow[choice.flags >> 12 & 3];
  r.exp_avg_sq_rounding = kHow[choice.flags >> 14 & 1];
  return test::draft_call(&table(), ctx, &r);
}

octavo_status sums(void *ctx, const Choice &choice, Pieces &m) {
  if ((choice.flags & 1) != 0) {
    auto c = make<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
    c.codes = m.take(choice.code, choice.rows * choice.cols);
    c.out = m.take(choice.code, choice.cols);
    c.count = c.shard_stride = static_cast<uint64_t>(choice.cols);
    c.shards = static_cast<uint64_t>(choice.rows), c.dtype = choice.code;
    c.saturated = m.floats(), c.added = m.floats();
    return test::draft_call(&table(), ctx, &c);
  }
  if ((choice.flags & 2) != 0) {
    auto c = make<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
    c.in = m.tensor(choice.any, choice.rows, choice.cols);
    c.amax = m.floats(), c.nonfinite = m.floats();
    return table().compute_amax(ctx, &c);
  }
  float *to[] = {m.floats(), m.floats()};
  auto c = make<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE);
  c.sum = m.floats(choice.cols), c.sum_count = static_cast<uint64_t>(choice.cols);
  c.norm = m.floats(), c.skip = m.floats(), c.grad_scale = to, c.count = 2;
  c.factor = 0.5f, c.max_norm = (choice.flags & 4) != 0 ? 1.0f : 0.0f;
  return test::draft_call(&table(), ctx, &c);
}

octavo_status product(void *ctx, const Choice &choice, Pieces &m) {
  const bool is_plain = (choice.flags & 1) != 0;
  const uint32_t dtype = is_plain ? choice.plain : choice.code;
  auto c = make<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = m.tensor(dtype, choice.rows, choice.cols);
  c.b = m.tensor((choice.flags & 2) != 0 ? choice.any : dtype, 9, choice.cols);
  if (!is_plain) {
    c.a_scale_inv = m.scale(choice.granularity, choice.rows, choice.cols);
    c.b_scale_inv = m.scale(choice.granularity_t, 9, choice.cols);
  }
  c.d = m.tensor(choice.plain, choice.rows, 9);
  if ((choice.flags & 4) != 0) c.bias = m.tensor(choice.plain, 1, 9);
  c.accumulate = choice.flags >> 3 & 1, c.bias_after = choice.flags >> 4 & 1;
  uint64_t bytes = 0;
  const octavo_status status = table().workspace_bytes(ctx, &c, &bytes);
  if (status != OCTAVO_OK) return status;
  void *workspace = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  c.workspace = workspace;
  const octavo_status done = table().gemm(ctx, &c);
  std::free(workspace);
  return done;
}

struct Verb {
  const char *name;
  octavo_status (*run)(void *ctx, const Choice &, Pieces &);
};
constexpr Verb kVerbs[] = {{"quantize", quantize}, {"codes", read_codes}, {"scales", scales},
                           {"adam", adam},         {"sums", sums},        {"gemm", product}};

void *opened(const char *level) {
  static octavo_host host{};
  host.size = sizeof(host);
  host.kind = OCTAVO_KIND_HOST;
  host.abi_major = OCTAVO_ABI_MAJOR;
  host.abi_minor = OCTAVO_ABI_MINOR;
  host.diagnose = [](void *, const octavo_diagnostic *) {};
  host.get_extension = [](void *, octavo_str) -> const void * { return nullptr; };
  if (level == nullptr)
    unsetenv("OCTAVO_FORCE_KERNELS");
  else
    setenv("OCTAVO_FORCE_KERNELS", level, 1);
  void *ctx = nullptr;
  expect(table().open_device({OCTAVO_DEVICE_CPU, 0}, &host, &ctx) == OCTAVO_OK, "kernels open");
  return ctx;
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace octavo::fuzz;
  static void *const contexts[] = {opened("baseline"), opened(nullptr)};
  Script script(data, size);
  const Choice choice = choose(script);
  const auto content = script.rest();
  const Verb &verb = kVerbs[choice.call / 3 % std::size(kVerbs)];
  Pieces baseline(content), best(content);
  const octavo_status first = verb.run(contexts[0], choice, baseline);
  const octavo_status second = verb.run(contexts[1], choice, best);
  expect(first == second, "the same status on every level",
         std::string(verb.name) + ": " + std::to_string(first) + " and " + std::to_string(second));
  baseline.expect_equal(best, verb.name);
  return 0;
}
