/* octavo/tensor.h: dtypes, devices, matrix views, and the scales of quantized tensors.
 *
 * Every tensor is a row-major matrix; host adapters flatten leading dimensions. The codes of a
 * quantized tensor are always passed together with the scale_inv they were produced with.
 *
 * Alignment: `saved` and workspaces start at a multiple of OCTAVO_ALIGNMENT bytes, which nobody
 * need check. Every other address (tensors, also empty ones, slots, columns of pooled slots) is a
 * multiple of its element's size, or kernels answer OCTAVO_INVALID; they are fastest at multiples
 * of OCTAVO_ALIGNMENT. The content of a
 * workspace is undefined before and after a call; one of 0 bytes may be null.
 */
#ifndef OCTAVO_TENSOR_H
#define OCTAVO_TENSOR_H

#include "octavo/abi.h"

/* Of `saved` and workspaces, in bytes: what the allocators of all frameworks provide. */
#define OCTAVO_ALIGNMENT 64

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
/* The width of an element in bits. Elements narrower than a byte are packed, the first of a row in
 * the lowest bits; a row then begins at a byte, so strides are whole bytes. */
#define OCTAVO_DTYPE_BITS(dtype) ((uint32_t)(dtype) >> 8)
/* The bytes of `count` consecutive elements of a row, rounded up. */
#define OCTAVO_DTYPE_BYTES(dtype, count) (((uint64_t)(count)*OCTAVO_DTYPE_BITS(dtype) + 7) / 8)

/* Device types, with the values of DLPack. */
enum { OCTAVO_DEVICE_AUTO = 0, OCTAVO_DEVICE_CPU = 1, OCTAVO_DEVICE_CUDA = 2 };

/* A device. Frozen. */
typedef struct octavo_device {
  uint32_t type; /* OCTAVO_DEVICE_... */
  int32_t index;
} octavo_device;

/* A view of a row-major matrix, 40 bytes. It has (rows - 1) * stride + cols elements; what is
 * between two rows is neither read nor written. The memory belongs to the caller and is borrowed
 * for the duration of the call. rows (an expert without tokens) and, in calls of kernels, cols may
 * be 0, with `data` null and all else as it must be; every hot function accepts that, but for a
 * norm without columns. Dense: stride is cols, or there is at most one row. Frozen. */
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
  OCTAVO_PER_ROW = 1, /* f32 [rows, 1]; octavo_scale.stride is the distance between rows, >= 1 */
  OCTAVO_BLOCK_1X128 = 2,
  OCTAVO_BLOCK_128X128 = 3,
  OCTAVO_BLOCK_1X32 = 4,
  OCTAVO_FLAT_256 = 5, /* f32, one per 256 elements of a dense matrix in memory order, across rows;
                          the last group may be shorter. E4M3 codes of optimizer states, not for
                          GEMMs: scale_inv = fl32(max(amax, 1e-12) / 448) with the largest finite
                          magnitude as amax, code of fl32(value / scale_inv) */
  OCTAVO_BLOCK_32X32 = 6
};

/* The order of block scales in memory. Other orders are those of hardware, each with its size where
 * it is defined; kernels refuse one that they do not know. */
enum { OCTAVO_SCALES_ROW_MAJOR = 0 };

/* The dequantization multipliers of a quantized tensor: value = code * scale_inv, and with a second
 * level what its granularity states. 40 bytes. Frozen. */
typedef struct octavo_scale {
  void *data;           /* device memory; one element with OCTAVO_PER_TENSOR */
  int64_t stride;       /* in elements, between rows of scales, at least the scales of one row;
                           0 or 1 with OCTAVO_PER_TENSOR and OCTAVO_FLAT_256, where another value is
                           refused */
  uint32_t dtype;       /* OCTAVO_E8M0FNU with blocks of 32, otherwise OCTAVO_F32 */
  uint32_t granularity; /* OCTAVO_PER_TENSOR, ... */
  float *second;        /* second level: one f32 for the tensor, in device memory; null: there is
                           none, as with every granularity of this header */
  uint32_t order;       /* OCTAVO_SCALES_... */
  uint32_t reserved;
} octavo_scale;

/* Initializer of an octavo_scale with one level, in row-major order. */
#define OCTAVO_SCALE(data, stride, dtype, granularity) \
  { (data), (stride), (dtype), (granularity), 0, OCTAVO_SCALES_ROW_MAJOR, 0 }

/* A size in bytes as a function of the number of rows M of a call:
 *   bytes(M) = round_up(M, row_multiple) * bytes_per_row + fixed_bytes
 * It is a formula rather than a query, so that a tracing compiler can evaluate it symbolically.
 * octavo_extent_bytes of octavo.h evaluates it. One that a plan states for the first row_multiple
 * rows is at most 2^47, as is weight_workspace: more than a process can address. Frozen. */
typedef struct octavo_extent {
  uint64_t row_multiple; /* 1 to 2^20 */
  uint64_t bytes_per_row;
  uint64_t fixed_bytes;
} octavo_extent;

#endif
