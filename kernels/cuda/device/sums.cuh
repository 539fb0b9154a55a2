/* kernels/cuda/device/sums.cuh: sums of codes over shards, of columns, and of squares.
 *
 * Sums of plain values have the order of kernels/format/sum_order.h, whatever the grid: a warp has
 * a piece of 32 rows or a segment of squares. With room for parts a block leaves those of its
 * segments there and a second launch adds them; without, one block goes through all segments.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/packs.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/power.h"
#include "kernels/format/sum_order.h"

namespace octavo::cuda {

struct CodeSum {
  const void *codes;
  void *out;
  int64_t count;
  int64_t shards;
  int64_t shard_stride;
  bool is_aligned; /* every shard and `out`, to 16 bytes */
};

using CodeCount = unsigned long long; /* which atomicAdd takes */

/* What is counted, and where it goes. */
struct CodeCounts {
  CodeCount *outside; /* [blocks], where there are several blocks */
  float count_as;
  float *saturated; /* either may be null */
  float *added;

  __host__ __device__ bool is_wanted() const { return saturated != nullptr || added != nullptr; }
  /* Once a call, so that the rounding does not depend on the blocks. */
  __device__ void add(int64_t count, CodeCount total) const {
    if (added != nullptr) atomicAdd(added, static_cast<float>(count) * count_as);
    if (saturated != nullptr && total > 0)
      atomicAdd(saturated, static_cast<float>(static_cast<int64_t>(total)) * count_as);
  }
};

constexpr int kCodes = 16; /* of a thread at once */

template <typename Codes>
__global__ void __launch_bounds__(kThreads)
    sum_quantized_kernel(CodeSum c, CodeCounts counts, float largest) {
  __shared__ CodeCount shared;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  const auto *codes = static_cast<const typename Codes::Stored *>(c.codes);
  auto *out = static_cast<typename Codes::Stored *>(c.out);
  using Words = Pack<uint32_t, kCodes / 4>;
  const int64_t packed = c.is_aligned ? c.count / kCodes * kCodes : 0;
  unsigned outside = 0;
  for (int64_t i = first_index() * kCodes; i < packed; i += index_step() * kCodes) {
    float sums[kCodes] = {};
#pragma unroll 2
    for (int64_t shard = 0; shard < c.shards; ++shard) {
      const Words words = *reinterpret_cast<const Words *>(codes + shard * c.shard_stride + i);
#pragma unroll
      for (int k = 0; k < kCodes / 4; ++k) {
        float four[4];
        split(Codes{}, words.at[k], four);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[4 * k + j] += four[j];
      }
    }
    Words words;
#pragma unroll
    for (int k = 0; k < kCodes / 4; ++k) words.at[k] = word_of<Codes>(sums + 4 * k);
#pragma unroll
    for (const float sum : sums) outside += absolute(sum) > largest ? 1 : 0;
    *reinterpret_cast<Words *>(out + i) = words;
  }
  for (int64_t i = packed + first_index(); i < c.count; i += index_step()) {
    float sum = 0.0f;
    for (int64_t shard = 0; shard < c.shards; ++shard)
      sum += Codes::decode(codes[shard * c.shard_stride + i]);
    if (absolute(sum) > largest) ++outside;
    out[i] = Codes::cast(with_one_nan(sum));
  }
  if (!counts.is_wanted()) return;
  if (outside > 0) atomicAdd(&shared, static_cast<CodeCount>(outside));
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1)
    counts.add(c.count, shared);
  else
    counts.outside[blockIdx.x] = shared;
}

/* One warp: adds what the blocks counted. */
[[maybe_unused]] static __global__ void count_outside_kernel(CodeCounts counts, int blocks,
                                                             int64_t count) {
  CodeCount total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kWarp) total += counts.outside[i];
  for (int bits = static_cast<int>(kWarp) / 2; bits > 0; bits /= 2)
    total += __shfl_xor_sync(kAllLanes, total, bits);
  if (threadIdx.x == 0) counts.add(count, total);
}

/* A matrix whose elements are added. */
struct SumSource {
  const void *data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  const float *factor; /* null: 1 */
  double per_cols;     /* 1 / cols */
  bool is_aligned;     /* every pack of a row, or of all of it where it is dense */

  __device__ float factor_value() const { return factor == nullptr ? 1.0f : *factor; }
};

constexpr int kSumColumns = static_cast<int>(kWarp) * kPack; /* of a block */
static_assert(kSumColumns == kThreads && kWarps * kPieceRows == kSegmentRows);

struct ColumnSums {
  double *parts; /* [segments, cols]; null: a block goes through all segments */
  float *out;
  bool accumulates;

  __device__ void write(int64_t col, double sum) const {
    const float rounded = static_cast<float>(sum);
    out[col] = accumulates ? out[col] + rounded : rounded;
  }
};

/* Blocks in x have columns, in y segments of rows. */
template <typename Format>
__global__ void __launch_bounds__(kThreads) sum_rows_kernel(SumSource in, ColumnSums to) {
  __shared__ double shared[kWarps][kSumColumns];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kSumColumns;
  const int64_t col = tile + lane * kPack;
  const int64_t left = in.cols - col;
  const int n = static_cast<int>(left < 0 ? 0 : left < kPack ? left : kPack);
  const bool is_whole = in.is_aligned && n == kPack;
  const bool has_column = tile + threadIdx.x < in.cols;
  const float factor = in.factor_value();
  const auto *data = static_cast<const typename Format::Stored *>(in.data);
  double total = 0.0;
  for (int64_t segment = blockIdx.y; segment * kSegmentRows < in.rows; segment += gridDim.y) {
    const int64_t first = segment * kSegmentRows + warp * kPieceRows;
    const int64_t end = first + kPieceRows < in.rows ? first + kPieceRows : in.rows;
    double sums[kPack] = {};
    const auto add = [&](const float(&values)[kPack]) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i] += static_cast<double>(values[i] * factor);
    };
    if (is_whole) {
#pragma unroll 4
      for (int64_t row = first; row < end; ++row) {
        float values[kPack];
        decode_pack(Format::kDtype,
                    load_pack(data + row * in.stride + col, sizeof(typename Format::Stored)),
                    values);
        add(values);
      }
    } else {
      for (int64_t row = first; row < end; ++row) {
        float values[kPack] = {};
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          if (i < n) values[i] = Format::decode(data[row * in.stride + col + i]);
        }
        add(values);
      }
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) shared[warp][lane * kPack + i] = sums[i];
    __syncthreads();
    double sum = 0.0;
    for (int piece = 0; piece < kWarps; ++piece) sum += shared[piece][threadIdx.x];
    __syncthreads();
    if (to.parts == nullptr)
      total += sum;
    else if (has_column)
      to.parts[segment * in.cols + tile + threadIdx.x] = sum;
  }
  if (to.parts == nullptr && has_column) to.write(tile + threadIdx.x, total);
}

[[maybe_unused]] static __global__ void add_segments_kernel(ColumnSums c, int64_t segments,
                                                            int64_t cols) {
  for (int64_t col = first_index(); col < cols; col += index_step()) {
    double total = 0.0;
#pragma unroll 8
    for (int64_t segment = 0; segment < segments; ++segment) total += c.parts[segment * cols + col];
    c.write(col, total);
  }
}

/* Sums that lanes share which differ in this bit of their number: each keeps half of them. */
template <int kCount>
__device__ __forceinline__ void share_sums(double (&sums)[kPack], unsigned bit) {
  const bool is_upper = (threadIdx.x & bit) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const double given = is_upper ? sums[i] : sums[kCount / 2 + i];
    const double kept = is_upper ? sums[kCount / 2 + i] : sums[i];
    sums[i] = kept + __shfl_xor_sync(kAllLanes, given, static_cast<int>(bit));
  }
}

/* Of a warp whose lanes have eight neighbours each of 256 sums: added by halves, in every lane.
 * Lanes first: which of the two sums of an addition is whose does not show. */
__device__ inline double add_halves_of_warp(double (&sums)[kPack]) {
  share_sums<8>(sums, 16);
  share_sums<4>(sums, 8);
  share_sums<2>(sums, 4);
  double sum = sums[0];
  for (const int bit : {2, 1, 16, 8, 4}) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  return sum;
}

/* Of a block; one thread gets the total. */
__device__ inline void add_halves_of_block(double (&sums)[kSquareSums], float *out) {
  static_assert(kSquareSums == kThreads);
  for (int half = kSquareSums / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(out, static_cast<float>(sums[0]));
}

/* sum + value^2, rounded once: the square of an fp32 number is exact in fp64. */
__device__ __forceinline__ double add_square(float value, double sum) {
  const double wide = static_cast<double>(value);
#ifdef __CUDA_ARCH__
  return __fma_rn(wide, wide, sum);
#else
  return product_sum(wide, wide, sum);
#endif
}

/* The squares of a segment, by one warp. */
template <typename Format>
__device__ double square_segment(const SumSource &in, int64_t segment, float factor, Stage *stage) {
  constexpr int kBytes = sizeof(typename Format::Stored);
  const int64_t count = in.rows * in.cols;
  const int64_t begin = segment * kSquareSegment;
  const int64_t end = begin + kSquareSegment < count ? begin + kSquareSegment : count;
  const int64_t lane = begin + threadIdx.x % kWarp * kPack;
  double sums[kPack] = {};
  const auto add = [&](const RawPack &raw) {
    float values[kPack];
    decode_pack(Format::kDtype, raw, values);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums[i] = add_square(values[i] * factor, sums[i]);
  };
  if (in.is_aligned && end - begin == kSquareSegment) {
    const char *at = static_cast<const char *>(in.data) + lane * kBytes;
#pragma unroll 4
    for (int step = 0; step < kSquareSegment / kSquareSums; ++step)
      add(load_pack(at + step * kSquareSums * kBytes, kBytes));
  } else {
    for (int64_t first = lane; first < end; first += kSquareSums) {
      const int n = static_cast<int>(end - first < kPack ? end - first : kPack);
      add(load_each(in.data, kBytes, in.stride, walk_from(first, in.cols, in.per_cols), n, stage));
    }
  }
  return add_halves_of_warp(sums);
}

/* parts [segments]; null: one block, which adds all segments up. */
template <typename Format>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(SumSource in, double *parts, float *out) {
  __shared__ double sums[kSquareSums];
  __shared__ Stage stages[kThreads];
  sums[threadIdx.x] = 0.0;
  __syncthreads();
  const float factor = in.factor_value();
  const int64_t warp = threadIdx.x / kWarp;
  for (int64_t segment = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
       segment * kSquareSegment < in.rows * in.cols;
       segment += static_cast<int64_t>(gridDim.x) * kWarps) {
    const double sum = square_segment<Format>(in, segment, factor, stages + threadIdx.x);
    if (threadIdx.x % kWarp != 0) continue;
    if (parts != nullptr)
      parts[segment] = sum;
    else
      sums[segment % kSquareSums] += sum; /* which has segments of this warp alone */
  }
  if (parts == nullptr) add_halves_of_block(sums, out);
}

/* One block. */
[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    add_squares_kernel(const double *parts, int64_t segments, float *out) {
  __shared__ double sums[kSquareSums];
  double sum = 0.0;
#pragma unroll 8
  for (int64_t segment = threadIdx.x; segment < segments; segment += kSquareSums)
    sum += parts[segment];
  sums[threadIdx.x] = sum;
  add_halves_of_block(sums, out);
}

}  // namespace octavo::cuda
