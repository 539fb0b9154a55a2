/* The table of the CUDA kernels, complete: no entry is null.
 *
 * workspace_bytes looks at shapes only, so hosts may ask before they allocate anything.
 */
#include "kernels/cuda/table.h"

#include "kernels/check/calls.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/verbs.h"
#include "octavo/draft/streams.h"

namespace octavo::cuda {
namespace {

OCTAVO_RANGE_NAME(quantize)
OCTAVO_RANGE_NAME(dequantize)
OCTAVO_RANGE_NAME(compute_amax)
OCTAVO_RANGE_NAME(scale_from_amax)
OCTAVO_RANGE_NAME(delayed_scale_update)
OCTAVO_RANGE_NAME(gemm)
OCTAVO_RANGE_NAME(adam_step)
OCTAVO_RANGE_NAME(sum_quantized)
OCTAVO_RANGE_NAME(sum_rows)
OCTAVO_RANGE_NAME(sum_of_squares)
OCTAVO_RANGE_NAME(copy)
OCTAVO_RANGE_NAME(scale_values)
OCTAVO_RANGE_NAME(prescale_update)
OCTAVO_RANGE_NAME(adam_rounded)
OCTAVO_RANGE_NAME(round_codes)
OCTAVO_RANGE_NAME(count)
OCTAVO_RANGE_NAME(adam_one_pass)
OCTAVO_RANGE_NAME(quantize_stats)
OCTAVO_RANGE_NAME(prologue)
OCTAVO_RANGE_NAME(prologue_quantize)
OCTAVO_RANGE_NAME(gradient_scale)

#define OCTAVO_DRAFT(verb) OCTAVO_RANGED(verb, octavo_##verb)
constexpr octavo_adam_kernels kAdam = {sizeof(octavo_adam_kernels), OCTAVO_KIND_ADAM_KERNELS,
                                       OCTAVO_DRAFT(adam_step), OCTAVO_DRAFT(gradient_scale),
                                       OCTAVO_RANGED(sum_of_squares, octavo_sum)};
constexpr octavo_msamp_kernels kMsamp = {sizeof(octavo_msamp_kernels), OCTAVO_KIND_MSAMP_KERNELS,
                                         OCTAVO_DRAFT(sum_quantized), OCTAVO_DRAFT(scale_values),
                                         OCTAVO_DRAFT(prescale_update)};
constexpr octavo_rounding_kernels kRounding = {
    sizeof(octavo_rounding_kernels), OCTAVO_KIND_ROUNDING_KERNELS, OCTAVO_DRAFT(adam_rounded),
    OCTAVO_DRAFT(round_codes), OCTAVO_DRAFT(count)};
constexpr octavo_one_pass_kernels kOnePass = {
    sizeof(octavo_one_pass_kernels), OCTAVO_KIND_ONE_PASS_KERNELS, OCTAVO_DRAFT(adam_one_pass)};
#undef OCTAVO_DRAFT
constexpr octavo_streams kStreams = {sizeof(octavo_streams),
                                     OCTAVO_KIND_STREAMS,
                                     make_stream,
                                     destroy_stream,
                                     order,
                                     wait,
                                     call_host,
                                     begin_capture,
                                     end_capture,
                                     launch,
                                     destroy_graph,
                                     current_device,
                                     set_current_device};

const void *get_extension(void *, octavo_str id) {
  return table_of_id(id, {{OCTAVO_ADAM_KERNELS_ID, &kAdam},
                          {OCTAVO_MSAMP_KERNELS_ID, &kMsamp},
                          {OCTAVO_ROUNDING_KERNELS_ID, &kRounding},
                          {OCTAVO_ONE_PASS_KERNELS_ID, &kOnePass},
                          {OCTAVO_STREAMS_ID, &kStreams}});
}

constexpr octavo_kernels kTable = {sizeof(octavo_kernels),
                                   OCTAVO_KIND_KERNELS,
                                   probe_device,
                                   open_device,
                                   close_device,
                                   describe,
                                   ability,
                                   workspace_bytes,
                                   OCTAVO_RANGED(quantize, octavo_quantize),
                                   OCTAVO_RANGED(dequantize, octavo_dequantize),
                                   OCTAVO_RANGED(compute_amax, octavo_compute_amax),
                                   OCTAVO_RANGED(scale_from_amax, octavo_scale_from_amax),
                                   OCTAVO_RANGED(delayed_scale_update, octavo_delayed_scale_update),
                                   OCTAVO_RANGED(gemm, octavo_gemm),
                                   OCTAVO_RANGED(sum_rows, octavo_sum),
                                   OCTAVO_RANGED(copy, octavo_copy),
                                   OCTAVO_RANGED(quantize_stats, octavo_quantize_stats),
                                   OCTAVO_RANGED(prologue, octavo_prologue_call),
                                   OCTAVO_RANGED(prologue_quantize, octavo_prologue_call),
                                   pack,
                                   get_extension};

octavo_status ask_adam(const Caller &caller, const octavo_adam_step *c, uint64_t *bytes) {
  Check check(caller, "workspace_bytes of adam_step");
  if (check.call(c) && c->count > 0) check.not_null(c->items, "items");
  if (check.ok()) *bytes = adam_workspace(*c);
  return check.status();
}

octavo_status ask_adam_rounded(const Caller &caller, const octavo_adam_rounded *c,
                               uint64_t *bytes) {
  Check check(caller, "workspace_bytes of adam_rounded");
  if (check.call(c)) check.not_null(c->step, "step");
  return check.ok() ? ask_adam(caller, c->step, bytes) : check.status();
}

octavo_status ask_adam_one_pass(const Caller &caller, const octavo_adam_one_pass *c,
                                uint64_t *bytes) {
  Check check(caller, "workspace_bytes of adam_one_pass");
  if (check.call(c)) check.not_null(c->rounded, "rounded");
  const octavo_status status =
      check.ok() ? ask_adam_rounded(caller, c->rounded, bytes) : check.status();
  if (status == OCTAVO_OK) *bytes = one_pass_workspace(*c->rounded->step);
  return status;
}

octavo_status ask_sum(const Caller &caller, const octavo_sum *c, uint64_t *bytes) {
  Check check(caller, "workspace_bytes of sum_rows and sum_of_squares");
  if (check.call(c)) check.not_null(c->in, "in");
  if (check.ok()) *bytes = sum_workspace(*c);
  return check.status();
}

}  // namespace

octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  const Context &context = context_of(ctx);
  const octavo_status status = check_workspace_bytes(context.caller, call, context.limits, bytes);
  if (status != OCTAVO_OK) return status;
  switch (kind_of(call)) {
    case OCTAVO_KIND_GEMM:
      return check_gemm_workspace(context.caller, static_cast<const octavo_gemm *>(call),
                                  context.limits, bytes);
    case OCTAVO_KIND_PROLOGUE_CALL:
      return check_prologue_workspace(
          context.caller, static_cast<const octavo_prologue_call *>(call), context.limits, bytes);
    case OCTAVO_KIND_QUANTIZE: *bytes = quantize_workspace(); return OCTAVO_OK;
    case OCTAVO_KIND_ADAM_STEP:
      return ask_adam(context.caller, static_cast<const octavo_adam_step *>(call), bytes);
    case OCTAVO_KIND_ADAM_ROUNDED:
      return ask_adam_rounded(context.caller, static_cast<const octavo_adam_rounded *>(call),
                              bytes);
    case OCTAVO_KIND_ADAM_ONE_PASS:
      return ask_adam_one_pass(context.caller, static_cast<const octavo_adam_one_pass *>(call),
                               bytes);
    case OCTAVO_KIND_SUM_QUANTIZED: *bytes = sum_quantized_workspace(context); return OCTAVO_OK;
    case OCTAVO_KIND_SUM:
      return ask_sum(context.caller, static_cast<const octavo_sum *>(call), bytes);
    default: return OCTAVO_OK; /* no other verb needs any */
  }
}

octavo_status pack(void *ctx, const octavo_pack *c) {
  const Context &context = context_of(ctx);
  return check_pack(context.caller, c, context.limits); /* pack_rows is 0: always a refusal */
}

const octavo_memory *memory_table() {
  static constexpr octavo_memory kMemory = {
      sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy_now, synchronize};
  return &kMemory;
}

const octavo_kernels *table() {
  return &kTable;
}

}  // namespace octavo::cuda
