/* kernels/cuda/quantize_launch.cuh: the launches of quantize for any source of values. */
#pragma once

#include <type_traits>

#include "kernels/check/calls.h"
#include "kernels/cuda/device/quantize_blocks.cuh"
#include "kernels/cuda/device/quantize_rows.cuh"
#include "kernels/cuda/device/quantize_tensor.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk.h"

namespace octavo::cuda {

constexpr int kMostParts = 1024; /* blocks of a measuring launch */

inline bool keeps_positive(const octavo_quantize &c) {
  return (c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0;
}

/* Rows and columns of the input with all padding of the outputs. */
inline Extent padded_extent(const octavo_quantize &c) {
  Extent e = {c.in->rows, c.in->cols};
  const auto raise = [](int64_t *to, int64_t value) { *to = value > *to ? value : *to; };
  if (c.out != nullptr) raise(&e.rows, c.out->rows), raise(&e.cols, c.out->cols);
  if (c.out_t != nullptr) raise(&e.rows, c.out_t->cols), raise(&e.cols, c.out_t->rows);
  return e;
}

/* One block a tile. A grid has at most 65535 blocks along y and z; see row_tile. */
inline dim3 tiles_of(const Extent &e) {
  const int64_t down = divide_up(e.rows, kTile);
  const int64_t deep = divide_up(down, 65535);
  return dim3(static_cast<unsigned>(divide_up(e.cols, kTile)),
              static_cast<unsigned>(divide_up(down, deep)), static_cast<unsigned>(deep));
}

inline float *scale_inv_of(const octavo_scale *s) {
  return s == nullptr ? nullptr : static_cast<float *>(s->data);
}

/* Calls body with the number of elements that a thread takes at once, known when it is compiled. */
template <typename Source, typename Body>
void with_width(bool is_wide, Body &&body) {
  if constexpr (requires { typename Source::Wide; }) {
    if (is_wide) return body(std::integral_constant<int, kWide>{});
  }
  body(std::integral_constant<int, kQuad>{});
}

template <typename Source>
bool has_wide(const octavo_tensor &in, const float *factor) {
  if constexpr (requires { typename Source::Wide; }) return Source::has_wide(in, factor);
  return false;
}

inline bool is_wide_or_none(const octavo_tensor *t) {
  return t == nullptr || is_wide(*t);
}

/* Whether the call's matrices are all wide. */
template <typename Source>
bool takes_wide(const octavo_quantize &c) {
  return has_wide<Source>(*c.in, c.in_scale_inv) && is_wide_or_none(c.out) &&
         is_wide_or_none(c.out_t);
}

/* The statistics of a matrix into the call's targets, or as parts. */
template <typename Source>
unsigned launch_measure(Launcher &l, const Source &source, const octavo_tensor &in,
                        const float *factor, const TensorScale &scale, Stats *parts,
                        const Accumulators &into) {
  unsigned blocks = 0;
  with_width<Source>(has_wide<Source>(in, factor), [&](auto width) {
    const Walk walk = walk_of(l.context(), {in.rows, in.cols}, width, kMostParts);
    blocks = walk.blocks.x * walk.blocks.y;
    l.run(walk.blocks, walk.threads, measure_kernel<Source, width>, source, scale, parts, into);
  });
  return blocks;
}

template <typename Source>
void launch_tensor(Launcher &l, const octavo_quantize &c, const Source &source) {
  const bool casts = c.out != nullptr || c.out_t != nullptr;
  const Accumulators into = {c.amax, c.nonfinite};
  TensorScale scale = {c.scale, c.counter, c.window, c.format_max, c.eps, c.rule, nullptr, 0};
  if (!casts) {
    if (c.amax == nullptr && c.nonfinite == nullptr) return;
    launch_measure(l, source, *c.in, c.in_scale_inv, scale, nullptr, into);
    return;
  }
  if (c.rule != OCTAVO_RULE_GIVEN) {
    auto *parts = static_cast<Stats *>(c.workspace);
    const unsigned blocks = launch_measure(l, source, *c.in, c.in_scale_inv, scale, parts, into);
    scale.parts = parts;
    scale.part_count = static_cast<int>(blocks);
  }
  with_codes(c.out != nullptr ? c.out->dtype : c.out_t->dtype, [&](auto format) {
    using Out = decltype(format);
    const TensorOutputs<Out> to = {target_of<Out>(c.out), target_of<Out>(c.out_t),
                                   scale_inv_of(c.out_scale_inv), scale_inv_of(c.out_t_scale_inv),
                                   keeps_positive(c)};
    const Extent e = padded_extent(c);
    with_width<Source>(takes_wide<Source>(c), [&](auto width) {
      if (c.out_t == nullptr || e.rows == 0 || e.cols == 0) {
        const Walk walk = walk_of(l.context(), e, width);
        return l.run(walk.blocks, walk.threads, cast_rows_kernel<Source, Out, width>, source, scale,
                     to, into);
      }
      l.run(tiles_of(e), dim3(kThreads), cast_kernel<Source, Out, width>, source, scale, to, into);
    });
  });
}

template <typename Source>
void launch_blocks(Launcher &l, const octavo_quantize &c, const Source &source) {
  const octavo_scale &any = *(c.out != nullptr ? c.out_scale_inv : c.out_t_scale_inv);
  with_float8(c.out != nullptr ? c.out->dtype : c.out_t->dtype, [&](auto format) {
    using Out = decltype(format);
    const auto output = [](const octavo_tensor *t, const octavo_scale *s) -> BlockOutput<Out> {
      if (t == nullptr) return {};
      return {{target_of<Out>(t), block_rows(s->granularity) > 1}, s->data, s->stride};
    };
    const BlockCall<Out> call = {output(c.out, c.out_scale_inv),
                                 output(c.out_t, c.out_t_scale_inv),
                                 c.rule,
                                 c.format_max,
                                 c.eps,
                                 largest_scale_of(c.in->dtype),
                                 block_cols(any.granularity) == kTile ? 7 : 5,
                                 keeps_positive(c)};
    const Extent e = padded_extent(c);
    if (e.rows == 0 || e.cols == 0) return;
    with_width<Source>(takes_wide<Source>(c), [&](auto width) {
      l.run(tiles_of(e), dim3(kThreads), quantize_blocks_kernel<Source, Out, width>, source, call,
            c.amax, c.nonfinite);
    });
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
    with_width<Source>(takes_wide<Source>(c), [&](auto width) {
      if (c.out_t == nullptr) {
        if (c.out->rows == 0) return;
        unsigned across = kWarp;
        while (across < kThreads && across * width < c.out->cols) across *= 2;
        const unsigned down = kThreads / across;
        return l.run(dim3(blocks_for(l.context(), divide_up(c.out->rows, down))),
                     dim3(across, down), quantize_rows_kernel<Source, Out, width>, source, rule,
                     target_of<Out>(c.out), rows, c.amax, c.nonfinite);
      }
      const int64_t most = rows.rows > cols.rows ? rows.rows : cols.rows;
      const dim3 linear(blocks_for(l.context(), divide_up(most, kThreads)));
      l.run(linear, dim3(kThreads), clear_row_scales_kernel, rows, cols);
      if (c.in->rows > 0 && c.in->cols > 0)
        l.run(tiles_of({c.in->rows, c.in->cols}), dim3(kThreads),
              measure_rows_kernel<Source, width>, source, rows, cols, c.amax, c.nonfinite);
      const Extent e = padded_extent(c);
      if (e.rows > 0 && e.cols > 0)
        l.run(tiles_of(e), dim3(kThreads), cast_rows_and_cols_kernel<Source, Out, width>, source,
              rule, target_of<Out>(c.out), rows, target_of<Out>(c.out_t), cols);
      l.run(linear, dim3(kThreads), finish_row_scales_kernel, rule, rows, cols);
    });
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
