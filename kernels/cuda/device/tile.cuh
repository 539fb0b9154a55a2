/* kernels/cuda/device/tile.cuh: a tile of the input, which kThreads threads cast and turn over.
 *
 * A thread has patches of kPatchRows neighbouring rows and one pack of columns, turns each over in
 * its registers, and leaves it in shared memory. From there the columns of the tile go to out_t,
 * whole rows of kTile codes.
 */
#pragma once

#include "kernels/cuda/device/target.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace octavo::cuda {

constexpr int kTile = 128;
constexpr int kPatchRows = 4;
constexpr int kTileQuads = kTile / kPatchRows;

/* Where the patches of a thread are: kSteps of them, kStepRows apart. */
template <int kWidth>
struct PatchPlace {
  static constexpr int kAcross = kTile / kWidth; /* patches */
  static constexpr int kStepRows = kThreads / kAcross * kPatchRows;
  static constexpr int kSteps = kTile / kStepRows;
  static_assert(kThreads == 2 * kTile && kAcross <= static_cast<int>(kWarp),
                "a warp has whole rows of a tile");
  int row;
  int col;

  __device__ PatchPlace()
      : row(static_cast<int>(threadIdx.x) / kAcross * kPatchRows),
        col(static_cast<int>(threadIdx.x) % kAcross * kWidth) {}
};

/* Four rows of four codes become four columns; a row has kUnit words. */
__device__ __forceinline__ void turn(const uint32_t (&rows)[kPatchRows][1],
                                     uint32_t (&cols)[kPatchRows][1]) {
  const uint32_t top_low = __byte_perm(rows[0][0], rows[1][0], 0x5140);
  const uint32_t top_high = __byte_perm(rows[0][0], rows[1][0], 0x7362);
  const uint32_t end_low = __byte_perm(rows[2][0], rows[3][0], 0x5140);
  const uint32_t end_high = __byte_perm(rows[2][0], rows[3][0], 0x7362);
  cols[0][0] = __byte_perm(top_low, end_low, 0x5410);
  cols[1][0] = __byte_perm(top_low, end_low, 0x7632);
  cols[2][0] = __byte_perm(top_high, end_high, 0x5410);
  cols[3][0] = __byte_perm(top_high, end_high, 0x7632);
}
__device__ __forceinline__ void turn(const uint32_t (&rows)[kPatchRows][2],
                                     uint32_t (&cols)[kPatchRows][2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t above = rows[2 * pair][half];
      const uint32_t below = rows[2 * pair + 1][half];
      cols[2 * half][pair] = __byte_perm(above, below, 0x5410);
      cols[2 * half + 1][pair] = __byte_perm(above, below, 0x7632);
    }
  }
}

/* A tile as codes in shared memory, its columns one after the other. */
template <typename Out>
struct TurnedTile {
  static constexpr int kUnit = static_cast<int>(sizeof(typename Out::Stored));
  using Unit = Pack<uint32_t, kUnit>; /* kPatchRows codes of a column */
  static constexpr int kUnitsOfPack = kWide / kPatchRows;
  alignas(16) Unit units[kTile * kTileQuads];

  /* The packs of a column are stored in an order that depends on the column, so that the threads of
   * a warp, which write to columns kWide apart, use different banks. */
  __device__ static int index(int col, int quad) {
    const int pack = quad / kUnitsOfPack ^ (col / kWide % (kTileQuads / kUnitsOfPack));
    return col * kTileQuads + pack * kUnitsOfPack + quad % kUnitsOfPack;
  }

  /* A patch that begins at [row, col] of the tile. */
  template <int kWidth>
  __device__ __forceinline__ void put(int row, int col,
                                      const Codes<Out, kWidth> (&codes)[kPatchRows]) {
    static_assert(kWide % kWidth == 0, "the columns of a patch have one order of packs");
    Unit *to = &units[index(col, row / kPatchRows)];
#pragma unroll
    for (int first = 0; first < kWidth; first += kQuad) {
      uint32_t rows[kPatchRows][kUnit];
      uint32_t cols[kPatchRows][kUnit];
#pragma unroll
      for (int r = 0; r < kPatchRows; ++r) {
#pragma unroll
        for (int i = 0; i < kUnit; ++i) rows[r][i] = codes[r].words[first / kQuad * kUnit + i];
      }
      turn(rows, cols);
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        Unit unit;
#pragma unroll
        for (int i = 0; i < kUnit; ++i) unit.at[i] = cols[c][i];
        to[(first + c) * kTileQuads] = unit;
      }
    }
  }

  /* The tile whose first element is [first_row, first_col] of the input, complete after a barrier,
   * to out_t. */
  template <int kWidth>
  __device__ __forceinline__ void store(const Target<Out> &out_t, int64_t first_row,
                                        int64_t first_col) const {
    constexpr int kAcross = kTile / kWidth;
    constexpr int kStep = kThreads / kAcross;            /* columns of the tile */
    constexpr int kAtOnce = kWidth == kWide ? 4 : kUnit; /* words */
    const int first = static_cast<int>(threadIdx.x) / kAcross;
    const int row = static_cast<int>(threadIdx.x) % kAcross * kWidth;
#pragma unroll
    for (int step = 0; step < kTile; step += kStep) {
      const int col = first + step;
      const auto *from =
          reinterpret_cast<const Pack<uint32_t, kAtOnce> *>(&units[index(col, row / kPatchRows)]);
      Codes<Out, kWidth> codes[1];
#pragma unroll
      for (int k = 0; k < kWords<Out, kWidth> / kAtOnce; ++k) {
        const Pack<uint32_t, kAtOnce> words = from[k];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) codes[0].words[k * kAtOnce + j] = words.at[j];
      }
      out_t.store(first_col + col, first_row + row, codes);
    }
  }
};

}  // namespace octavo::cuda
