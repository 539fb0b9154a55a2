/* kernels/cuda/verbs.h: the entries of the kernels table, one source file for each group.
 *
 * What each does is defined in octavo/kernels.h; ctx is always a Context.
 */
#pragma once

#include "kernels/cuda/context.h"
#include "octavo/draft/msamp.h"
#include "octavo/draft/one_pass.h"

namespace octavo::cuda {

octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes);
octavo_status quantize(void *ctx, const octavo_quantize *c);
octavo_status dequantize(void *ctx, const octavo_dequantize *c);
octavo_status compute_amax(void *ctx, const octavo_compute_amax *c);
octavo_status scale_from_amax(void *ctx, const octavo_scale_from_amax *c);
octavo_status delayed_scale_update(void *ctx, const octavo_delayed_scale_update *c);
octavo_status gemm(void *ctx, const octavo_gemm *c);
octavo_status adam_step(void *ctx, const octavo_adam_step *c);
octavo_status sum_quantized(void *ctx, const octavo_sum_quantized *c);
octavo_status sum_rows(void *ctx, const octavo_sum *c);
octavo_status sum_of_squares(void *ctx, const octavo_sum *c);
octavo_status copy(void *ctx, const octavo_copy *c);
octavo_status scale_values(void *ctx, const octavo_scale_values *c);
octavo_status prescale_update(void *ctx, const octavo_prescale_update *c);
octavo_status count(void *ctx, const octavo_count *c);
octavo_status adam_rounded(void *ctx, const octavo_adam_rounded *c);
octavo_status adam_one_pass(void *ctx, const octavo_adam_one_pass *c);
octavo_status round_codes(void *ctx, const octavo_round_codes *c);
octavo_status quantize_stats(void *ctx, const octavo_quantize_stats *c);
octavo_status prologue(void *ctx, const octavo_prologue_call *c);
octavo_status prologue_quantize(void *ctx, const octavo_prologue_call *c);
octavo_status gradient_scale(void *ctx, const octavo_gradient_scale *c);
octavo_status pack(void *ctx, const octavo_pack *c);

/* octavo/memory.h. */
octavo_status allocate(void *ctx, uint64_t bytes, void **out);
void release(void *ctx, void *data);
octavo_status copy_now(void *ctx, void *to, const void *from, uint64_t bytes);
octavo_status synchronize(void *ctx);

/* octavo/draft/streams.h. */
octavo_status make_stream(void *ctx, void **out);
void destroy_stream(void *ctx, void *stream);
octavo_status order(void *ctx, void *stream, void *before);
octavo_status wait(void *ctx, void *stream);
octavo_status call_host(void *ctx, void *stream, void (*run)(void *arg), void *arg);
octavo_status begin_capture(void *ctx, void *stream);
octavo_status end_capture(void *ctx, void *stream, void **graph);
octavo_status launch(void *ctx, void *graph, void *stream);
void destroy_graph(void *ctx, void *graph);
octavo_status current_device(void *ctx, int32_t *index);
octavo_status set_current_device(void *ctx, int32_t index);

/* Bytes of workspace; the functions of DeviceLimits. */
uint64_t quantize_workspace();
uint64_t adam_workspace(const octavo_adam_step &c);
uint64_t one_pass_workspace(const octavo_adam_step &c);
uint64_t sum_quantized_workspace(const Context &context);
uint64_t sum_workspace(const octavo_sum &c);
bool gemm_workspace(const void *device, const octavo_gemm &c, uint64_t *bytes);
uint64_t prologue_workspace(const void *device, const octavo_prologue_call &c);

}  // namespace octavo::cuda
