// octavo/hpp/plugin/scales.hpp: how many scales a tensor has at a granularity, and how they are
// stored.
#ifndef OCTAVO_HPP_PLUGIN_SCALES_HPP
#define OCTAVO_HPP_PLUGIN_SCALES_HPP

#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The largest value of a format that casts round to, or 2^margin below it.
inline float format_max(uint32_t dtype, int64_t margin = 0) {
  float most = dtype == OCTAVO_E5M2 ? 57344.0F : dtype == OCTAVO_F16 ? 65504.0F : 448.0F;
  for (; margin > 0; --margin) most /= 2;
  return most;
}

inline int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// To a multiple of a power of two.
inline int64_t round_up(int64_t n, int64_t power) {
  return (n + power - 1) & ~(power - 1);
}

// Rows and columns that share one scale; 0: all of them.
struct Block {
  int64_t rows;
  int64_t cols;
};
inline Block block_of(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_PER_ROW: return {1, 0};
    case OCTAVO_BLOCK_1X128: return {1, 128};
    case OCTAVO_BLOCK_128X128: return {128, 128};
    case OCTAVO_BLOCK_1X32: return {1, 32};
    case OCTAVO_BLOCK_32X32: return {32, 32};
    case OCTAVO_BLOCK_1X16: return {1, 16};
    case OCTAVO_BLOCK_16X16: return {16, 16};
    default: return {0, 0};
  }
}

// "float16", for messages.
inline const char *describe_dtype(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "float32";
    case OCTAVO_BF16: return "bfloat16";
    case OCTAVO_F16: return "float16";
    case OCTAVO_E4M3FN: return "float8_e4m3fn";
    case OCTAVO_E5M2: return "float8_e5m2";
    case OCTAVO_E2M1: return "float4_e2m1fn";
    default: return "a dtype";
  }
}

// "scales of rows", for messages.
inline const char *describe_scales(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_PER_TENSOR: return "scales of tensors";
    case OCTAVO_PER_ROW: return "scales of rows";
    case OCTAVO_BLOCK_1X128: return "scales of 1x128 elements";
    case OCTAVO_BLOCK_128X128: return "scales of 128x128 elements";
    case OCTAVO_BLOCK_1X32: return "scales of 1x32 elements";
    case OCTAVO_BLOCK_32X32: return "scales of 32x32 elements";
    case OCTAVO_BLOCK_1X16: return "scales of 1x16 elements";
    case OCTAVO_BLOCK_16X16: return "scales of 16x16 elements";
    default: return "scales of groups of elements";
  }
}

// The scales of a tensor [rows, cols], themselves a dense matrix.
struct ScaleShape {
  int64_t rows = 1;
  int64_t cols = 1;
  uint32_t dtype = OCTAVO_F32;
  int64_t bytes() const { return rows * cols * (OCTAVO_DTYPE_BITS(dtype) / 8); }
};
inline ScaleShape scale_shape(uint32_t granularity, int64_t rows, int64_t cols) {
  if (granularity == OCTAVO_PER_TENSOR) return {};  // in hot verbs mostly this one
  if (granularity == OCTAVO_FLAT_256) return {divide_up(rows * cols, 256), 1, OCTAVO_F32};
  if (granularity == OCTAVO_EXPANDED_128) return {divide_up(rows * cols, 128), 3, OCTAVO_F32};
  const Block b = block_of(granularity);
  return {b.rows == 0 ? 1 : divide_up(rows, b.rows), b.cols == 0 ? 1 : divide_up(cols, b.cols),
          b.cols == 16   ? OCTAVO_E4M3FN
          : b.cols == 32 ? OCTAVO_E8M0FNU
                         : OCTAVO_F32};
}

// Whether they have a second level, one f32 for the tensor.
inline bool has_second(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X16 || granularity == OCTAVO_BLOCK_16X16;
}

// Their description, for a tensor with `cols` columns.
inline octavo_scale scale_of(uint32_t granularity, int64_t cols, void *data,
                             float *second = nullptr) {
  // In hot verbs mostly this one.
  if (granularity == OCTAVO_PER_TENSOR) return OCTAVO_SCALE(data, 0, OCTAVO_F32, granularity);
  const ScaleShape shape = scale_shape(granularity, 1, cols);
  const bool matrix = granularity != OCTAVO_FLAT_256 && granularity != OCTAVO_EXPANDED_128;
  octavo_scale scale = OCTAVO_SCALE(data, matrix ? shape.cols : 0, shape.dtype, granularity);
  scale.second = second;
  return scale;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
