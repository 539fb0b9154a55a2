// The inner loops for level "baseline".
#include <stddef.h>
#include <stdint.h>

#include "simd.h"

#define LANES 4
#define TILE_ROWS 4
#define TILE_VECS 2
#include "simd_kernels.inc"

namespace gpt {

const Simd kSimdBaseline = {"baseline",   kRows,         kCols,      tile,
                            gelu_forward, gelu_backward, softmax_row};

}  // namespace gpt
