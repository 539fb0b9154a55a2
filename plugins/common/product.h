// One GEMM of a linear layer, whatever shapes the kernels can take.
#pragma once

#include "layout.h"

namespace octavo::plugin {

// d = a b^T, with a as [K, M] and b as [K, N] where `layout` says so. Where the kernels need
// aligned shapes, a and b are larger than d: then the product goes through `padded`, and the part
// that is real is copied or added to d: the same bits as without padding.
struct Product {
  octavo_tensor a;
  const octavo_scale *a_scale_inv = nullptr;
  octavo_tensor b;
  const octavo_scale *b_scale_inv = nullptr;
  octavo_tensor *d = nullptr;       // where the host wants it
  octavo_tensor *padded = nullptr;  // f32 in the workspace, or room for it; used when larger
  const octavo_tensor *bias = nullptr;
  octavo_tensor *padded_bias = nullptr;
  bool bias_after = false;
  bool accumulate = false;
  bool fast_accumulation = false;
  uint32_t layout = 0;  // OCTAVO_GEMM_...
  void *workspace = nullptr;
};
octavo_status multiply(const Device &device, void *stream, const Product &p);

// out = in * scale_inv, or added to out; scale_inv may be null.
octavo_status dequantize(const Device &device, void *stream, const octavo_tensor &in,
                         const octavo_scale *scale_inv, octavo_tensor *out, bool accumulate);

// db = column sums of dy, or added to it; `sums` is f32 [1, N] in the workspace.
octavo_status bias_gradient(const Device &device, void *stream, const octavo_tensor &dy,
                            const octavo_tensor &sums, octavo_tensor *db, bool accumulate);

// Zero bytes, which are 0 in every dtype.
octavo_status clear(const Device &device, void *stream, void *out, uint64_t bytes);

}  // namespace octavo::plugin
