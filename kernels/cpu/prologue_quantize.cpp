/* prologue_quantize: a norm or an activation whose result goes straight into codes.
 *
 * Where the scales need no more than a few rows (they are given, or each block has its own), a
 * thread computes a band of rows into a piece of the workspace and casts it while it is in cache.
 * Current scaling has to see every value first: there the workspace takes all of them.
 */
#include <atomic>

#include "kernels/check/calls.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

/* All blocks of 128 and of 32 end with a band of 128 rows, and a transposed output of codes gets
 * two cache lines of each column. */
constexpr int64_t kBand = 128;
/* With fewer bands threads would have nothing to do: then rows and tiles are shared out instead. */
constexpr int64_t kFewBands = 8;

/* Rows of a band; 0 when the scales need all rows. */
int64_t band_rows(const octavo_quantize &q) {
  if (is_block_scaled(q)) return kBand;
  const bool is_given =
      q.rule == OCTAVO_RULE_GIVEN || (q.counter != nullptr && *q.counter >= q.window);
  return is_given && !is_state_scaled(q) ? kBand : 0;
}

/* The scales of the part of a tensor that starts at (row, col), a multiple of the block's size. Of
 * the bands of a tensor with one scale only the last one writes it, the others into `unused`. */
octavo_scale part_of(const octavo_scale &s, int64_t row, int64_t col, bool is_last, float *unused) {
  octavo_scale part = s;
  if (is_block_granularity(s.granularity)) {
    const int64_t index =
        row / block_rows(s.granularity) * s.stride + col / block_cols(s.granularity);
    part.data = static_cast<char *>(s.data) + index * dtype_bytes(s.dtype);
  } else if (!is_last) {
    part.data = unused;
  }
  return part;
}

/* The rows of in from `begin` on that are in `values`, to codes. The last band has the padding
 * after it, too. */
octavo_status quantize_band(const Context &serial, const octavo_quantize &q,
                            const octavo_tensor &values, int64_t begin, bool is_last) {
  octavo_quantize part = q;
  octavo_tensor out = {};
  octavo_tensor out_t = {};
  octavo_scale out_scales = {};
  octavo_scale out_t_scales = {};
  float unused = 0.0f;
  part.in = &values;
  if (q.out != nullptr) {
    out = *q.out;
    out.data = element(*q.out, begin, 0);
    out.rows = is_last ? q.out->rows - begin : values.rows;
    part.out = &out;
  }
  if (q.out_t != nullptr) {
    out_t = *q.out_t;
    out_t.data = element(*q.out_t, 0, begin);
    out_t.cols = is_last ? q.out_t->cols - begin : values.rows;
    part.out_t = &out_t;
  }
  if (q.out_scale_inv != nullptr) {
    out_scales = part_of(*q.out_scale_inv, begin, 0, is_last, &unused);
    part.out_scale_inv = &out_scales;
  }
  if (q.out_t_scale_inv != nullptr) {
    out_t_scales = part_of(*q.out_t_scale_inv, 0, begin, is_last, &unused);
    part.out_t_scale_inv = &out_t_scales;
  }
  return quantize(serial, part);
}

/* Every range of bands uses the piece of the workspace where its first band would be. */
octavo_status quantize_bands(const Context &context, const octavo_prologue &p,
                             const octavo_quantize &q, int64_t rows_of_band) {
  const octavo_tensor &in = *q.in;
  const Context serial = {context.host, nullptr, context.level};
  const int64_t count = divide_up(in.rows, rows_of_band);
  const int64_t grain = divide_up(kGrainElements, rows_of_band * in.cols);
  std::atomic<octavo_status> failed = OCTAVO_OK;
  const octavo_status status = context.for_ranges(count, grain, [&](int64_t first, int64_t last) {
    octavo_tensor values = in;
    values.data = element(in, first * rows_of_band, 0);
    for (int64_t band = first; band < last; ++band) {
      const int64_t begin = band * rows_of_band;
      const bool is_last = band + 1 == count;
      values.rows = is_last ? in.rows - begin : rows_of_band;
      prologue_rows(context, p, begin, begin + values.rows, begin, values);
      const octavo_status of_band = quantize_band(serial, q, values, begin, is_last);
      if (of_band != OCTAVO_OK) failed.store(of_band, std::memory_order_relaxed);
    }
  });
  return status != OCTAVO_OK ? status : failed.load(std::memory_order_relaxed);
}

}  // namespace

octavo_status prologue_quantize(const Context &context, const octavo_prologue_call &c) {
  const octavo_tensor values = dense_at(*c.quantize->in, c.workspace);
  const bool is_empty = values.rows == 0 || values.cols == 0;
  octavo_quantize q;
  OCTAVO_TAKE(q, c.quantize);
  q.in = &values;

  const int64_t rows_of_band = band_rows(q);
  if (rows_of_band > 0 && !is_empty && divide_up(values.rows, rows_of_band) >= kFewBands) {
    return quantize_bands(context, *c.prologue, q, rows_of_band);
  }
  octavo_status status = prologue_all(context, *c.prologue, values);
  return status == OCTAVO_OK ? quantize(context, q) : status;
}

}  // namespace octavo
