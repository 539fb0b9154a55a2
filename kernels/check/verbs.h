/* kernels/check/verbs.h: everything that the verbs of octavo/kernels.h refuse, one function each.
 *
 * Every table of this tree calls them, so the same call is refused with the same text whatever the
 * device. They look at call structs, descriptors and addresses, at the host's arrays of items and
 * addresses, and at nothing on the device; a refused call has changed nothing. What is returned is
 * OCTAVO_OK, or the status whose text has gone to the host.
 */
#pragma once

#include "kernels/check/check.h"

namespace octavo {

/* Where devices differ. */
struct DeviceLimits {
  const char *id;     /* caps.id, for texts */
  int64_t pack_rows;  /* caps.pack_rows; 0: there is no panel order */
  bool takes_fp4;     /* octavo/draft/fp4.h */
  const void *device; /* handed to the functions below */
  /* Bytes of workspace for a gemm whose a, b and layout were checked; only their shapes and dtypes
   * and the flags may be looked at, d may be null. False: more than 2^63. */
  bool (*gemm_workspace)(const void *device, const octavo_gemm &c, uint64_t *bytes);
  /* The same for a prologue_quantize whose c.quantize->in was checked, but for its data. */
  uint64_t (*prologue_workspace)(const void *device, const octavo_prologue_call &c);
};

/* Refuses caps that are too short; fills in the id. */
octavo_status begin_describe(const Caller &caller, const char *id, octavo_kernels_caps *out);
/* Refuses a question that is too short; answers OCTAVO_ACCEPT if the checks below would let such a
 * call pass, else OCTAVO_DECLINE with the evidence. */
octavo_status begin_ability(const Caller &caller, const DeviceLimits &limits,
                            octavo_ability *question);
/* Refuses a kind that is not that of a call; *bytes becomes 0. */
octavo_status check_workspace_bytes(const Caller &caller, const void *call,
                                    const DeviceLimits &limits, uint64_t *bytes);
/* workspace_bytes of these two, for which memory without an address is legal. */
octavo_status check_gemm_workspace(const Caller &caller, const octavo_gemm *c,
                                   const DeviceLimits &limits, uint64_t *bytes);
octavo_status check_prologue_workspace(const Caller &caller, const octavo_prologue_call *c,
                                       const DeviceLimits &limits, uint64_t *bytes);

octavo_status check_quantize(const Caller &caller, const octavo_quantize *c,
                             const DeviceLimits &limits);
octavo_status check_dequantize(const Caller &caller, const octavo_dequantize *c,
                               const DeviceLimits &limits);
octavo_status check_quantize_stats(const Caller &caller, const octavo_quantize_stats *c);
octavo_status check_prologue(const Caller &caller, const octavo_prologue_call *c);
octavo_status check_prologue_quantize(const Caller &caller, const octavo_prologue_call *c,
                                      const DeviceLimits &limits);

octavo_status check_compute_amax(const Caller &caller, const octavo_compute_amax *c);
octavo_status check_scale_from_amax(const Caller &caller, const octavo_scale_from_amax *c);
octavo_status check_delayed_scale_update(const Caller &caller,
                                         const octavo_delayed_scale_update *c);
octavo_status check_prescale_update(const Caller &caller, const octavo_prescale_update *c);
octavo_status check_quantize_fp4(const Caller &caller, const octavo_quantize_fp4 *c,
                                 const DeviceLimits &limits);
octavo_status check_round_codes(const Caller &caller, const octavo_round_codes *c);
octavo_status check_count(const Caller &caller, const octavo_count *c);
octavo_status check_gradient_scale(const Caller &caller, const octavo_gradient_scale *c);

octavo_status check_gemm(const Caller &caller, const octavo_gemm *c, const DeviceLimits &limits);
octavo_status check_pack(const Caller &caller, const octavo_pack *c, const DeviceLimits &limits);

octavo_status check_adam_step(const Caller &caller, const octavo_adam_step *c);
octavo_status check_adam_rounded(const Caller &caller, const octavo_adam_rounded *c);
octavo_status check_adam_one_pass(const Caller &caller, const octavo_adam_one_pass *c);
octavo_status check_sum_quantized(const Caller &caller, const octavo_sum_quantized *c);
octavo_status check_sum_rows(const Caller &caller, const octavo_sum *c);
octavo_status check_sum_of_squares(const Caller &caller, const octavo_sum *c);
octavo_status check_copy(const Caller &caller, const octavo_copy *c);
octavo_status check_scale_values(const Caller &caller, const octavo_scale_values *c);

}  // namespace octavo
