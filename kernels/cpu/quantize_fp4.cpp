/* quantize to E2M1: the amax of the tensor first, then blocks of 16 with a scale each.
 *
 * Both passes walk in bands of 16 rows, in which blocks of rows, of columns and of 16x16 elements
 * all end, so that no scale and no byte of codes has two writers. A piece of a band is in fp32 on
 * the stack. What is outside of `in` is 0 there: padding gets its codes and scales like everything
 * else.
 */
#include "kernels/cpu/fp4.h"

#include "kernels/cpu/cast_rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

constexpr int64_t kSide = kFp4Block;
constexpr int64_t kWide = kSegment;
constexpr int64_t kBlocks = kWide / kSide;

/* A piece of a band, [16][512]. */
using Piece = float[kSide * kWide];

/* One output and what its numbers follow from. */
struct Output {
  const octavo_tensor *codes; /* null: none */
  const octavo_scale *scales;
  bool is_random;
  int64_t length; /* of a row, without padding: what random numbers count */
  Nvfp4Tensor tensor = {};
  RandomKey key = {};

  bool exists() const { return codes != nullptr; }
  bool is_square() const { return block_rows(scales->granularity) > 1; }
  uint8_t *scale_at(int64_t row, int64_t block) const {
    return static_cast<uint8_t *>(scales->data) + row * scales->stride + block;
  }
};

struct Plan {
  Source source;
  Output out;
  Output out_t;
  bool transforms;
  int64_t rows; /* of all bands, with padding */
  int64_t cols;

  void cover(int64_t output_rows, int64_t output_cols) {
    if (rows < output_rows) rows = divide_up(output_rows, kSide) * kSide;
    if (cols < output_cols) cols = divide_up(output_cols, kSide) * kSide;
  }
};

/* Rows [row, row + 16), columns [col, col + width). */
void load_piece(const Context &context, const Plan &plan, int64_t row, int64_t col, int64_t width,
                Piece &piece) {
  const octavo_tensor &in = plan.source.in;
  const int64_t rest = in.cols - col < width ? in.cols - col : width;
  for (int64_t r = 0; r < kSide; ++r) {
    float *values = piece + r * kWide;
    const int64_t count = row + r < in.rows && rest > 0 ? rest : 0;
    if (count > 0) load_values(context, in, row + r, col, count, plan.source.factor, values);
    for (int64_t i = count; i < width; ++i) values[i] = 0.0f;
  }
}

/* As the reference does, in the dtype of the input. */
void transform(const Context &context, const Plan &plan, int64_t width, Piece &piece) {
  hadamard_columns(piece, kWide, width);
  const uint32_t dtype = plan.source.in.dtype;
  if (dtype != OCTAVO_BF16 && dtype != OCTAVO_F16) return;
  for (int64_t r = 0; r < kSide; ++r) {
    uint16_t rounded[kWide];
    context.level->store(dtype, piece + r * kWide, width, rounded);
    context.level->load(dtype, rounded, width, piece + r * kWide);
  }
}

/* amax[i] of kRows x kCols elements, as bits: that of 16 in a row, of 16 in a column, or of 16x16.
 */
template <int64_t kRows, int64_t kCols>
void measure(const float *values, int64_t width, int32_t *amax) {
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t block = 0; block < width / kCols; ++block) {
      int32_t most = r == 0 ? 0 : amax[block];
      for (int64_t i = 0; i < kCols; ++i) {
        const int32_t bits = float_bits(values[r * kWide + block * kCols + i]) & kMagnitudeMask;
        most = most < bits ? bits : most;
      }
      amax[block] = most;
    }
  }
}

uint8_t scale_of(const Output &output, int32_t amax_bits, float *factor) {
  const uint8_t scale = nvfp4_block_scale(output.tensor, bits_float(amax_bits));
  *factor = nvfp4_encode_factor(output.tensor, scale);
  return scale;
}

/* codes[i] of fl32(values[i] * factors[i / kLength]); element `first` + i * step of the output. */
template <int64_t kLength>
void encode(const Output &output, const float *values, const float *factors, int64_t count,
            uint64_t first, uint64_t step, uint8_t *codes) {
  if (!output.is_random) {
    for (int64_t block = 0; block < count / kLength; ++block)
      for (int64_t i = block * kLength; i < (block + 1) * kLength; ++i)
        codes[i] = encode_e2m1(values[i] * factors[block]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t random = random_bits(output.key, first + static_cast<uint64_t>(i) * step);
    codes[i] = encode_e2m1_random(values[i] * factors[i / kLength], random);
  }
}

/* `out` of a piece. */
void write_rows(const Plan &plan, int64_t row, int64_t col, int64_t width, const Piece &piece) {
  const Output &o = plan.out;
  const int64_t count = o.codes->cols - col < width ? o.codes->cols - col : width;
  int32_t amax[kBlocks];
  float factors[kBlocks];
  if (o.is_square()) measure<kSide, kSide>(piece, width, amax);
  for (int64_t r = 0; r < kSide && row + r < o.codes->rows && count > 0; ++r) {
    const float *values = piece + r * kWide;
    if (!o.is_square()) measure<1, kSide>(values, width, amax);
    uint8_t *scales = o.scale_at((row + r) / block_rows(o.scales->granularity), col / kSide);
    for (int64_t i = 0; i < count / kSide; ++i) scales[i] = scale_of(o, amax[i], &factors[i]);
    uint8_t codes[kWide];
    encode<kSide>(o, values, factors, count, static_cast<uint64_t>((row + r) * o.length + col), 1,
                  codes);
    auto *to = reinterpret_cast<uint8_t *>(element(*o.codes, row + r, col));
    for (int64_t i = 0; i < count / 2; ++i)
      to[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

/* `out_t` of a piece, whose rows are the columns of the piece. */
void write_columns(const Context &context, const Plan &plan, int64_t row, int64_t col,
                   int64_t width, const Piece &piece) {
  const Output &o = plan.out_t;
  const int64_t count = o.codes->rows - col < width ? o.codes->rows - col : width;
  if (row >= o.codes->cols || count <= 0) return;
  int32_t amax[kWide];
  float factors[kWide];
  if (o.is_square()) {
    int32_t squares[kBlocks];
    measure<kSide, kSide>(piece, width, squares);
    for (int64_t i = 0; i < count; ++i) amax[i] = squares[i / kSide];
  } else {
    measure<kSide, 1>(piece, width, amax);
  }
  const int64_t shared = block_rows(o.scales->granularity);
  for (int64_t i = 0; i < count; ++i)
    *o.scale_at((col + i) / shared, row / kSide) = scale_of(o, amax[i], &factors[i]);
  uint8_t pairs[kSide / 2 * kWide];
  uint8_t codes[2][kWide];
  for (int64_t r = 0; r < kSide; ++r) {
    encode<1>(o, piece + r * kWide, factors, count, static_cast<uint64_t>(col * o.length + row + r),
              static_cast<uint64_t>(o.length), codes[r % 2]);
    if (r % 2 == 0) continue;
    for (int64_t i = 0; i < count; ++i)
      pairs[r / 2 * kWide + i] = static_cast<uint8_t>(codes[0][i] | codes[1][i] << 4);
  }
  context.level->casts.transpose(pairs, kWide, kSide / 2, count,
                                 reinterpret_cast<uint8_t *>(element(*o.codes, col, row)),
                                 o.codes->stride / 2, false);
}

/* Calls body(row, col, width, piece) for all pieces, on the host's threads. */
template <typename Body>
octavo_status for_pieces(const Context &context, const Plan &plan, Body &&body) {
  if (plan.cols == 0) return OCTAVO_OK;
  const int64_t grain = divide_up(kGrainElements, plan.cols * kSide);
  return context.for_ranges(plan.rows / kSide, grain, [&](int64_t begin, int64_t end) {
    Piece piece;
    for (int64_t band = begin; band < end; ++band) {
      for (int64_t col = 0; col < plan.cols; col += kWide) {
        const int64_t width = plan.cols - col < kWide ? plan.cols - col : kWide;
        load_piece(context, plan, band * kSide, col, width, piece);
        body(band * kSide, col, width, piece);
      }
    }
  });
}

void measure_piece(const Context &context, int64_t width, const Piece &piece, SharedStats *seen) {
  ValueStats stats;
  for (int64_t r = 0; r < kSide; ++r)
    merge(&stats, context.level->casts.measure(OCTAVO_F32, piece + r * kWide, width));
  seen->add(stats);
}

void finish_output(Output *output, const SharedStats &seen, const Fp4Ways &ways, uint32_t which) {
  if (!output->exists()) return;
  const float amax = seen.amax();
  *output->scales->second = nvfp4_second(amax);
  output->tensor = nvfp4_tensor(amax);
  /* With the amax: two batches of one step, and two ranks, draw different numbers. */
  const uint64_t own = ways.key ^ mix64(static_cast<uint64_t>(float_bits(amax)) + 1);
  output->key = random_key(own, ways.count, which);
}

}  // namespace

octavo_status quantize_fp4(const Context &context, const octavo_quantize &c, const Fp4Ways &ways) {
  const bool is_random = (ways.flags & OCTAVO_FP4_STOCHASTIC) != 0;
  Plan plan = {source_of(c),
               {c.out, c.out_scale_inv, is_random, c.in->cols},
               {c.out_t, c.out_t_scale_inv, is_random, c.in->rows},
               c.out_t != nullptr && (ways.flags & OCTAVO_FP4_HADAMARD) != 0,
               0,
               0};
  if (c.out != nullptr) plan.cover(c.out->rows, c.out->cols);
  if (c.out_t != nullptr) plan.cover(c.out_t->cols, c.out_t->rows);
  SharedStats seen, transformed;
  octavo_status status =
      for_pieces(context, plan, [&](int64_t, int64_t, int64_t width, Piece &piece) {
        measure_piece(context, width, piece, &seen);
        if (!plan.transforms) return;
        transform(context, plan, width, piece);
        measure_piece(context, width, piece, &transformed);
      });
  if (status != OCTAVO_OK) return status;
  finish_output(&plan.out, seen, ways, 0);
  finish_output(&plan.out_t, plan.transforms ? transformed : seen, ways, 1);
  status = for_pieces(context, plan, [&](int64_t row, int64_t col, int64_t width, Piece &piece) {
    if (plan.out.exists()) write_rows(plan, row, col, width, piece);
    if (!plan.out_t.exists()) return;
    if (plan.transforms) transform(context, plan, width, piece);
    write_columns(context, plan, row, col, width, piece);
  });
  if (status == OCTAVO_OK) seen.publish(c.amax, c.nonfinite);
  return status;
}

octavo_status quantize_fp4(const Context &context, const octavo_quantize_fp4 &c) {
  return quantize_fp4(context, *c.quantize, {c.flags, c.key, step_of(c.count)});
}

}  // namespace octavo
