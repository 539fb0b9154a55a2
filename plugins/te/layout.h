// The pieces of te's workspaces; see plugins/common/layout.h.
#pragma once

#include "plugins/common/layout.h"
#include "te.h"

namespace octavo::te {

using plugin::Carver;
using plugin::make_call;
using plugin::Saved;
using plugin::saved_of;
using plugin::Shape;

Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m);

struct ForwardPieces {
  octavo_tensor x;           // codes [mp, kp]
  octavo_scale x_scale_inv;  // when nothing is saved
  octavo_tensor y;           // f32 [mp, np], when the kernels' shape is padded
  octavo_tensor bias;        // f32 [1, np], likewise
  void *kernel = nullptr;    // workspace of one kernel at a time
};
ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver);

struct BackwardPieces {
  octavo_tensor dy;    // codes [mp, np]
  octavo_tensor dy_t;  // codes [np, mp]
  octavo_scale dy_scale_inv;
  octavo_tensor dx;           // f32 [mp, kp], when padded
  octavo_tensor dw;           // f32 [np, kp], when padded
  octavo_tensor column_sums;  // f32 [1, n]
  void *kernel = nullptr;
};
BackwardPieces backward_pieces(const octavo_session &s, const Shape &shape, Carver &carver);

}  // namespace octavo::te
