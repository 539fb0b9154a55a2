// The pieces of msamp's workspaces; see plugins/common/layout.h.
#pragma once

#include "msamp.h"
#include "plugins/common/layout.h"

namespace octavo::msamp {

using plugin::Carver;
using plugin::make_call;
using plugin::Saved;
using plugin::Shape;

inline const Parameter &weight_of(const octavo_session &s, uint32_t linear) {
  return s.parameters[s.linears[linear].weight];
}
Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m);

// Codes of the weight as one GEMM wants them, when no slot holds them.
struct WeightPiece {
  octavo_tensor codes;
  octavo_scale scale_inv;
};

struct ForwardPieces {
  octavo_scale x_scale_inv;  // when nothing is saved
  octavo_tensor bias;        // f32 [1, np], when the kernels pad
  octavo_tensor y;           // f32 [mp, np], likewise
  WeightPiece w;             // [np, kp]
  octavo_tensor x;           // codes [mp, kp]
  void *kernel = nullptr;    // workspace of one kernel at a time
};
ForwardPieces forward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                             Carver &carver);

struct BackwardPieces {
  octavo_scale dy_scale_inv;
  octavo_tensor column_sums;  // f32 [1, n]
  octavo_tensor dw;           // f32 [np, kp]
  WeightPiece w_t;            // [kp, np]
  octavo_tensor dx;           // f32 [mp, kp], when the kernels pad
  octavo_tensor dy;           // codes [mp, np]
  octavo_tensor dy_t;         // codes [np, mp]
  void *kernel = nullptr;
};
BackwardPieces backward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                               Carver &carver);

inline octavo_scale scale_at(void *const *slots, const Place &place) {
  return {at(slots, place), 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
}

// Codes of the weight for fprop [np, kp] and for dgrad [kp, np].
struct WeightCodes {
  octavo_tensor codes;
  octavo_scale scale_inv;
};
octavo_status weight_rows(const octavo_session &s, void *stream, void *const *slots,
                          const Linear &l, const Shape &shape, ForwardPieces &pieces,
                          WeightCodes *out);
octavo_status weight_columns(const octavo_session &s, void *stream, void *const *slots,
                             const Linear &l, const Shape &shape, BackwardPieces &pieces,
                             WeightCodes *out);

// Casts with the rule applied to the tensor itself: windows of 1.
struct TensorCast {
  octavo_tensor in;
  const float *in_scale_inv = nullptr;
  octavo_tensor *out = nullptr;
  octavo_tensor *out_t = nullptr;
  octavo_scale out_scale_inv{};
  float *nonfinite = nullptr;
  bool keep_positive = false;
  void *workspace = nullptr;
};
octavo_status cast_by_rule(const octavo_session &s, void *stream, const TensorCast &c);
// E4M3 codes to E4M3 codes, moved and transposed but not changed; out_scale_inv receives 1.
octavo_status move_codes(const octavo_session &s, void *stream, const TensorCast &c);

}  // namespace octavo::msamp
