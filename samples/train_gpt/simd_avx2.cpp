// The inner loops for level "avx2+fma".
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

#define LANES 8
#define TILE_ROWS 6
#define TILE_VECS 2
#include "simd_kernels.inc"

namespace gpt {

const Simd kSimdAvx2 = {"avx2+fma", kRows, kCols, tile, gelu_forward, gelu_backward, softmax_row};

}  // namespace gpt
