/* adam_step: lists of tensors, as many in a launch as its arguments hold. */
#include "kernels/check/calls.h"
#include "kernels/cuda/device/adam.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

int64_t chunks_of(const octavo_adam_item &item) {
  const int64_t chunks = divide_up(item.weight.rows * item.weight.cols, kChunk);
  return chunks < 1 ? 1 : chunks;
}

AdamItem item_of(const octavo_adam_item &item, int64_t first_chunk) {
  return {any_tensor(item.gradient),
          {any_tensor(item.weight), any_tensor(item.exp_avg), any_tensor(item.exp_avg_sq)},
          {item.weight_scale_inv, item.exp_avg_scale_inv, item.exp_avg_sq_scale_inv},
          item.gradient_scale_inv,
          item.step,
          item.hyper,
          first_chunk};
}

constexpr uint64_t kItemBytes = 16; /* of new_scale_inv, rounded up */

/* Lists of items, as many in a launch as its arguments hold. */
void launch_adam(Launcher &l, const octavo_adam_step &c) {
  bool is_scaled = false;
  for (uint64_t i = 0; i < c.count; ++i) is_scaled = is_scaled || has_tensor_scale(c, c.items[i]);
  if (is_scaled && c.workspace == nullptr) {
    return l.fail(refuse_null_workspace(l.context().caller, "adam_step", adam_workspace(c)));
  }
  for (uint64_t first = 0; first < c.count;) {
    AdamList list = {};
    list.skip = c.skip;
    list.rule = c.rule;
    list.decay_mode = c.decay_mode;
    list.state_granularity = c.state_granularity;
    list.keeps_positive = (c.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
    list.new_scale_inv = static_cast<float(*)[kAdamTensors]>(c.workspace);
    if (c.workspace != nullptr)
      list.parts = reinterpret_cast<int32_t(*)[kAdamTensors]>(static_cast<char *>(c.workspace) +
                                                              kAdamItems * kItemBytes);
    bool measures = false;
    for (; list.count < kAdamItems && first < c.count; ++first) {
      const octavo_adam_item &item = c.items[first];
      list.items[list.count++] = item_of(item, list.chunks);
      list.chunks += chunks_of(item);
      measures = measures || has_tensor_scale(c, item);
    }
    const dim3 blocks(blocks_for(l.context(), list.chunks));
    if (measures) l.run(blocks, dim3(kThreads), measure_adam_kernel, list);
    l.run(blocks, dim3(kThreads), write_adam_kernel, list);
    l.run(dim3(1), dim3(kWarp), finish_adam_kernel, list);
  }
}

}  // namespace

/* Parts of all chunks, which launches share one after the other, then the scales of a launch. */
uint64_t adam_workspace(const octavo_adam_step &c) {
  uint64_t chunks = 0;
  for (uint64_t i = 0; i < c.count; ++i) chunks += static_cast<uint64_t>(chunks_of(c.items[i]));
  return chunks * sizeof(int32_t[kAdamTensors]) + kAdamItems * kItemBytes;
}

octavo_status adam_step(void *ctx, const octavo_adam_step *c) {
  return run_verb<check_adam_step>(ctx, "adam_step", c, [&](Launcher &l) { launch_adam(l, *c); });
}

}  // namespace octavo::cuda
