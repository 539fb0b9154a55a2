// The pieces of te's workspaces and of `saved`; see plugins/common/layout.h.
#pragma once

#include "plugins/common/layout.h"
#include "te.h"

namespace octavo::te {

using plugin::Carver;
using plugin::make_call;
using plugin::Shape;

// `saved_m` is the number of rows that this linear's `saved` holds.
Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m);

// The scales of a tensor of these sizes: one, or a matrix.
int64_t scale_rows(uint32_t granularity, int64_t rows);
int64_t scale_cols(uint32_t granularity, int64_t cols);
// Their description with this address.
octavo_scale scale_of(uint32_t granularity, int64_t cols, void *data);

// What backward gets of x: nothing, its transpose for wgrad, or its rows to be dequantized.
enum class Keeps { kNothing, kColumns, kRows };
Keeps keeps(const octavo_session &s, uint32_t linear);

struct Saved {
  octavo_tensor codes;  // kColumns: [kp, saved_m], kRows: [saved_m, kp]
  octavo_scale scale_inv;
  void *rest;           // behind the scales: never read, but written, as all of `saved` is
  uint64_t rest_bytes;  // often 0
};
Saved saved_of(const octavo_session &s, uint32_t linear, const Shape &shape, void *saved);
octavo_extent saved_extent(const octavo_session &s, uint32_t linear);

struct ForwardPieces {
  octavo_tensor x;           // codes [mp, kp]
  octavo_scale x_scale_inv;  // of x
  octavo_tensor y;           // f32 [mp, np], when the kernels' shape is padded
  octavo_tensor bias;        // f32 [1, np], likewise
  void *kernel = nullptr;    // workspace of one kernel at a time
};
ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver);
// Bytes of the forward workspace, with what the kernels need: affine over multiples of 256.
uint64_t forward_bytes(const octavo_session &s, uint32_t linear, int64_t m);

struct BackwardPieces {
  octavo_tensor dy;           // codes [mp, np]
  octavo_scale dy_scale_inv;  // of dy
  octavo_tensor dy_t;         // codes [np, mp]
  octavo_scale dy_t_scale_inv;
  octavo_tensor dx;           // f32 [mp, kp], when padded
  octavo_tensor dw;           // f32 [np, kp], when padded
  octavo_tensor w;            // f32 [n, k], when dgrad runs on dequantized codes
  octavo_tensor x;            // f32 [m, k], when wgrad does
  octavo_tensor column_sums;  // f32 [1, n]
  float *amax = nullptr;      // where nothing else takes it
  void *kernel = nullptr;
};
BackwardPieces backward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                               Carver &carver);

struct WeightPieces {
  // Codes [np, kp]: what is packed for the slot, or for statistics where no slot has them.
  octavo_tensor rows;
  octavo_scale rows_scale_inv;  // of rows, where no slot has it
  void *kernel = nullptr;
};
WeightPieces weight_pieces(const octavo_session &s, const Parameter &p, Carver &carver);

}  // namespace octavo::te
