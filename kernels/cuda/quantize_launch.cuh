/* kernels/cuda/quantize_launch.cuh: the launches of quantize for any source of values. */
#pragma once

#include "kernels/check/calls.h"
#include "kernels/cuda/device/quantize_blocks.cuh"
#include "kernels/cuda/device/quantize_rows.cuh"
#include "kernels/cuda/device/quantize_tensor.cuh"
#include "kernels/cuda/launch.h"

namespace octavo::cuda {

constexpr int kMostParts = 1024; /* blocks of a measuring launch */

inline bool keeps_positive(const octavo_quantize &c) {
  return (c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0;
}

/* Rows and columns of the input with all padding of the outputs. */
struct Extent {
  int64_t rows;
  int64_t cols;
};

inline Extent padded_extent(const octavo_quantize &c) {
  Extent e = {c.in->rows, c.in->cols};
  const auto raise = [](int64_t *to, int64_t value) { *to = value > *to ? value : *to; };
  if (c.out != nullptr) raise(&e.rows, c.out->rows), raise(&e.cols, c.out->cols);
  if (c.out_t != nullptr) raise(&e.rows, c.out_t->cols), raise(&e.cols, c.out_t->rows);
  return e;
}

/* One block a tile. A grid has at most 65535 blocks along y and z; see row_tile. */
inline dim3 tiles_of(const Extent &e, int64_t side) {
  const int64_t down = divide_up(e.rows, side);
  const int64_t deep = divide_up(down, 65535);
  return dim3(static_cast<unsigned>(divide_up(e.cols, side)),
              static_cast<unsigned>(divide_up(down, deep)), static_cast<unsigned>(deep));
}

inline float *scale_inv_of(const octavo_scale *s) {
  return s == nullptr ? nullptr : static_cast<float *>(s->data);
}

template <typename Source>
void launch_tensor(Launcher &l, const octavo_quantize &c, const Source &source) {
  const bool casts = c.out != nullptr || c.out_t != nullptr;
  const Accumulators into = {c.amax, c.nonfinite};
  const int64_t quads = c.in->rows * divide_up(c.in->cols, kQuad);
  const unsigned blocks = blocks_for(l.context(), divide_up(quads, kThreads));
  const unsigned measuring = blocks < kMostParts ? blocks : kMostParts;
  TensorScale scale = {c.scale, c.counter, c.window, c.format_max, c.eps, c.rule, nullptr, 0};
  if (!casts) {
    if (c.amax == nullptr && c.nonfinite == nullptr) return;
    return l.run(dim3(measuring), dim3(kThreads), measure_kernel<Source>, source, scale,
                 static_cast<Stats *>(nullptr), into);
  }
  if (c.rule != OCTAVO_RULE_GIVEN) {
    auto *parts = static_cast<Stats *>(c.workspace);
    l.run(dim3(measuring), dim3(kThreads), measure_kernel<Source>, source, scale, parts, into);
    scale.parts = parts;
    scale.part_count = static_cast<int>(measuring);
  }
  with_codes(c.out != nullptr ? c.out->dtype : c.out_t->dtype, [&](auto format) {
    using Out = decltype(format);
    const TensorOutputs<Out> to = {target_of<Out>(c.out), target_of<Out>(c.out_t),
                                   scale_inv_of(c.out_scale_inv), scale_inv_of(c.out_t_scale_inv),
                                   keeps_positive(c)};
    const Extent e = padded_extent(c);
    if (c.out_t == nullptr || e.rows == 0 || e.cols == 0) {
      const int64_t all = e.rows * divide_up(e.cols, kQuad);
      return l.run(dim3(blocks_for(l.context(), divide_up(all, kThreads))), dim3(kThreads),
                   cast_rows_kernel<Source, Out>, source, scale, to, into);
    }
    l.run(tiles_of(e, kTile), dim3(16, 16), cast_kernel<Source, Out>, source, scale, to, into);
  });
}

template <typename Source>
void launch_blocks(Launcher &l, const octavo_quantize &c, const Source &source) {
  const octavo_scale &any = *(c.out != nullptr ? c.out_scale_inv : c.out_t_scale_inv);
  with_codes(c.out != nullptr ? c.out->dtype : c.out_t->dtype, [&](auto format) {
    using Out = decltype(format);
    const auto output = [](const octavo_tensor *t, const octavo_scale *s) -> BlockOutput<Out> {
      if (t == nullptr) return {};
      return {target_of<Out>(t), s->data, s->stride, block_rows(s->granularity) > 1};
    };
    const BlockCall<Out> call = {output(c.out, c.out_scale_inv),
                                 output(c.out_t, c.out_t_scale_inv),
                                 c.rule,
                                 c.format_max,
                                 c.eps,
                                 largest_of(c.in->dtype),
                                 static_cast<int>(block_cols(any.granularity)),
                                 keeps_positive(c)};
    const Extent e = padded_extent(c);
    if (e.rows == 0 || e.cols == 0) return;
    l.run(tiles_of(e, kBlockTile), dim3(kThreads), quantize_blocks_kernel<Source, Out>, source,
          call, c.amax, c.nonfinite);
  });
}

template <typename Source>
void launch_rows(Launcher &l, const octavo_quantize &c, const Source &source) {
  const auto scales = [](const octavo_tensor *t, const octavo_scale *s) -> RowScales {
    if (t == nullptr) return {nullptr, 0, 0};
    return {static_cast<float *>(s->data), s->stride, t->rows};
  };
  const RowScales rows = scales(c.out, c.out_scale_inv);
  const RowScales cols = scales(c.out_t, c.out_t_scale_inv);
  const RowRule rule = {c.rule, c.format_max, c.eps, keeps_positive(c)};
  with_codes(c.out != nullptr ? c.out->dtype : c.out_t->dtype, [&](auto format) {
    using Out = decltype(format);
    if (c.out_t == nullptr) {
      if (c.out->rows == 0) return;
      return l.run(dim3(blocks_for(l.context(), c.out->rows)), dim3(kThreads),
                   quantize_rows_kernel<Source, Out>, source, rule, target_of<Out>(c.out), rows,
                   c.amax, c.nonfinite);
    }
    const int64_t most = rows.rows > cols.rows ? rows.rows : cols.rows;
    const dim3 linear(blocks_for(l.context(), divide_up(most, kThreads)));
    l.run(linear, dim3(kThreads), clear_row_scales_kernel, rows, cols);
    if (c.in->rows > 0 && c.in->cols > 0)
      l.run(tiles_of({c.in->rows, c.in->cols}, kTile), dim3(16, 16), measure_rows_kernel<Source>,
            source, rows, cols, c.amax, c.nonfinite);
    const Extent e = padded_extent(c);
    if (e.rows > 0 && e.cols > 0)
      l.run(tiles_of(e, kTile), dim3(16, 16), cast_rows_and_cols_kernel<Source, Out>, source, rule,
            target_of<Out>(c.out), rows, target_of<Out>(c.out_t), cols);
    l.run(linear, dim3(kThreads), finish_row_scales_kernel, rule, rows, cols);
  });
}

/* A checked call, but for states in blocks, whose input is always a tensor. */
template <typename Source>
void launch_quantize(Launcher &l, const octavo_quantize &c, const Source &source) {
  if (has_row_scales(c)) return launch_rows(l, c, source);
  if (is_block_scaled(c)) return launch_blocks(l, c, source);
  launch_tensor(l, c, source);
}

}  // namespace octavo::cuda
