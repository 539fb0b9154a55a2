/* kernels/cuda/device/tile_scales.cuh: a tile whose rows, columns or blocks have scales of their
 * own.
 *
 * measure_tile finds the amax of every block along rows and along columns, the kernel makes scales
 * of them, cast_tile casts with those. Where a thread has one patch it keeps it in between;
 * otherwise it reads the tile twice, the second time from the cache.
 */
#pragma once

#include "kernels/cuda/device/tile.cuh"

namespace octavo::cuda {

constexpr int kMostBlocks = 4; /* of 32 elements along a side of the tile */

/* The amax of every block of a tile; then, in its place, the scale that multiplies. */
struct TileScales {
  float of_rows[kTile][kMostBlocks];             /* blocks along rows */
  alignas(16) float of_cols[kMostBlocks][kTile]; /* blocks along columns */
  float of_squares[kMostBlocks][kMostBlocks];
  int is_special; /* some scale is not plain */

  __device__ void note(float scale) {
    if (!is_plain_scale(scale)) atomicMax(&is_special, 1);
  }
};

/* Where a tile is, and how long its blocks are: 128 or 32, a shift instead of a division. */
struct TilePlace {
  int64_t row; /* of its first element */
  int64_t col;
  int log_length;

  __device__ explicit TilePlace(int log_of_length)
      : row(row_tile() * kTile),
        col(static_cast<int64_t>(blockIdx.x) * kTile),
        log_length(log_of_length) {}
  __device__ int length() const { return 1 << log_length; }
  __device__ int blocks() const { return kTile >> log_length; } /* along a side */
  __device__ int block_of(int line) const { return line >> log_length; }
};

/* The amax of each column of each patch. */
struct ColumnParts {
  alignas(16) float parts[kTileQuads][kTile];

  /* Where four columns are: threads of a warp that write columns kWide apart use different banks.
   */
  __device__ static int index(int col) {
    return (col / kQuad ^ (col / (2 * kWide) % 4)) * kQuad + col % kQuad;
  }
  template <int kWidth>
  __device__ __forceinline__ void put(int row, int col, const float (&amax)[kWidth]) {
#pragma unroll
    for (int k = 0; k < kWidth; k += kQuad) {
      auto *to = reinterpret_cast<Pack<float, kQuad> *>(&parts[row / kPatchRows][index(col + k)]);
      *to = {{amax[k], amax[k + 1], amax[k + 2], amax[k + 3]}};
    }
  }
  /* Of `count` rows, both multiples of kPatchRows. */
  __device__ float of(int col, int row, int count) const {
    float amax = 0.0f;
#pragma unroll 8
    for (int i = row / kPatchRows; i < (row + count) / kPatchRows; ++i) {
      const float part = parts[i][index(col)];
      amax = part > amax ? part : amax;
    }
    return amax;
  }
};

/* Needed one after the other. */
template <typename Out>
union TileMemory {
  ColumnParts cols;
  TurnedTile<Out> turned;
};

/* amax->of_rows and, where they are wanted, the parts of columns; complete after a barrier. The
 * result is what the thread's own values are. */
template <typename Source, int kWidth>
__device__ __forceinline__ Stats measure_tile(const Source &source, const TilePlace &tile,
                                              bool wants_cols,
                                              Patch<Source, kWidth, kPatchRows> *patch,
                                              TileScales *amax, ColumnParts *cols) {
  const PatchPlace<kWidth> place;
  const int lanes = tile.length() / kWidth; /* that have a block */
  Stats stats = {};
#pragma unroll 1
  for (int step = 0; step < kTile; step += place.kStepRows) {
    const int row = step + place.row;
    patch->load(source, tile.row + row, tile.col + place.col);
    int32_t of_rows[kPatchRows];
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r) {
      float values[kWidth];
      patch->values(source, r, values);
      const Stats of_row = stats_of(values);
      stats.merge(of_row);
      of_rows[r] = of_row.amax_bits;
    }
    for (int bits = lanes / 2; bits > 0; bits /= 2) {
#pragma unroll
      for (int r = 0; r < kPatchRows; ++r) {
        const int32_t other = __shfl_xor_sync(kAllLanes, of_rows[r], bits);
        of_rows[r] = other > of_rows[r] ? other : of_rows[r];
      }
    }
    if ((static_cast<int>(threadIdx.x) & (lanes - 1)) == 0) {
#pragma unroll
      for (int r = 0; r < kPatchRows; ++r)
        amax->of_rows[row + r][tile.block_of(place.col)] = bits_float(of_rows[r]);
    }
    if (!wants_cols) continue;
    float of_cols[kWidth] = {};
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r) {
      float values[kWidth];
      patch->values(source, r, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) of_cols[k] = larger_number(of_cols[k], values[k]);
    }
    cols->put(row, place.col, of_cols);
  }
  return stats;
}

/* One output of a tile. */
template <typename Out>
struct TileOutput {
  Target<Out> codes;
  bool is_square; /* its scales are those of squares */

  __device__ bool exists() const { return codes.data != nullptr; }
};

/* The scales of a patch, wherever they are: that of element [r, k] is steps away. */
struct PatchScales {
  const float *first;
  int row_step;
  int col_step;

  __device__ float at(int r, int k) const { return first[r * row_step + k * col_step]; }
};

/* One element after the other; rare. */
template <typename Out, typename Source, int kRows>
__device__ __forceinline__ void cast_one_by_one(const Source &source, int64_t row, int64_t col,
                                                const PatchScales &scales, bool keeps_positive,
                                                Codes<Out, kWide> (&codes)[kRows]) {
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    Codes<Out, kWide> of_row = {};
    const int count = row + r < source.rows && col < source.cols ? kWide : 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k)
      of_row.push(code_of<Out>(source.value(row + r, col + k), scales.at(r, k), keeps_positive));
#pragma unroll
    for (int i = 1; i < kRows; ++i) codes[i - 1] = codes[i]; /* registers have no index */
    codes[kRows - 1] = of_row;
  }
}

/* The codes of a patch that begins at [row, col]. `is_special`: a value may be NaN, or a scale is
 * not plain, or keeps_positive. `kEach`: columns have scales of their own, not rows. */
template <typename Out, bool kEach, typename Source, int kRows>
__device__ __forceinline__ void cast_patch(const Source &source, int64_t row, int64_t col,
                                           const Patch<Source, kWide, kRows> &patch,
                                           const PatchScales &scales, bool is_special,
                                           bool keeps_positive, Codes<Out, kWide> (&codes)[kRows]) {
  if (is_special) return cast_one_by_one<Out>(source, row, col, scales, keeps_positive, codes);
  float of_cols[kWide];
  if constexpr (kEach) {
#pragma unroll
    for (int k = 0; k < kWide; ++k) of_cols[k] = scales.at(0, k);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float values[kWide];
    patch.values(source, r, values);
    if constexpr (kEach) {
      codes[r] = cast_numbers<Out>(values, ScaleEach{of_cols});
    } else {
      codes[r] = cast_numbers<Out>(values, OneScale{scales.at(r, 0)});
    }
  }
}

template <typename Out, bool kEach, typename Source, int kRows>
__device__ __forceinline__ void cast_patch(const Source &, int64_t, int64_t,
                                           const Patch<Source, kQuad, kRows> &patch,
                                           const PatchScales &scales, bool, bool keeps_positive,
                                           Codes<Out, kQuad> (&codes)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    codes[r] = {};
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      if (k < patch.counts[r])
        codes[r].put(k, code_of<Out>(patch.packs[r][k], scales.at(r, k), keeps_positive));
    }
  }
}

/* Codes of the tile to both outputs; `turned` must be free. `patch` is the tile's where kIsLoaded
 * and the thread has one only; otherwise it is loaded here, and looked at for NaN. */
template <bool kIsLoaded, typename Out, typename Source, int kWidth>
__device__ __forceinline__ void cast_tile(const Source &source, const TilePlace &tile,
                                          const TileScales &scales, bool is_special,
                                          bool keeps_positive, const TileOutput<Out> &out,
                                          const TileOutput<Out> &out_t,
                                          Patch<Source, kWidth, kPatchRows> *patch,
                                          TurnedTile<Out> *turned) {
  const PatchPlace<kWidth> place;
  const int64_t col = tile.col + place.col;
  const int col_block = tile.block_of(place.col);
#pragma unroll 1
  for (int step = 0; step < kTile; step += place.kStepRows) {
    const int first = step + place.row;
    const int64_t row = tile.row + first;
    const int row_block = tile.block_of(first);
    bool is_rare = is_special;
    if constexpr (!kIsLoaded || place.kSteps > 1) patch->load(source, row, col);
    if constexpr (!kIsLoaded && kWidth == kWide) is_rare = is_rare || has_nan(source, *patch);
    const float *square = &scales.of_squares[row_block][col_block];
    Codes<Out, kWidth> codes[kPatchRows];
    if (out.exists()) {
      const PatchScales of_rows = {out.is_square ? square : &scales.of_rows[first][col_block],
                                   out.is_square ? 0 : kMostBlocks, 0};
      cast_patch<Out, false>(source, row, col, *patch, of_rows, is_rare, keeps_positive, codes);
      out.codes.store(row, col, codes);
    }
    if (!out_t.exists()) continue;
    if (!out.exists() || !out.is_square || !out_t.is_square) {
      const PatchScales of_cols = {out_t.is_square ? square : &scales.of_cols[row_block][place.col],
                                   0, out_t.is_square ? 0 : 1};
      cast_patch<Out, true>(source, row, col, *patch, of_cols, is_rare, keeps_positive, codes);
    }
    turned->put(first, place.col, codes);
  }
  if (!out_t.exists()) return;
  __syncthreads();
  turned->template store<kWidth>(out_t.codes, tile.row, tile.col);
}

}  // namespace octavo::cuda
