// The forward pass in two steps: the operands with the cast of x, then the product.
//
// A caller that has x in another form (octavo.fused/1) replaces the cast: it runs
// prologue_quantize with `ForwardOperands::cast`, then forward_product.
#pragma once

#include "layout.h"

namespace octavo::te {

// The tensors of one FP8 forward, with the call that casts x. `cast` points into the struct, so it
// stays where prepare_forward filled it.
struct ForwardOperands {
  ForwardOperands() = default;
  ForwardOperands(const ForwardOperands &) = delete;
  ForwardOperands &operator=(const ForwardOperands &) = delete;

  Shape shape{};
  ForwardPieces pieces{};
  Saved saved{};
  octavo_tensor x{};             // row codes [mp, kp], in the workspace or in `saved`
  octavo_scale x_scale_inv{};    // of x
  octavo_tensor x_t{};           // codes [kp, saved_m], in `saved`
  octavo_scale x_t_scale_inv{};  // of x_t
  bool casts = false;            // whether anything reads codes of x in this call
  bool reads_x = false;          // whether anything but that cast reads x: fprop, or statistics
  octavo_quantize cast{};        // in = the call's x
};

// Whether the host need not have x in its own precision: backward does not ask for it.
bool can_fuse(const octavo_session &s, uint32_t linear);

// Checks the call and fills `out`; touches nothing else. An error was reported when it returns.
octavo_status prepare_forward(const octavo_session &s, const octavo_forward_call &c,
                              ForwardOperands *out);
// x to codes, where something reads them; telemetry of that cast, where the host asks for it.
octavo_status cast_input(const octavo_session &s, const octavo_forward_call &c,
                         const ForwardOperands &operands);
// y = x w^T + bias from codes or, where the recipe or an evaluation says so, from plain operands.
octavo_status forward_product(const octavo_session &s, const octavo_forward_call &c,
                              ForwardOperands &operands);

}  // namespace octavo::te
