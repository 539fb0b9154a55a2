// The stages of a gradient reduction, each a few kernel calls over the tensors of a bucket.
#include "reduction.h"

#include <cmath>

#include "plugins/common/product.h"

namespace octavo::msamp {
namespace {

class Stage {
 public:
  Stage(const octavo_session &s, const octavo_gradient_call &c, const Bucket &bucket)
      : s_(s), c_(c), bucket_(bucket), state_(state_of(bucket, c.state)) {}

  octavo_status run() {
    switch (c_.stage) {
      case 0: return measure();
      case 1: return cast();
      case 2: return bucket_.one_shot ? sum_all() : sum_shard();
      default: return store();
    }
  }

 private:
  const Parameter &parameter(uint64_t i) const { return s_.parameters[c_.items[i].parameter]; }
  static uint64_t elements(const Parameter &p) { return static_cast<uint64_t>(p.rows * p.cols); }
  const octavo_kernels &kernels() const { return s_.device.kernels(); }
  void *ctx() const { return s_.device.ctx(); }

  octavo_tensor gradient(uint64_t i) const {
    const Parameter &p = parameter(i);
    return tensor_at(c_.items[i].slots, p.gradient, p.rows, p.cols);
  }
  // Null for an f32 gradient.
  float *gradient_scale_inv(uint64_t i) const {
    return float_at(c_.items[i].slots, parameter(i).gradient.scale_inv);
  }

  // send = f32 [count]: this rank's amax of every gradient.
  octavo_status measure() {
    auto *amax = static_cast<float *>(c_.send);
    octavo_status status = plugin::clear(s_.device, c_.stream, amax, bucket_.count * sizeof(float));
    for (uint64_t i = 0; i < bucket_.count && status == OCTAVO_OK; ++i) {
      const octavo_tensor in = gradient(i);
      const octavo_scale scale_inv{gradient_scale_inv(i), 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
      auto call = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX, c_.stream);
      call.in = &in;
      call.in_scale_inv = scale_inv.data != nullptr ? &scale_inv : nullptr;
      call.amax = amax + i;
      status = kernels().compute_amax(ctx(), &call);
    }
    return status;
  }

  // The common scales from the common amax, with the pre-scale.
  octavo_status scales() {
    auto rule = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX, c_.stream);
    rule.amax = static_cast<const float *>(c_.recv);
    rule.scale = state_.scale;
    rule.n = bucket_.count;
    rule.format_max = kE4m3Max;
    rule.divide_by = 1;
    rule.rule = s_.recipe.rule();
    if (!s_.recipe.parity) {
      const octavo_status status = kernels().scale_from_amax(ctx(), &rule);
      return status != OCTAVO_OK ? status : prescale(0, bucket_.count);
    }
    // MS-AMP 0.4.0 keeps the pre-scaled scale and, where the amax gives none, scales it again.
    for (uint64_t i = 0; i < bucket_.count; ++i) {
      float *kept = float_at(c_.items[i].slots, parameter(i).reduce_scale);
      rule.amax = static_cast<const float *>(c_.recv) + i;
      rule.scale = state_.scale + i;
      rule.n = 1;
      rule.kept = kept;
      octavo_status status = kernels().scale_from_amax(ctx(), &rule);
      if (status == OCTAVO_OK) status = prescale(i, 1);
      auto copy = make_call<octavo_copy>(OCTAVO_KIND_COPY, c_.stream);
      copy.out = kept;
      copy.in = state_.scale + i;
      copy.bytes = sizeof(float);
      if (status == OCTAVO_OK) status = kernels().copy(ctx(), &copy);
      if (status != OCTAVO_OK) return status;
    }
    return OCTAVO_OK;
  }

  octavo_status prescale(uint64_t first, uint64_t count) {
    if (s_.recipe.prescale == Prescale::kAuto) {
      // Its value lies on the device, so it multiplies as a scale_inv does.
      octavo_tensor values{state_.scale + first,        1,          static_cast<int64_t>(count),
                           static_cast<int64_t>(count), OCTAVO_F32, 0};
      const octavo_scale factor{at(c_.items[0].slots, parameter(0).prescale), 0, OCTAVO_F32,
                                OCTAVO_PER_TENSOR};
      return plugin::dequantize(s_.device, c_.stream, values, &factor, &values, false);
    }
    const auto world = static_cast<float>(c_.world);
    const float factor = s_.recipe.prescale == Prescale::kSqrt
                             ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.world)))
                         : s_.recipe.prescale == Prescale::kFull ? 1.0f / world
                                                                 : 1.0f;
    return multiply(state_.scale + first, state_.scale + first, count, factor);
  }

  octavo_status multiply(float *out, const float *in, uint64_t n, float factor) {
    auto call = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES, c_.stream);
    call.out = out;
    call.in = in;
    call.n = n;
    call.factor = factor;
    return kernels().scale_values(ctx(), &call);
  }

  // send = codes of all gradients, one after the other, then zeros up to W whole shards.
  octavo_status cast() {
    octavo_status status = scales();
    auto *out = static_cast<uint8_t *>(c_.send);
    for (uint64_t i = 0; i < bucket_.count && status == OCTAVO_OK; ++i) {
      const Parameter &p = parameter(i);
      const octavo_tensor in = gradient(i);
      octavo_tensor codes{out, p.rows, p.cols, p.cols, OCTAVO_E4M3FN, 0};
      const octavo_scale scale_inv{state_.scale_inv + i, 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
      auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, c_.stream);
      q.in = &in;
      q.in_scale_inv = gradient_scale_inv(i);
      q.out = &codes;
      q.out_scale_inv = &scale_inv;
      q.scale = state_.scale + i;
      q.rule = OCTAVO_RULE_GIVEN;
      q.workspace = state_.kernel;
      status = kernels().quantize(ctx(), &q);
      out += elements(p);
    }
    const uint64_t rest = bucket_.shard * c_.world - bucket_.elements;
    if (status != OCTAVO_OK || bucket_.one_shot || rest == 0) return status;
    return plugin::clear(s_.device, c_.stream, out, rest);
  }

  octavo_sum_quantized sum_call(const void *codes, void *out, uint64_t count, uint64_t stride) {
    auto call = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED, c_.stream);
    call.codes = codes;
    call.out = out;
    call.count = count;
    call.shards = c_.world;
    call.shard_stride = stride;
    call.saturated = float_at(c_.items[0].slots, parameter(0).saturated);
    call.added = float_at(c_.items[0].slots, parameter(0).added);
    call.dtype = OCTAVO_E4M3FN;
    return call;
  }

  octavo_status sum_shard() {
    if (bucket_.count == 0) return OCTAVO_OK;
    const octavo_sum_quantized call = sum_call(c_.recv, c_.send, bucket_.shard, bucket_.shard);
    return kernels().sum_quantized(ctx(), &call);
  }

  // Every rank adds all elements, so each counts a saturated one for 1 / W.
  octavo_status sum_all() {
    const auto *in = static_cast<const uint8_t *>(c_.recv);
    auto *sums = static_cast<uint8_t *>(c_.send);
    octavo_status status = OCTAVO_OK;
    if (bucket_.count > 0) {
      octavo_sum_quantized call = sum_call(in, sums, bucket_.elements, bucket_.elements);
      call.count_as = 1.0f / static_cast<float>(c_.world);
      status = kernels().sum_quantized(ctx(), &call);
    }
    return status != OCTAVO_OK ? status : store_codes(sums);
  }

  octavo_status store() { return store_codes(static_cast<const uint8_t *>(c_.recv)); }

  // The mean over ranks: the summed codes with scale_inv / W.
  octavo_status store_codes(const uint8_t *codes) {
    const float mean = 1.0f / static_cast<float>(c_.world);
    octavo_status status = multiply(state_.scale_inv, state_.scale_inv, bucket_.count, mean);
    for (uint64_t i = 0; i < bucket_.count && status == OCTAVO_OK; ++i) {
      const Parameter &p = parameter(i);
      octavo_tensor out = gradient(i);
      if (out.dtype == OCTAVO_F32) {
        // Only the tensor struct needs a pointer that could write.
        const octavo_tensor in{
            const_cast<uint8_t *>(codes), p.rows, p.cols, p.cols, OCTAVO_E4M3FN, 0};
        const octavo_scale scale_inv{state_.scale_inv + i, 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
        status = plugin::dequantize(s_.device, c_.stream, in, &scale_inv, &out, false);
      } else {
        auto copy = make_call<octavo_copy>(OCTAVO_KIND_COPY, c_.stream);
        copy.out = out.data;
        copy.in = codes;
        copy.bytes = elements(p);
        status = kernels().copy(ctx(), &copy);
        copy.out = gradient_scale_inv(i);
        copy.in = state_.scale_inv + i;
        copy.bytes = sizeof(float);
        if (status == OCTAVO_OK) status = kernels().copy(ctx(), &copy);
      }
      codes += elements(p);
    }
    return status;
  }

  const octavo_session &s_;
  const octavo_gradient_call &c_;
  const Bucket &bucket_;
  BucketState state_;
};

}  // namespace

BucketState state_of(const Bucket &b, void *state) {
  Carver carver(state);
  const auto n = static_cast<int64_t>(b.count);
  BucketState out{};
  out.scale = static_cast<float *>(carver.tensor(1, n, OCTAVO_F32).data);
  out.scale_inv = static_cast<float *>(carver.tensor(1, n, OCTAVO_F32).data);
  out.kernel = carver.take(static_cast<int64_t>(b.kernel_bytes));
  out.bytes = carver.used();
  return out;
}

octavo_status run_bucket_stage(const octavo_session &s, const octavo_gradient_call &c,
                               const Bucket &bucket) {
  return Stage(s, c, bucket).run();
}

}  // namespace octavo::msamp
