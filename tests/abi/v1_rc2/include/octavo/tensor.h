/* octavo/tensor.h: dtypes, devices, matrix views, and the scales of quantized tensors.
 *
 * Every tensor is a row-major matrix; host adapters flatten leading dimensions. The codes of a
 * quantized tensor are always passed together with the scale_inv they were produced with.
 *
 * Alignment: slots, `saved`, workspaces and weights start at a multiple of 256 bytes on devices and
 * of 64 bytes on CPUs, which the allocators of all frameworks provide. A part of a tensor (one
 * expert, one column of a pooled slot) is aligned to its element size only.
 */
#ifndef OCTAVO_TENSOR_H
#define OCTAVO_TENSOR_H

#include "octavo/abi.h"

/* A dtype is DLPack's type code, and the width in bits times 256. The fn and fnuz variants of a
 * format are therefore different dtypes. */
#define OCTAVO_I32 0x2000u
#define OCTAVO_U8 0x0801u
#define OCTAVO_F16 0x1002u
#define OCTAVO_F32 0x2002u
#define OCTAVO_BF16 0x1004u
#define OCTAVO_E4M3FN 0x080Au  /* float8_e4m3fn: max 448, no infinity */
#define OCTAVO_E5M2 0x080Cu    /* float8_e5m2: max 57344 */
#define OCTAVO_E8M0FNU 0x080Eu /* float8_e8m0fnu: a power of two, for scales only */
/* The width of an element in bits. */
#define OCTAVO_DTYPE_BITS(dtype) ((uint32_t)(dtype) >> 8)

/* The bit that represents a dtype in octavo_kernels_caps.dtypes. */
#define OCTAVO_DTYPE_BIT(dtype) (UINT64_C(1) << ((((dtype)&0xFFu) << 1) + ((dtype) >> 13)))

/* Device types, with the values of DLPack. */
enum { OCTAVO_DEVICE_AUTO = 0, OCTAVO_DEVICE_CPU = 1, OCTAVO_DEVICE_CUDA = 2 };

/* A device. Frozen. */
typedef struct octavo_device {
  uint32_t type; /* OCTAVO_DEVICE_... */
  int32_t index;
} octavo_device;

/* A view of a row-major matrix, 40 bytes. The memory belongs to the caller and is borrowed for the
 * duration of the call. rows may be 0, with `data` null (an expert without tokens); every hot
 * function accepts that. Frozen. */
typedef struct octavo_tensor {
  void *data;
  int64_t rows;
  int64_t cols;
  int64_t stride; /* distance between the starts of two rows, in elements; >= cols */
  uint32_t dtype; /* OCTAVO_F32, ... */
  uint32_t reserved;
} octavo_tensor;

/* How many elements share one scale. A block granularity RxC has one scale per block of R rows and
 * C columns, stored as a matrix [ceil(rows / R), ceil(cols / C)]: f32 for blocks of 128,
 * OCTAVO_E8M0FNU for blocks of 32. */
enum {
  OCTAVO_PER_TENSOR = 0,
  OCTAVO_PER_ROW = 1, /* f32 [rows, 1]; octavo_scale.stride is the distance between rows */
  OCTAVO_BLOCK_1X128 = 2,
  OCTAVO_BLOCK_128X128 = 3,
  OCTAVO_BLOCK_1X32 = 4,
  /* The next two group the elements of a dense matrix in memory order, across rows; the last group
   * may be shorter. They are for optimizer states, not for GEMMs. */
  OCTAVO_FLAT_256 = 5,     /* one f32 per 256 elements */
  OCTAVO_EXPANDED_128 = 6, /* f32 [groups of 128, 3]: scale_inv, exponent k, center c.
                             value = sign(code) * pow(abs(code) * scale_inv, 1 / k) * c
                             (dynamic range expansion; COAT, section 4) */
  OCTAVO_BLOCK_32X32 = 7
};

/* The dequantization multipliers of a quantized tensor: value = code * scale_inv. 24 bytes. Frozen.
 */
typedef struct octavo_scale {
  void *data;           /* device memory; one element with OCTAVO_PER_TENSOR */
  int64_t stride;       /* in elements, between rows of scales; 0 with OCTAVO_PER_TENSOR */
  uint32_t dtype;       /* OCTAVO_F32 or OCTAVO_E8M0FNU */
  uint32_t granularity; /* OCTAVO_PER_TENSOR, ... */
} octavo_scale;

/* A size in bytes as a function of the number of rows M of a call:
 *   bytes(M) = round_up(M, row_multiple) * bytes_per_row + fixed_bytes
 * It is a formula rather than a query, so that a tracing compiler can evaluate it symbolically.
 * octavo_extent_bytes evaluates it. One that a plan states for the first row_multiple rows is at
 * most 2^47, as is weight_workspace: more than a process can address. Frozen. */
typedef struct octavo_extent {
  uint64_t row_multiple; /* 1 to 2^20 */
  uint64_t bytes_per_row;
  uint64_t fixed_bytes;
} octavo_extent;

#endif
