/* octavo/tensor.h: dtypes, devices, borrowed matrices, and the scales that travel with codes.
 *
 * Everything is a row-major matrix: a host adapter flattens leading dimensions. Codes of a
 * quantized tensor never travel without the scale_inv they were made with.
 *
 * Alignment: slots, `saved`, workspaces and weights start at a multiple of 256 bytes on devices and
 * of 64 on CPUs, as allocators of frameworks give them; a part of a tensor (one expert, one column
 * of a pooled slot) is aligned to its element only.
 */
#ifndef OCTAVO_TENSOR_H
#define OCTAVO_TENSOR_H

#include "octavo/abi.h"

/* DLPack's type code and width; so the fn and fnuz variants of a format are different dtypes. */
#define OCTAVO_DTYPE(code, bits) ((uint32_t)(code) | ((uint32_t)(bits) << 8))
#define OCTAVO_DTYPE_BITS(dtype) ((uint32_t)(dtype) >> 8)
#define OCTAVO_I32 OCTAVO_DTYPE(0, 32)
#define OCTAVO_U8 OCTAVO_DTYPE(1, 8)
#define OCTAVO_F16 OCTAVO_DTYPE(2, 16)
#define OCTAVO_F32 OCTAVO_DTYPE(2, 32)
#define OCTAVO_BF16 OCTAVO_DTYPE(4, 16)
#define OCTAVO_E4M3FN OCTAVO_DTYPE(10, 8)  /* float8_e4m3fn: max 448, no infinity */
#define OCTAVO_E5M2 OCTAVO_DTYPE(12, 8)    /* float8_e5m2: max 57344 */
#define OCTAVO_E8M0FNU OCTAVO_DTYPE(14, 8) /* float8_e8m0fnu: a power of two, a scale only */

/* The bit of a dtype in octavo_kernels_caps.dtypes. */
#define OCTAVO_DTYPE_BIT(dtype) (UINT64_C(1) << ((((dtype)&0xFFu) << 1) + ((dtype) >> 13)))

/* DLPack device types. */
enum { OCTAVO_DEVICE_AUTO = 0, OCTAVO_DEVICE_CPU = 1, OCTAVO_DEVICE_CUDA = 2 };

/* One device. Frozen. */
typedef struct octavo_device {
  uint32_t type; /* OCTAVO_DEVICE_... */
  int32_t index;
} octavo_device;

/* A borrowed row-major matrix, 40 bytes; valid during the call. rows may be 0 with data null (an
 * expert without tokens): that is legal input to every hot verb. Frozen. */
typedef struct octavo_tensor {
  void *data;
  int64_t rows;
  int64_t cols;
  int64_t stride; /* elements between the starts of two rows, >= cols */
  uint32_t dtype; /* OCTAVO_F32, ... */
  uint32_t reserved;
} octavo_tensor;

/* How many elements share one scale. The scales of a block granularity RxC are a matrix
 * [ceil(rows / R), ceil(cols / C)] of the tensor beside which they lie: f32 for blocks of 128,
 * OCTAVO_E8M0FNU for blocks of 32. */
enum {
  OCTAVO_PER_TENSOR = 0,
  OCTAVO_PER_ROW = 1, /* f32 [rows, 1]: scale.stride lies between the scales of two rows */
  OCTAVO_BLOCK_1X128 = 2,
  OCTAVO_BLOCK_128X128 = 3,
  OCTAVO_BLOCK_1X32 = 4,
  /* The two below run over the elements of a dense matrix in memory order, across rows; the last
   * group may be shorter. They serve optimizer states, not GEMMs. */
  OCTAVO_FLAT_256 = 5,     /* one f32 for every 256 elements */
  OCTAVO_EXPANDED_128 = 6, /* f32 [groups of 128, 3]: scale_inv, exponent k, center c. The value is
                             sign(code) * pow(abs(code) * scale_inv, 1 / k) * c (COAT, section 4:
                             dynamic range expansion) */
  OCTAVO_BLOCK_32X32 = 7
};

/* The dequantizing multipliers of one quantized tensor: value = code * scale_inv. 24 bytes. Frozen.
 */
typedef struct octavo_scale {
  void *data;           /* device memory; one element for OCTAVO_PER_TENSOR */
  int64_t stride;       /* elements between rows of scales; 0 for OCTAVO_PER_TENSOR */
  uint32_t dtype;       /* OCTAVO_F32 or OCTAVO_E8M0FNU */
  uint32_t granularity; /* OCTAVO_PER_TENSOR, ... */
} octavo_scale;

/* A size in bytes that depends on the number of rows M of a call:
 *   bytes(M) = round_up(M, row_multiple) * bytes_per_row + fixed_bytes
 * A formula and not a query, so a tracing compiler can evaluate it symbolically. Frozen. */
typedef struct octavo_extent {
  uint64_t row_multiple; /* >= 1 */
  uint64_t bytes_per_row;
  uint64_t fixed_bytes;
} octavo_extent;

#endif
