// One cast of an operand by the session's recipe, and what is recorded about it.
//
// A number that a cast reads is a scale; a number that lies beside codes is their scale_inv, and it
// is never computed again from a scale, since end_step may run between the cast and the use.
#pragma once

#include "layout.h"

namespace octavo::te {

// Codes, and where their scale_inv goes. Null codes: this form is not wanted.
struct Target {
  octavo_tensor *codes = nullptr;
  const octavo_scale *scale_inv = nullptr;
};

struct Cast {
  const octavo_tensor *in = nullptr;
  Target rows;     // codes as `in` lies
  Target columns;  // codes of its transpose; per tensor with the scale_inv of both
  uint32_t dtype = OCTAVO_E4M3FN;
  float *nonfinite = nullptr;
  void *workspace = nullptr;
};

// The quantize call: with the delayed scale, or by the recipe's rule from `in` itself.
octavo_quantize cast_call(const octavo_session &s, void *stream, void *const *slots,
                          const Observed &observed, const Cast &cast);

// Whether the host asks for statistics of this operand in this call.
bool wants_statistics(void *const *slots, const Observed &observed);

// Adds how well `codes` represent `in` to the statistics that the host asks for.
octavo_status record_statistics(const octavo_session &s, void *stream, void *const *slots,
                                const Observed &observed, const octavo_tensor &in,
                                const Target &codes, void *workspace);

}  // namespace octavo::te
