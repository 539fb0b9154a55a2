// One bucket of weight gradients over W ranks, in FP8 on stock collectives (FP8-LM, arXiv
// 2310.18313, section 2.2).
//
// Two-shot: amax -> [max over ranks] -> cast with the common scale -> [all-to-all of codes] -> sum
// of W shards in rank order, in fp32, with one cast back -> [all-gather] -> the gradient slots. So
// an element is rounded twice for any W, where a ring rounds it at every hop. One-shot, for small
// buckets: all codes to everybody, who adds all of them: one exchange less and the same bits.
#include <cmath>

#include "msamp.h"

namespace octavo::msamp {
namespace {

using plugin::ParameterCall;
using plugin::Reduction;

// Shards start at a multiple of this, in codes.
constexpr int64_t kShardMultiple = 16;

// Where element i of memory is; null when a plan measures.
template <typename Value>
Value *item(Value *values, uint64_t i) {
  return values == nullptr ? nullptr : values + i;
}

Codes gradient_of(const ParameterCall &c) {
  return c.stored(OCTAVO_ROLE_GRADIENT);
}
octavo_scale scale_at(float *address) {
  return OCTAVO_SCALE(address, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
}
// One gradient's part of `codes`, which begins at *at and ends at the next one's.
octavo_tensor codes_of(const ParameterCall &c, const void *codes, uint64_t *at) {
  const Parameter &p = c.parameter;
  // Only the tensor struct needs a pointer that could write.
  auto *begin = const_cast<uint8_t *>(static_cast<const uint8_t *>(codes));
  const octavo_tensor part{item(begin, *at), p.rows, p.cols, p.cols, OCTAVO_E4M3FN, 0};
  *at += static_cast<uint64_t>(c.elements());
  return part;
}

void multiply(Pass &p, float *values, uint64_t n, float factor) {
  auto call = p.call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
  call.out = values;
  call.in = values;
  call.n = n;
  call.factor = factor;
  p.run(&octavo_msamp_kernels::scale_values, call);
}

void copy(Pass &p, void *out, const void *in, uint64_t bytes) {
  auto call = p.call<octavo_copy>(OCTAVO_KIND_COPY);
  call.out = out;
  call.in = in;
  call.bytes = bytes;
  p.run(&octavo_kernels::copy, call);
}

// send = f32 [count]: this rank's amax of every gradient.
void measure_gradients(Pass &p, const Reduction &r) {
  auto *amax = static_cast<float *>(r.send());
  p.clear(amax, r.count() * sizeof(float));
  for (uint64_t i = 0; i < r.count(); ++i) {
    const Codes gradient = gradient_of(r[i]);
    auto call = p.call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
    call.in = &gradient.rows;
    call.in_scale_inv = plugin::if_scaled(gradient.scale_inv);
    call.amax = item(amax, i);
    p.run(&octavo_kernels::compute_amax, call);
  }
}

// send = codes of all gradients with the common scales, one after the other, and zeros.
void cast_gradients(Pass &p, const Reduction &r, float *scale, float *scale_inv, uint64_t room) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < r.count(); ++i) {
    const Codes gradient = gradient_of(r[i]);
    Codes codes;
    codes.rows = codes_of(r[i], r.send(), &at);
    codes.scale_inv = scale_at(item(scale_inv, i));
    Cast how;
    how.rule = OCTAVO_RULE_GIVEN;
    how.scale = item(scale, i);
    how.in_scale_inv = plugin::floats_of(gradient.scale_inv);
    p.cast(gradient.rows, codes, how);
  }
  auto *send = static_cast<uint8_t *>(r.send());
  if (room > at) p.clear(item(send, at), room - at);
}

// The mean over ranks: the summed codes with scale_inv / W.
void store_mean(Pass &p, const Reduction &r, const void *codes, float *scale_inv) {
  multiply(p, scale_inv, r.count(), 1.0F / static_cast<float>(r.world()));
  uint64_t at = 0;
  for (uint64_t i = 0; i < r.count(); ++i) {
    Codes gradient = gradient_of(r[i]);
    const octavo_tensor sum = codes_of(r[i], codes, &at);
    if (gradient.by_rows().is_plain()) {
      p.decode({sum, scale_at(item(scale_inv, i))}, gradient.rows);
    } else {
      copy(p, gradient.rows.data, sum.data, static_cast<uint64_t>(r[i].elements()));
      copy(p, gradient.scale_inv.data, item(scale_inv, i), sizeof(float));
    }
  }
}

}  // namespace

void Msamp::reduce(Reduction &r) const {
  const uint64_t n = r.count(), elements = r.elements(), world = r.world();
  float *scale = r.floats(), *scale_inv = r.floats();
  r.stage({OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, n, n},
          [&](Pass &p) { measure_gradients(p, r); });
  // Everybody gets (W - 1) n bytes in one shot and 2 (W - 1) n / W in two: the limit is on what
  // two ranks would send.
  if (elements <= options().one_shot_bytes * 2 / world) {
    r.stage({OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, elements, elements * world}, [&](Pass &p) {
      scale_gradients(p, r, scale);
      cast_gradients(p, r, scale, scale_inv, elements);
    });
    r.stage({}, [&](Pass &p) {
      // Every rank adds all elements, so each counts a saturated one for 1 / W.
      add_codes(p, r, elements, 1.0F / static_cast<float>(world));
      store_mean(p, r, r.send(), scale_inv);
    });
    return;
  }
  const auto part = static_cast<int64_t>((elements + world - 1) / world);
  const auto shard =
      static_cast<uint64_t>(plugin::divide_up(part, kShardMultiple) * kShardMultiple);
  const uint64_t all = shard * world;
  r.stage({OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, all, all}, [&](Pass &p) {
    scale_gradients(p, r, scale);
    cast_gradients(p, r, scale, scale_inv, all);
  });
  r.stage({OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, shard, all},
          [&](Pass &p) { add_codes(p, r, shard, 0); });
  r.stage({}, [&](Pass &p) { store_mean(p, r, r.recv(), scale_inv); });
}

// The common scales from the common amax, with the pre-scale.
void Msamp::scale_gradients(Pass &p, const Reduction &r, float *scale) const {
  auto rule = p.call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
  rule.amax = static_cast<const float *>(r.recv());
  rule.scale = scale;
  rule.n = r.count();
  rule.format_max = plugin::format_max(OCTAVO_E4M3FN);
  rule.divide_by = 1;
  rule.rule = options().rule();
  if (!options().parity()) {
    p.run(&octavo_kernels::scale_from_amax, rule);
    return prescale(p, r, scale, r.count());
  }
  // MS-AMP 0.4.0 keeps the pre-scaled scale and, where the amax gives none, scales it again.
  rule.n = 1;
  auto *amax = static_cast<const float *>(r.recv());
  for (uint64_t i = 0; i < r.count(); ++i) {
    float *kept = r[i][reduce_scale_];
    rule.amax = item(amax, i);
    rule.scale = item(scale, i);
    rule.kept = kept;
    p.run(&octavo_kernels::scale_from_amax, rule);
    prescale(p, r, rule.scale, 1);
    copy(p, kept, rule.scale, sizeof(float));
  }
}

void Msamp::prescale(Pass &p, const Reduction &r, float *scale, uint64_t n) const {
  const auto world = static_cast<float>(r.world());
  switch (options().reduction_prescale()) {
    case Prescale::kSqrt:
      return multiply(p, scale, n,
                      static_cast<float>(1.0 / std::sqrt(static_cast<double>(r.world()))));
    case Prescale::kFull: return multiply(p, scale, n, 1.0F / world);
    case Prescale::kNone: return multiply(p, scale, n, 1.0F);
    default: break;
  }
  // FP8-LM's value is on the device, so it multiplies as a scale_inv does.
  const auto count = static_cast<int64_t>(n);
  octavo_tensor values{scale, 1, count, count, OCTAVO_F32, 0};
  p.decode({values, scale_at(r[0][prescale_])}, values);
}

// send = the sums of `elements` codes of each rank in recv, in the order of ranks, cast once.
void Msamp::add_codes(Pass &p, const Reduction &r, uint64_t elements, float count_as) const {
  auto call = p.call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
  call.codes = r.recv();
  call.out = r.send();
  call.count = elements;
  call.shards = r.world();
  call.shard_stride = elements;
  call.saturated = r[0][saturated_];
  call.added = r[0][added_];
  call.dtype = OCTAVO_E4M3FN;
  call.count_as = count_as;
  p.run(&octavo_msamp_kernels::sum_quantized, call);
}

}  // namespace octavo::msamp
