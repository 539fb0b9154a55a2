/* adam_step: lists of tensors, as many in a launch as its arguments hold. */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/adam_one_pass.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

int64_t chunks_of(const octavo_adam_item &item) {
  const int64_t chunks = divide_up(item.weight.rows * item.weight.cols, kChunk);
  return chunks < 1 ? 1 : chunks;
}

AdamItem item_of(const octavo_adam_item &from, int64_t first_chunk) {
  const octavo_tensor *tensors[] = {&from.weight, &from.exp_avg, &from.exp_avg_sq, &from.gradient};
  AdamItem item = {};
  item.is_dense = 1;
  for (int k = 0; k <= kAdamTensors; ++k) {
    const AnyTensor t = any_tensor(*tensors[k]);
    item.data[k] = t.data;
    item.stride[k] = t.stride;
    item.dtype[k] = t.dtype;
    if (t.stride != t.cols || !is_aligned_to(16, {t.data})) item.is_dense = 0;
  }
  item.scale_inv[kWeight] = from.weight_scale_inv;
  item.scale_inv[kExpAvg] = from.exp_avg_scale_inv;
  item.scale_inv[kExpAvgSq] = from.exp_avg_sq_scale_inv;
  item.scale_inv[kGradient] = const_cast<float *>(from.gradient_scale_inv);
  item.step = from.step;
  item.hyper = from.hyper;
  item.cols = from.weight.cols;
  item.count = from.weight.rows * from.weight.cols;
  item.per_cols = 1.0 / static_cast<double>(item.cols);
  item.first_chunk = first_chunk;
  return item;
}

/* What an item adds to a launch's area of steps: no call needs more than a launch has. */
uint64_t step_bytes(uint64_t count) {
  const uint64_t most = count < kAdamItems ? count : kAdamItems;
  return (most * sizeof(AdamStep) + 15) / 16 * 16;
}

uint64_t all_chunks(const octavo_adam_step &c) {
  uint64_t chunks = 0;
  for (uint64_t i = 0; i < c.count; ++i) chunks += static_cast<uint64_t>(chunks_of(c.items[i]));
  return chunks;
}

/* What a draft call adds to an adam_step. */
struct AdamCall {
  const char *verb;
  void *workspace;
  uint32_t rounding[kAdamTensors];
  const uint64_t *keys; /* null: nothing is stochastic */
  bool is_one_pass;
  float *const *amax; /* of adam_one_pass */

  AdamRounding how() const {
    if ((rounding[kWeight] | rounding[kExpAvgSq]) != 0) return AdamRounding::kAny;
    if (rounding[kExpAvg] == 0) return AdamRounding::kNearest;
    return rounding[kExpAvg] == OCTAVO_ROUND_SHRINKING ? AdamRounding::kShrinking
                                                       : AdamRounding::kAny;
  }
};

/* The kernels of a launch. */
struct AdamKernels {
  using Kernel = void (*)(const AdamList);
  Kernel measure;
  Kernel write;
  Kernel peak;
  Kernel pass;
};

template <typename Items, AdamRounding kRounding>
constexpr AdamKernels kAdamKernels = {measure_adam_kernel<Items>,
                                      write_adam_kernel<Items, kRounding>, peak_adam_kernel<Items>,
                                      pass_adam_kernel<Items, kRounding>};

AdamKernels kernels_of(bool are_codes, AdamRounding rounding) {
  using enum AdamRounding;
  if (are_codes)
    return rounding == kNearest ? kAdamKernels<CodeItems, kNearest>
                                : kAdamKernels<CodeItems, kShrinking>;
  return rounding == kNearest ? kAdamKernels<AnyItems, kNearest> : kAdamKernels<AnyItems, kAny>;
}

/* Whether an item of the call is one of CodeItems. */
bool is_codes(const octavo_adam_step &c, const AdamItem &item) {
  for (int k = 0; k <= kAdamTensors; ++k) {
    if (item.dtype[k] != CodeItems::dtype(k)) return false;
    if (k != kGradient && item.scale_inv[k] == nullptr) return false;
  }
  return c.state_granularity == OCTAVO_PER_TENSOR && c.decay_mode == OCTAVO_DECAY_DECOUPLED &&
         item.is_dense != 0 && item.count % kPack == 0;
}

/* As many items in a launch as its arguments hold: those of CodeItems, or the others. */
void launch_adam(Launcher &l, const octavo_adam_step &c, const AdamCall &call, bool are_codes) {
  const AdamKernels kernels = kernels_of(are_codes, call.how());
  const bool may_be_codes = call.how() != AdamRounding::kAny;
  for (uint64_t first = 0; first < c.count;) {
    AdamList list = {};
    list.skip = c.skip;
    list.rule = c.rule;
    list.decay_mode = c.decay_mode;
    list.state_granularity = c.state_granularity;
    list.keeps_positive = (c.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
    for (int k = 0; k < kAdamTensors; ++k) list.rounding[k] = call.rounding[k];
    bool measures = false;
    for (; list.count < kAdamItems && c.count > first; ++first) {
      const octavo_adam_item &item = c.items[first];
      const AdamItem made = item_of(item, list.chunks);
      if ((may_be_codes && is_codes(c, made)) != are_codes) continue;
      list.items[list.count] = made;
      if (call.keys != nullptr) list.items[list.count].key = call.keys[first];
      if (call.is_one_pass && has_tensor_scale(c, item))
        list.items[list.count].amax = call.amax[first];
      ++list.count;
      list.chunks += chunks_of(item);
      measures = measures || has_tensor_scale(c, item);
    }
    if (list.count == 0) return;
    list.blocks = static_cast<int>(blocks_for(l.context(), list.chunks));
    const dim3 blocks(static_cast<unsigned>(list.blocks));
    const dim3 items(static_cast<unsigned>(list.count));
    auto *workspace = static_cast<char *>(call.workspace);
    if (measures) list.steps = reinterpret_cast<AdamStep *>(workspace);
    if (measures && call.is_one_pass) {
      list.peaks = reinterpret_cast<int32_t(*)[kAdamTensors + 1]>(workspace + step_bytes(c.count));
      l.run(blocks, dim3(kThreads), kernels.peak, list);
      l.run(items, dim3(kThreads), bound_adam_kernel, list);
      l.run(blocks, dim3(kThreads), kernels.pass, list);
      continue;
    }
    if (measures) {
      list.parts = reinterpret_cast<int32_t(*)[kAdamTensors]>(workspace + step_bytes(c.count));
      l.run(blocks, dim3(kThreads), kernels.measure, list);
      l.run(items, dim3(kThreads), scale_adam_kernel, list);
    }
    l.run(blocks, dim3(kThreads), kernels.write, list);
    if (!measures) l.run(dim3(1), dim3(kAdamItems), finish_adam_kernel, list);
  }
}

void launch_adam(Launcher &l, const octavo_adam_step &c, const AdamCall &call) {
  bool is_scaled = false;
  for (uint64_t i = 0; i < c.count; ++i) is_scaled = is_scaled || has_tensor_scale(c, c.items[i]);
  if (is_scaled && call.workspace == nullptr) {
    const uint64_t bytes = call.is_one_pass ? one_pass_workspace(c) : adam_workspace(c);
    return l.fail(refuse_null_workspace(l.context().caller, call.verb, bytes));
  }
  for (const bool are_codes : {true, false}) launch_adam(l, c, call, are_codes);
}

}  // namespace

/* The steps of a launch, then the parts of all chunks, which launches share one after the other. */
uint64_t adam_workspace(const octavo_adam_step &c) {
  return step_bytes(c.count) + all_chunks(c) * sizeof(int32_t[kAdamTensors]);
}

uint64_t one_pass_workspace(const octavo_adam_step &c) {
  return step_bytes(c.count) + all_chunks(c) * sizeof(int32_t[kAdamTensors + 1]);
}

octavo_status adam_step(void *ctx, const octavo_adam_step *c) {
  return run_verb<check_adam_step>(ctx, "adam_step", c, [&](Launcher &l) {
    launch_adam(l, *c, {"adam_step", c->workspace, {}, nullptr, false, nullptr});
  });
}

octavo_status adam_rounded(void *ctx, const octavo_adam_rounded *c) {
  return run_verb<check_adam_rounded>(ctx, "adam_rounded", c, [&](Launcher &l) {
    launch_adam(l, *c->step,
                {"adam_rounded",
                 c->workspace,
                 {c->weight_rounding, c->exp_avg_rounding, c->exp_avg_sq_rounding},
                 c->keys,
                 false,
                 nullptr});
  });
}

octavo_status adam_one_pass(void *ctx, const octavo_adam_one_pass *c) {
  return run_verb<check_adam_one_pass>(ctx, "adam_one_pass", c, [&](Launcher &l) {
    const octavo_adam_rounded &r = *c->rounded;
    launch_adam(l, *r.step,
                {"adam_one_pass",
                 c->workspace,
                 {r.weight_rounding, r.exp_avg_rounding, r.exp_avg_sq_rounding},
                 r.keys,
                 true,
                 c->amax});
  });
}

}  // namespace octavo::cuda
