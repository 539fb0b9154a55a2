/* States of granularity FLAT_256 and EXPANDED_128: blocks, and the two verbs that move whole
 * states.
 *
 * The numbers come from kernels/format/block_state.h. Every block is in one segment, so one
 * thread sees all of it and the cut into ranges never shows.
 */
#include "kernels/cpu/state_blocks.h"

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

static_assert(kSegment % kFlatBlock == 0 && kSegment % kExpandedBlock == 0,
              "a segment must end where a block ends");

/* Calls body(start, length, block) for the blocks of [first, first + count); start counts from
 * first, block from the start of the tensor. */
template <typename Body>
void for_blocks(int64_t size, int64_t first, int64_t count, Body &&body) {
  for (int64_t start = 0; start < count; start += size) {
    body(start, count - start < size ? count - start : size, (first + start) / size);
  }
}

/* Without a branch, so that the loop becomes vector code. */
template <typename Code>
void raise_zero_codes(const float *values, int64_t count, Code *codes) {
  for (int64_t i = 0; i < count; ++i) {
    const int is_raised = (values[i] > 0.0f ? 1 : 0) & (codes[i] == 0 ? 1 : 0);
    codes[i] = static_cast<Code>(codes[i] + is_raised);
  }
}

}  // namespace

void load_state_blocks(const Context &context, const octavo_tensor &codes, const float *scales,
                       uint32_t granularity, int64_t first, int64_t count, float *values) {
  if (granularity == OCTAVO_FLAT_256) {
    context.level->load(codes.dtype, element(codes, 0, first), count, values);
    for_blocks(kFlatBlock, first, count, [&](int64_t start, int64_t length, int64_t block) {
      context.level->multiply(values + start, length, scales[block]);
    });
    return;
  }
  const auto *from = reinterpret_cast<const uint8_t *>(element(codes, 0, first));
  for_blocks(kExpandedBlock, first, count, [&](int64_t start, int64_t length, int64_t block) {
    const float *s = scales + block * kExpandedScales;
    const ExpandedGroup group = {s[0], s[1], s[2]};
    context.level->updates.states.decode_expanded(group, from + start, length, values + start);
  });
}

void store_state_blocks(const Context &context, const octavo_tensor &codes, float *scales,
                        uint32_t granularity, int64_t first, int64_t count, const float *values,
                        const RandomKey *key) {
  const StateLoops &loops = context.level->updates.states;
  const RoundingLoops &rounding = context.level->updates.rounding;
  auto *to = reinterpret_cast<uint8_t *>(element(codes, 0, first));
  if (granularity == OCTAVO_FLAT_256) {
    for_blocks(kFlatBlock, first, count, [&](int64_t start, int64_t length, int64_t block) {
      const float scale_inv = flat_scale_inv(loops.range(values + start, length));
      scales[block] = scale_inv;
      if (key == nullptr) return loops.encode_flat(scale_inv, values + start, length, to + start);
      float scaled[kFlatBlock];
      for (int64_t i = 0; i < length; ++i) scaled[i] = values[start + i] / scale_inv;
      rounding.cast(codes.dtype, true, scaled, length, 1.0f, *key,
                    static_cast<uint64_t>(first + start), to + start);
    });
    return;
  }
  for_blocks(kExpandedBlock, first, count, [&](int64_t start, int64_t length, int64_t block) {
    const ExpandedGroup group = expanded_group(loops.range(values + start, length));
    float *s = scales + block * kExpandedScales;
    s[0] = group.scale_inv;
    s[1] = group.exponent;
    s[2] = group.center;
    if (key == nullptr) return loops.encode_expanded(group, values + start, length, to + start);
    rounding.encode_expanded(group, values + start, length, *key,
                             static_cast<uint64_t>(first + start), to + start);
  });
}

void keep_positive(uint32_t dtype, const float *values, int64_t count, void *codes) {
  if (dtype_bytes(dtype) == 1) {
    raise_zero_codes(values, count, static_cast<uint8_t *>(codes));
  } else {
    raise_zero_codes(values, count, static_cast<uint16_t *>(codes));
  }
}

octavo_status quantize_state(const Context &context, const octavo_quantize &c) {
  const float factor = c.in_scale_inv == nullptr ? 1.0f : *c.in_scale_inv;
  const octavo_tensor in = as_row(*c.in);
  const octavo_tensor out = as_row(*c.out);
  auto *scales = static_cast<float *>(c.out_scale_inv->data);
  SharedStats shared;
  const octavo_status status =
      for_segment_ranges(context, 1, in.cols, [&](int64_t begin, int64_t end) {
        ValueStats stats;
        for_segments(in.cols, begin, end, [&](int64_t, int64_t first, int64_t count) {
          float values[kSegment];
          load_values(context, in, 0, first, count, factor, values);
          merge(&stats, context.level->casts.measure(OCTAVO_F32, values, count));
          store_state_blocks(context, out, scales, c.out_scale_inv->granularity, first, count,
                             values);
          if ((c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0) {
            keep_positive(out.dtype, values, count, element(out, 0, first));
          }
        });
        shared.add(stats);
      });
  if (status == OCTAVO_OK) shared.publish(c.amax, c.nonfinite);
  return status;
}

octavo_status dequantize_state(const Context &context, const octavo_dequantize &c) {
  const octavo_tensor in = as_row(*c.in);
  const octavo_tensor out = as_row(*c.out);
  const auto *scales = static_cast<const float *>(c.scale_inv->data);
  return for_segment_ranges(context, 1, in.cols, [&](int64_t begin, int64_t end) {
    for_segments(in.cols, begin, end, [&](int64_t, int64_t first, int64_t count) {
      float values[kSegment];
      load_state_blocks(context, in, scales, c.scale_inv->granularity, first, count, values);
      store_plain(context, out, 0, first, count, c.accumulate != 0, values);
    });
  });
}

}  // namespace octavo
