// The inner loops for level "avx512f".
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

#define LANES 16
#define TILE_ROWS 12
#define TILE_VECS 2
#include "simd_kernels.inc"

namespace gpt {

const Simd kSimdAvx512 = {"avx512f", kRows, kCols, tile, gelu_forward, gelu_backward, softmax_row};

}  // namespace gpt
