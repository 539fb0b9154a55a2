/* tests/kernels/cuda/quantize_case.h: one quantize on the CPU's kernels and on device code,
 * compared byte for byte.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_QUANTIZE_CASE_H
#define OCTAVO_TESTS_KERNELS_CUDA_QUANTIZE_CASE_H

#include "tests/kernels/cuda/twins.h"

namespace octavo::test {

struct Size {
  int64_t rows, cols;
};
/* How a matrix is in memory: unused elements behind each row and before the first. */
struct Layout {
  int64_t gap, skipped;
};

/* What varies between calls. */
struct Case {
  Size size;
  uint32_t in, out;
  uint32_t granularity;
  uint32_t rule;
  bool has_out, has_out_t;
  int64_t padding = 0;
  bool keeps_positive = false;
  bool has_factor = false;
  float eps = 0.0f;
  const float *counter = nullptr; /* warm-up: below the window of 4 or not */
  Values values = Values::kSpecial;
  Layout in_layout = {3, 0};
  Layout out_layout = {5, 0};
  Layout out_t_layout = {2, 0};
  float scale = 3.0f;
  uint32_t granularity_t = 0; /* of out_t; 0: that of out */
  float factor = 0.37f;       /* in_scale_inv, with has_factor */
};

inline std::string text(const Layout &l) {
  return "(" + std::to_string(l.gap) + ", " + std::to_string(l.skipped) + ")";
}

inline std::string text(const Case &k) {
  return "[" + std::to_string(k.size.rows) + ", " + std::to_string(k.size.cols) + "] in " +
         std::to_string(k.in) + " out " + std::to_string(k.out) + " granularity " +
         std::to_string(k.granularity) + " rule " + std::to_string(k.rule) + " outputs " +
         std::to_string(k.has_out) + std::to_string(k.has_out_t) + " padding " +
         std::to_string(k.padding) + " layouts " + text(k.in_layout) + text(k.out_layout) +
         text(k.out_t_layout);
}

inline Twins::Scales make_scales(Twins &twins, uint32_t granularity, int64_t rows, int64_t cols) {
  octavo_scale s = {};
  s.granularity = granularity;
  s.dtype = OCTAVO_F32;
  if (granularity == OCTAVO_PER_TENSOR) return {twins.floats({7.0f}), s};
  if (granularity == OCTAVO_PER_ROW) {
    s.stride = 1;
    return {twins.floats(std::vector<float>(static_cast<size_t>(rows), 7.0f)), s};
  }
  s.stride = divide_up(cols, block_cols(granularity)) + 1;
  const int64_t count = divide_up(rows, block_rows(granularity)) * s.stride;
  if (is_mx_granularity(granularity)) {
    s.dtype = OCTAVO_E8M0FNU;
    return {twins.bytes(static_cast<size_t>(count), 0x55), s};
  }
  return {twins.floats(std::vector<float>(static_cast<size_t>(count), 7.0f)), s};
}

inline void run(Devices &devices, const Case &k, uint64_t seed) {
  Twins twins(seed);
  const auto in =
      twins.tensor(k.size.rows, k.size.cols, k.in, k.values, k.in_layout.gap, k.in_layout.skipped);
  const int64_t rows = k.size.rows + k.padding;
  const int64_t cols = k.size.cols + k.padding;
  const auto out =
      twins.tensor(rows, cols, k.out, Values::kNormal, k.out_layout.gap, k.out_layout.skipped);
  const auto out_t =
      twins.tensor(cols, rows, k.out, Values::kNormal, k.out_t_layout.gap, k.out_t_layout.skipped);
  const Twins::Scales scales = make_scales(twins, k.granularity, rows, cols);
  const Twins::Scales scales_t =
      make_scales(twins, k.granularity_t != 0 ? k.granularity_t : k.granularity, cols, rows);
  const size_t amax = twins.floats({0.25f});
  const size_t nonfinite = twins.floats({0.0f});
  const size_t given = twins.floats({k.scale});
  const size_t factor = twins.floats({k.factor});
  const size_t counter = twins.floats({k.counter == nullptr ? 0.0f : *k.counter});
  const bool is_tensor = k.granularity == OCTAVO_PER_TENSOR;
  for (int side = 0; side < 2; ++side) {
    const octavo_tensor tensor = twins.at(side, in);
    octavo_tensor codes = twins.at(side, out);
    octavo_tensor codes_t = twins.at(side, out_t);
    octavo_scale s = scales.shape;
    octavo_scale s_t = scales_t.shape;
    s.data = twins.data(side, scales.buffer);
    s_t.data = twins.data(side, scales_t.buffer);
    octavo_quantize c = {};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_QUANTIZE;
    c.in = &tensor;
    c.out = k.has_out ? &codes : nullptr;
    c.out_t = k.has_out_t ? &codes_t : nullptr;
    c.out_scale_inv = &s;
    c.out_t_scale_inv = &s_t;
    if (!k.has_out && !is_tensor) c.out_scale_inv = nullptr;
    if (!k.has_out_t) c.out_t_scale_inv = nullptr;
    c.in_scale_inv = k.has_factor ? twins.floats_at(side, factor) : nullptr;
    c.scale = is_tensor ? twins.floats_at(side, given) : nullptr;
    c.counter = k.counter != nullptr ? twins.floats_at(side, counter) : nullptr;
    c.window = 4.0f;
    c.amax = twins.floats_at(side, amax);
    c.nonfinite = twins.floats_at(side, nonfinite);
    c.format_max = largest_of(k.out);
    c.rule = k.rule;
    c.eps = k.eps;
    c.flags = k.keeps_positive ? uint32_t{OCTAVO_QUANTIZE_KEEP_POSITIVE} : 0u;
    Workspace workspace(side, cuda::quantize_workspace());
    c.workspace = workspace.data();
    const octavo_status status = devices.run(side, &octavo_kernels::quantize, c);
    ASSERT_EQ(status, OCTAVO_OK) << text(k) << ": " << devices.last_text();
  }
  twins.expect_equal(text(k));
}

}  // namespace octavo::test

#endif
