/* kernels.cl: the device code of kernels.c, in OpenCL C 1.2.
 *
 * octavo/kernels.h and the page of numerics fix every number here to the last bit. So nothing may
 * be contracted or relaxed, and a product is one chain of additions over k ascending.
 */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

typedef global const uchar *bytes_in;
typedef global uchar *bytes_out;

/* A matrix in a buffer, as kernels.c fills it in. */
typedef struct {
  ulong at; /* its first byte in the buffer */
  long rows, cols, stride;
  uint dtype, unused;
} matrix;

/* Factors are one float each: a buffer, or null, and the index in it. */
#define FLOATS(name) global float *name, ulong name##_at

enum { F16 = 0x1002, F32 = 0x2002, BF16 = 0x1004, E4M3 = 0x080A, E5M2 = 0x080C };

/* The code of a magnitude that is finite: nearest, ties to even, with subnormals. */
uint rounded(uint bits, int mantissa, int bias) {
  const int dropped = 23 - mantissa;
  if (bits < (uint)(128 - bias) << 23)
    return convert_uint_rte(as_float(bits) * as_float((uint)(126 + bias + mantissa) << 23));
  const uint half_unit = (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
  return ((bits + half_unit) >> dropped) - ((uint)(127 - bias) << mantissa);
}

float widened(uint code, int mantissa, int bias) {
  if (code < 1u << mantissa) return (float)code * as_float((uint)(128 - bias - mantissa) << 23);
  return as_float((code << (23 - mantissa)) + ((uint)(127 - bias) << 23));
}

/* Overflow and infinity give the largest code, NaN stays NaN. */
uchar encode(uint dtype, float value) {
  const uint bits = as_uint(value), magnitude = bits & 0x7FFFFFFF, sign = (bits >> 24) & 0x80;
  if (magnitude > 0x7F800000) return sign | 0x7F;
  return sign | (dtype == E4M3 ? rounded(min(magnitude, 0x43E00000u), 3, 7)
                               : rounded(min(magnitude, 0x47600000u), 2, 15));
}

float decode(uint dtype, uint code) {
  const uint magnitude = code & 0x7F;
  const uint largest = dtype == E4M3 ? 0x7E : 0x7B;
  const uint special = dtype == E5M2 && magnitude == 0x7C ? 0x7F800000 : 0x7FC00000;
  const float value = dtype == E4M3 ? widened(magnitude, 3, 7) : widened(magnitude, 2, 15);
  return as_float((magnitude > largest ? special : as_uint(value)) | (code & 0x80) << 24);
}

/* Infinity beyond the range, as plain values have it. */
ushort encode_f16(float value) {
  const uint bits = as_uint(value), magnitude = bits & 0x7FFFFFFF;
  const uint code = magnitude > 0x7F800000 ? 0x7E00 | ((magnitude >> 13) & 0x3FF)
                                           : rounded(min(magnitude, 0x47800000u), 10, 15);
  return ((bits >> 16) & 0x8000) | code;
}

float decode_f16(uint code) {
  const uint magnitude = code & 0x7FFF;
  const uint bits = magnitude < 0x7C00    ? as_uint(widened(magnitude, 10, 15))
                    : magnitude == 0x7C00 ? 0x7F800000
                                          : 0x7FC00000 | (magnitude & 0x3FF) << 13;
  return as_float(bits | (code & 0x8000) << 16);
}

ushort encode_bf16(float value) {
  const uint bits = as_uint(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return (bits >> 16) | 0x40;
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

float load(bytes_in data, matrix m, long row, long col) {
  const long i = row * m.stride + col;
  data += m.at;
  switch (m.dtype) {
    case F32: return ((global const float *)data)[i];
    case BF16: return as_float((uint)((global const ushort *)data)[i] << 16);
    case F16: return decode_f16(((global const ushort *)data)[i]);
    default: return decode(m.dtype, data[i]);
  }
}

/* To a plain dtype. */
void store(bytes_out data, matrix m, long row, long col, float value) {
  const long i = row * m.stride + col;
  data += m.at;
  switch (m.dtype) {
    case F32: ((global float *)data)[i] = value; break;
    case BF16: ((global ushort *)data)[i] = encode_bf16(value); break;
    default: ((global ushort *)data)[i] = encode_f16(value);
  }
}

float in_dtype(uint dtype, float value) {
  return dtype == BF16  ? as_float((uint)encode_bf16(value) << 16)
         : dtype == F16 ? decode_f16(encode_f16(value))
                        : value;
}

enum { GIVEN, QUOTIENT, POW2, RECIPROCAL }; /* OCTAVO_RULE_... */

float by_rule(uint rule, float amax, float kept, float largest, int margin) {
  if (!(amax > 0 && amax <= FLT_MAX)) return kept;
  float scale = rule == RECIPROCAL ? 1.0f / amax * largest / ldexp(1.0f, margin)
                                   : largest * ldexp(1.0f, -margin) / amax;
  if (isinf(scale)) scale = FLT_MAX;
  const uint bits = as_uint(scale);
  if (rule != POW2 || bits == 0) return scale;
  return as_float(bits > 0x007FFFFF ? bits & 0x7F800000 : 1u << (31 - clz(bits)));
}

/* seen[0]: the amax's bits, whose order is that of the numbers; seen[1]: Inf or NaN was met. */
kernel void measure(bytes_in in, matrix m, FLOATS(factor), global uint *seen) {
  local uint group[2];
  const size_t item = get_local_id(0);
  if (item < 2) group[item] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  const float times = factor ? factor[factor_at] : 1.0f;
  uint amax = 0, nonfinite = 0;
  for (long row = get_group_id(1); row < m.rows; row += get_num_groups(1))
    for (long col = get_global_id(0); col < m.cols; col += get_global_size(0)) {
      const uint bits = as_uint(load(in, m, row, col) * times) & 0x7FFFFFFF;
      if (bits <= 0x7F800000) amax = max(amax, bits);
      if (bits >= 0x7F800000) nonfinite = 1;
    }
  atomic_max(&group[0], amax);
  atomic_max(&group[1], nonfinite);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item < 2 && group[item]) atomic_max(&seen[item], group[item]);
}

/* One work-item: the scale of a cast, into seen[2], and what a call collects. Clears `seen`. */
kernel void settle(global uint *seen, FLOATS(amax), FLOATS(nonfinite), FLOATS(scale),
                   FLOATS(counter), FLOATS(inverse), FLOATS(inverse_t), float window, float largest,
                   float eps, uint rule) {
  const float found = as_float(seen[0]), kept = scale ? scale[scale_at] : 1.0f;
  const bool given = rule == GIVEN || (counter && counter[counter_at] >= window);
  const float taken = given ? kept : by_rule(rule, found < eps ? eps : found, kept, largest, 0);
  seen[2] = as_uint(taken);
  if (inverse) inverse[inverse_at] = 1.0f / taken;
  if (inverse_t) inverse_t[inverse_t_at] = 1.0f / taken;
  if (amax && found > amax[amax_at]) amax[amax_at] = found;
  if (nonfinite && seen[1]) nonfinite[nonfinite_at] = 1.0f;
  seen[0] = seen[1] = 0;
}

enum { SKIP_ZERO = 1, DROP_NONFINITE = 2, NAN_KEEPS = 4, COUNT_FROM_ONE = 8 };

/* A work-item for each column of the pool. */
kernel void update(FLOATS(amax), FLOATS(history), FLOATS(scale), FLOATS(counter), ulong columns,
                   ulong length, float largest, int margin, uint use_max, uint rule, uint flags) {
  const size_t i = get_global_id(0);
  if (i >= columns) return;
  const float live = amax[amax_at + i];
  const bool finite = fabs(live) <= FLT_MAX;
  if ((flags & SKIP_ZERO) && live == 0) return;
  global float *column = history + history_at + i;
  const float newest = (flags & DROP_NONFINITE) && !finite ? 0.0f : live;
  column[0] = newest;
  float chosen = newest;
  if (use_max) {
    chosen = 0;
    for (ulong row = 0; row < length; ++row) {
      const float value = column[row * columns];
      if (value > chosen) chosen = value;
      if ((flags & NAN_KEEPS) && isnan(value)) {
        chosen = value;
        break;
      }
    }
  }
  for (ulong row = 1; row + 1 < length; ++row) column[row * columns] = column[(row + 1) * columns];
  if (length > 1) column[(length - 1) * columns] = newest;
  column[0] = 0;
  scale[scale_at + i] = by_rule(rule, chosen, scale[scale_at + i], largest, margin);
  amax[amax_at + i] = 0;
  if (!counter) return;
  counter[counter_at + i] =
      finite ? counter[counter_at + i] + 1 : (float)((flags & COUNT_FROM_ONE) != 0);
}

enum { SIDE = 16 };

/* NaN has the sign of the value, whatever made it. */
float scaled(float value, float factor) {
  const float result = value * factor;
  return isnan(result) ? as_float((as_uint(value) & 0x80000000) | 0x7FC00000) : result;
}

/* A tile: codes of its rows to `out`, and through local memory to `out_t`. */
kernel void cast(bytes_in in, matrix m, FLOATS(factor), global const uint *seen, bytes_out out,
                 matrix o, bytes_out out_t, matrix t) {
  local uchar tile[SIDE][SIDE + 1];
  const int x = get_local_id(0), y = get_local_id(1);
  const long left = get_group_id(0) * SIDE, top = get_group_id(1) * SIDE;
  const long row = top + y, col = left + x;
  const uint dtype = out ? o.dtype : t.dtype;
  float value = 0; /* the padding */
  if (row < m.rows && col < m.cols)
    value = scaled(scaled(load(in, m, row, col), factor ? factor[factor_at] : 1.0f),
                   as_float(seen[2]));
  const uchar code = encode(dtype, value);
  if (out && row < o.rows && col < o.cols) out[o.at + row * o.stride + col] = code;
  tile[y][x] = code;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (out_t && left + y < t.rows && top + x < t.cols)
    out_t[t.at + (left + y) * t.stride + top + x] = tile[x][y];
}

kernel void dequantize(bytes_in in, matrix m, FLOATS(factor), bytes_out out, matrix o,
                       uint accumulate) {
  const long row = get_global_id(1), col = get_global_id(0);
  if (col >= m.cols) return;
  float value = load(in, m, row, col);
  if (factor) value *= factor[factor_at];
  store(out, o, row, col, accumulate ? load(out, o, row, col) + value : value);
}

/* A group computes TILE * TILE outputs, each of its 4 * 16 items ROWS * 16 of them. */
enum { TILE = 64, STEP = 16, ROWS = 4, GROUP_X = 4, GROUP_Y = 16 };

/* STEP of k of the rows from `first` on, k first in memory. Beyond the matrix there are zeros. */
void fetch(bytes_in data, matrix m, bool k_major, long first, long k, local float to[STEP][TILE]) {
  const int item = get_local_id(1) * GROUP_X + get_local_id(0);
  const long rows = k_major ? m.cols : m.rows, length = k_major ? m.rows : m.cols;
  for (int i = item; i < STEP * TILE; i += GROUP_X * GROUP_Y) {
    /* Neighbours read neighbours. */
    const int r = k_major ? i % TILE : i / STEP, at = k_major ? i / TILE : i % STEP;
    const long row = first + r, col = k + at;
    float value = 0;
    if (row < rows && col < length)
      value = k_major ? load(data, m, col, row) : load(data, m, row, col);
    to[at][r] = value;
  }
}

kernel void gemm(bytes_in a, matrix a_m, bytes_in b, matrix b_m, bytes_out d, matrix d_m,
                 bytes_in bias, matrix bias_m, FLOATS(a_inverse), FLOATS(b_inverse), uint accumulate,
                 uint bias_after, uint layout) {
  local float a_tile[STEP][TILE], b_tile[STEP][TILE];
  const bool a_km = layout & 1, b_kn = layout & 2;
  const long left = get_group_id(0) * TILE, top = get_group_id(1) * TILE;
  const int x = get_local_id(0) * 16, y = get_local_id(1) * ROWS;
  const long length = a_km ? a_m.rows : a_m.cols;
  float16 sums[ROWS] = {0, 0, 0, 0};
  for (long k = 0; k < length; k += STEP) {
    fetch(a, a_m, a_km, top, k, a_tile);
    fetch(b, b_m, b_kn, left, k, b_tile);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < STEP; ++i) {
      const float16 row = vload16(0, &b_tile[i][x]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[r] += a_tile[i][y + r] * row;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float scale =
      (a_inverse ? a_inverse[a_inverse_at] : 1.0f) * (b_inverse ? b_inverse[b_inverse_at] : 1.0f);
  for (int r = 0; r < ROWS; ++r) {
    float each[16];
    vstore16(sums[r] * scale, 0, each);
    for (int c = 0; c < 16; ++c) {
      const long row = top + y + r, col = left + x + c;
      if (row >= d_m.rows || col >= d_m.cols) continue;
      float value = each[c];
      if (bias && bias_after) value = in_dtype(d_m.dtype, value);
      if (bias) value += load(bias, bias_m, 0, col);
      if (bias && bias_after) value = in_dtype(d_m.dtype, value);
      store(d, d_m, row, col, accumulate ? load(d, d_m, row, col) + value : value);
    }
  }
}

enum { PIECE = 32, SEGMENT = 256 };

/* A work-item for each column, in fp64: pieces of 32 rows, segments of 256, all. */
kernel void sum_rows(bytes_in in, matrix m, FLOATS(factor), FLOATS(out), uint accumulate) {
  const long col = get_global_id(0);
  if (col >= m.cols) return;
  const float times = factor ? factor[factor_at] : 1.0f;
  double total = 0;
  for (long segment = 0; segment < m.rows; segment += SEGMENT) {
    double of_segment = 0;
    const long end = min(segment + SEGMENT, m.rows);
    for (long piece = segment; piece < end; piece += PIECE) {
      double of_piece = 0;
      for (long row = piece; row < min(piece + PIECE, end); ++row)
        of_piece += (double)(load(in, m, row, col) * times);
      of_segment += of_piece;
    }
    total += of_segment;
  }
  const float sum = (float)total;
  out[out_at + col] = accumulate ? out[out_at + col] + sum : sum;
}
