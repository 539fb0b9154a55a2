// The kernels that the suite's own tests run on.
//
// FP8 codes are found by a search in the list of all values of the format, which is slow and has no
// arithmetic to get wrong.
#include "subject_kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

namespace octavo::selftest {
namespace {

struct Format {
  int mantissa;
  int bias;
  int largest;  // the code of the largest finite value
  std::array<float, 256> values;
};

Format make_format(int mantissa, int bias, int largest) {
  Format f{mantissa, bias, largest, {}};
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7F;
    const int exponent = magnitude >> mantissa;
    const int fraction = magnitude & ((1 << mantissa) - 1);
    const int whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
    const float value =
        std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa);
    const float known = magnitude > largest ? NAN : value;
    f.values[static_cast<size_t>(code)] = code < 128 ? known : -known;
  }
  return f;
}

const Format &format_of(uint32_t dtype) {
  static const Format kE4m3 = make_format(3, 7, 0x7E);
  static const Format kE5m2 = make_format(2, 15, 0x7B);
  return dtype == OCTAVO_E4M3FN ? kE4m3 : kE5m2;
}

uint8_t cast(const Format &f, float value) {
  if (std::isnan(value)) return 0x7F;
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::min(std::fabs(value), f.values[static_cast<size_t>(f.largest)]);
  const auto *begin = f.values.data();
  const auto *above = std::lower_bound(begin, begin + f.largest, magnitude);
  auto code = above - begin;
  if (code > 0) {
    const float up = *above - magnitude;
    const float down = magnitude - above[-1];
    if (down < up || (!(up < down) && code % 2 == 1)) --code;
  }
  return static_cast<uint8_t>(sign | static_cast<uint8_t>(code));
}

uint8_t *element(const octavo_tensor &t, int64_t i, int64_t j) {
  return static_cast<uint8_t *>(t.data) + (i * t.stride + j) * (OCTAVO_DTYPE_BITS(t.dtype) / 8);
}

float load(const octavo_tensor &t, int64_t i, int64_t j) {
  const uint8_t *p = element(t, i, j);
  if (t.dtype == OCTAVO_E4M3FN || t.dtype == OCTAVO_E5M2) return format_of(t.dtype).values[*p];
  uint32_t bits = 0;
  std::memcpy(&bits, p, OCTAVO_DTYPE_BITS(t.dtype) / 8);
  if (t.dtype == OCTAVO_BF16) bits <<= 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store(const octavo_tensor &t, int64_t i, int64_t j, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (t.dtype == OCTAVO_BF16) {
    bits = std::isnan(value) ? 0x7FC0 : (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  }
  std::memcpy(element(t, i, j), &bits, OCTAVO_DTYPE_BITS(t.dtype) / 8);
}

// Concurrent casts may share an accumulator, as every kernels table promises.
void accumulate_max(float *out, float value) {
  const std::atomic_ref<float> shared(*out);
  float old = shared.load();
  while (old < value && !std::atomic_ref<float>(*out).compare_exchange_weak(old, value)) {
  }
}

float scale_of(float amax, float format_max) {
  if (!(amax > 0) || std::isinf(amax)) return 1;
  const float scale = format_max / amax;
  return std::isinf(scale) ? FLT_MAX : scale;
}

octavo_status quantize(void *, const octavo_quantize *c) {
  const octavo_tensor &in = *c->in;
  float amax = 0;
  bool bad = false;
  for (int64_t i = 0; i < in.rows; ++i) {
    for (int64_t j = 0; j < in.cols; ++j) {
      const float v = std::fabs(load(in, i, j));
      if (v > amax) amax = v;
      bad = bad || !std::isfinite(v);
    }
  }
  const float given = c->scale != nullptr ? *c->scale : 1;
  const float scale = c->rule == OCTAVO_RULE_GIVEN ? given : scale_of(amax, c->format_max);
  std::vector<uint8_t> coded;
  const octavo_tensor *const like = c->out != nullptr ? c->out : c->out_t;
  for (int64_t i = 0; i < in.rows && like != nullptr; ++i)
    for (int64_t j = 0; j < in.cols; ++j)
      coded.push_back(cast(format_of(like->dtype), load(in, i, j) * scale));
  const auto write = [&](const octavo_tensor &out, bool transposed) {
    for (int64_t i = 0; i < out.rows; ++i) {
      for (int64_t j = 0; j < out.cols; ++j) {
        const int64_t row = transposed ? j : i;
        const int64_t col = transposed ? i : j;
        const bool inside = row < in.rows && col < in.cols;
        *element(out, i, j) = inside ? coded[static_cast<size_t>(row * in.cols + col)] : uint8_t{0};
      }
    }
  };
  if (c->out != nullptr) write(*c->out, false);
  if (c->out_t != nullptr) write(*c->out_t, true);
  const float inverse = 1 / scale;
  if (c->out_scale_inv != nullptr) std::memcpy(c->out_scale_inv->data, &inverse, sizeof inverse);
  if (c->amax != nullptr) accumulate_max(c->amax, amax);
  if (c->nonfinite != nullptr && bad) accumulate_max(c->nonfinite, 1);
  return OCTAVO_OK;
}

float scale_inv(const octavo_scale *s) {
  float value = 1;
  if (s != nullptr) std::memcpy(&value, s->data, sizeof value);
  return value;
}

std::vector<float> all_of(const octavo_tensor &t) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(t.rows * t.cols));
  for (int64_t i = 0; i < t.rows; ++i)
    for (int64_t j = 0; j < t.cols; ++j) values.push_back(load(t, i, j));
  return values;
}

octavo_status gemm(void *, const octavo_gemm *c) {
  const std::vector<float> a = all_of(*c->a), b = all_of(*c->b);
  const int64_t depth = c->a->cols;
  const float factor = scale_inv(c->a_scale_inv) * scale_inv(c->b_scale_inv);
  for (int64_t i = 0; i < c->d->rows; ++i) {
    for (int64_t j = 0; j < c->d->cols; ++j) {
      float sum = 0;
      const float *u = a.data() + i * depth, *v = b.data() + j * depth;
      for (int64_t k = 0; k < depth; ++k) sum += u[k] * v[k];
      sum *= factor;
      if (c->bias != nullptr && j < c->bias->cols) sum += load(*c->bias, 0, j);
      store(*c->d, i, j, c->accumulate != 0 ? load(*c->d, i, j) + sum : sum);
    }
  }
  return OCTAVO_OK;
}

octavo_status delayed_scale_update(void *, const octavo_delayed_scale_update *c) {
  for (uint64_t i = 0; i < c->n; ++i) {
    if (!(c->amax[i] > 0)) continue;
    c->history[i] = c->amax[i];
    float chosen = 0;
    for (uint64_t row = 0; row < c->length; ++row) {
      chosen = std::max(chosen, c->history[row * c->n + i]);
    }
    for (uint64_t row = 1; row + 1 < c->length; ++row) {
      c->history[row * c->n + i] = c->history[(row + 1) * c->n + i];
    }
    if (c->length > 1) c->history[(c->length - 1) * c->n + i] = c->amax[i];
    c->history[i] = 0;
    if (chosen > 0 && std::isfinite(chosen)) c->scale[i] = scale_of(chosen, c->format_max);
    c->amax[i] = 0;
  }
  return OCTAVO_OK;
}

octavo_status adam_step(void *, const octavo_adam_step *c) {
  if (c->skip != nullptr && *c->skip > 0) return OCTAVO_OK;
  for (uint64_t n = 0; n < c->count; ++n) {
    const octavo_adam_item &item = c->items[n];
    const float *h = item.hyper;
    const auto step = static_cast<float>(++*item.step);
    const float first = 1 - std::pow(h[OCTAVO_HYPER_BETA1], step);
    const float second = 1 - std::pow(h[OCTAVO_HYPER_BETA2], step);
    for (int64_t i = 0; i < item.weight.rows; ++i) {
      for (int64_t j = 0; j < item.weight.cols; ++j) {
        const float g = load(item.gradient, i, j) * h[OCTAVO_HYPER_GRAD_SCALE];
        const float m =
            h[OCTAVO_HYPER_BETA1] * load(item.exp_avg, i, j) + (1 - h[OCTAVO_HYPER_BETA1]) * g;
        const float v = h[OCTAVO_HYPER_BETA2] * load(item.exp_avg_sq, i, j) +
                        (1 - h[OCTAVO_HYPER_BETA2]) * g * g;
        store(item.exp_avg, i, j, m);
        store(item.exp_avg_sq, i, j, v);
        const float w = load(item.weight, i, j);
        const float change = m / first / (std::sqrt(v / second) + h[OCTAVO_HYPER_EPS]);
        store(item.weight, i, j,
              w - h[OCTAVO_HYPER_LR] * (change + h[OCTAVO_HYPER_WEIGHT_DECAY] * w));
      }
    }
  }
  return OCTAVO_OK;
}

octavo_status gradient_scale(void *, const octavo_gradient_scale *c) {
  float total = 0;
  for (uint64_t i = 0; i < c->sum_count; ++i) total += c->sum[i];
  const float norm = c->factor * std::sqrt(total);
  const bool bad = !std::isfinite(norm) || (c->nonfinite != nullptr && *c->nonfinite > 0);
  const float clip = c->max_norm > 0 ? std::min(1.0F, c->max_norm / (norm + 1e-6F)) : 1;
  if (c->norm != nullptr) *c->norm = norm;
  if (c->skip != nullptr) *c->skip = bad ? 1 : 0;
  for (uint64_t i = 0; i < c->count; ++i) *c->grad_scale[i] = c->factor * clip;
  return OCTAVO_OK;
}

octavo_status sum_rows(void *, const octavo_sum *c) {
  auto *out = static_cast<float *>(c->out);
  for (int64_t j = 0; j < c->in->cols; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < c->in->rows; ++i) sum += load(*c->in, i, j);
    out[j] = c->accumulate != 0 ? out[j] + sum : sum;
  }
  return OCTAVO_OK;
}

octavo_status sum_of_squares(void *, const octavo_sum *c) {
  for (int64_t i = 0; i < c->in->rows; ++i) {
    for (int64_t j = 0; j < c->in->cols; ++j) {
      *static_cast<float *>(c->out) += load(*c->in, i, j) * load(*c->in, i, j);
    }
  }
  return OCTAVO_OK;
}

octavo_status copy(void *, const octavo_copy *c) {
  if (c->bytes == 0) return OCTAVO_OK;  // from null, perhaps
  if (c->in == nullptr) {
    std::memset(c->out, 0, c->bytes);
  } else {
    std::memcpy(c->out, c->in, c->bytes);
  }
  return OCTAVO_OK;
}

octavo_status scale_values(void *, const octavo_scale_values *c) {
  for (uint64_t i = 0; i < c->n; ++i) {
    float value = 0;
    std::memcpy(&value, c->in + i, sizeof value);
    value *= c->factor;
    std::memcpy(c->out + i, &value, sizeof value);
  }
  return OCTAVO_OK;
}

octavo_status ability(void *, octavo_ability *q) {
  const bool has = (q->dtype == OCTAVO_F32 || q->dtype == OCTAVO_BF16 ||
                    q->dtype == OCTAVO_E4M3FN || q->dtype == OCTAVO_E5M2) &&
                   q->granularity == OCTAVO_PER_TENSOR && q->b_granularity == OCTAVO_PER_TENSOR;
  const bool has_no_format = q->call == OCTAVO_KIND_COPY ||
                             q->call == OCTAVO_KIND_DELAYED_SCALE_UPDATE ||
                             q->call == OCTAVO_KIND_GRADIENT_SCALE;
  q->decision = has || has_no_format ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  return OCTAVO_OK;
}

octavo_status dequantize(void *, const octavo_dequantize *c) {
  for (int64_t i = 0; i < c->in->rows; ++i) {
    for (int64_t j = 0; j < c->in->cols; ++j) {
      const float value = load(*c->in, i, j) * scale_inv(c->scale_inv);
      store(*c->out, i, j, c->accumulate != 0 ? load(*c->out, i, j) + value : value);
    }
  }
  return OCTAVO_OK;
}

const void *get_extension(void *, octavo_str id) {
  static const octavo_adam_kernels kAdam = {sizeof kAdam, OCTAVO_KIND_ADAM_KERNELS, adam_step,
                                            gradient_scale, sum_of_squares};
  static const octavo_msamp_kernels kMsamp = {sizeof kMsamp, OCTAVO_KIND_MSAMP_KERNELS, nullptr,
                                              scale_values, nullptr};
  const std::string_view name(id.data, id.size);
  static const SubjectCasts kCasts = {sizeof kCasts, 0xFFFF0001u, [](void *ctx, const void *call) {
                                        return quantize(ctx,
                                                        static_cast<const octavo_quantize *>(call));
                                      }};
  if (name == SUBJECT_CASTS_ID) return &kCasts;
  if (name == OCTAVO_ADAM_KERNELS_ID) return &kAdam;
  return name == OCTAVO_MSAMP_KERNELS_ID ? &kMsamp : nullptr;
}

octavo_status workspace_bytes(void *, const void *, uint64_t *bytes) {
  *bytes = 0;
  return OCTAVO_OK;
}

}  // namespace

const octavo_kernels *subject_kernels() {
  static const octavo_kernels kTable = [] {
    octavo_kernels t{};
    t.size = sizeof t;
    t.kind = OCTAVO_KIND_KERNELS;
    t.ability = ability;
    t.workspace_bytes = workspace_bytes;
    t.quantize = quantize;
    t.prologue = subject_prologue;
    t.dequantize = dequantize;
    t.gemm = gemm;
    t.delayed_scale_update = delayed_scale_update;
    t.sum_rows = sum_rows;
    t.copy = copy;
    t.get_extension = get_extension;
    return t;
  }();
  return &kTable;
}

float subject_load(const octavo_tensor &t, int64_t i, int64_t j) {
  return load(t, i, j);
}

void subject_store(const octavo_tensor &t, int64_t i, int64_t j, float value) {
  store(t, i, j, value);
}

octavo_kernels_caps subject_caps() {
  octavo_kernels_caps caps{};
  caps.size = sizeof caps;
  caps.kind = OCTAVO_KIND_KERNELS_CAPS;
  caps.id = OCTAVO_STR("subject");
  caps.flags = OCTAVO_CAPS_EXACT_GEMM | OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  caps.alignment = 1;
  return caps;
}

}  // namespace octavo::selftest
