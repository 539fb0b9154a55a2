// kernels.cpp: kernels that train, in C++: FP8 with one scale a tensor, current scaling.
//
// The device is a stand-in, whose memory is the CPU's and whose streams finish every call at once.
// Put yours where the loops are. Every number is that of octavo::format (kernels/format), to the
// last bit, but for the order of a product's additions: so no fused multiply-adds.
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"
#include "kernels/format/sum_order.h"
#include "octavo/hpp/text.hpp"
#include "octavo/kernels.h"
#include "octavo/memory.h"
#include "octavo/plugin.h"

namespace {

using octavo::make;

constexpr uint32_t kDeviceType = 12;  // DLPack's, as in the manifest
constexpr int32_t kDevices = 1;       // how many there are

struct Device {
  const octavo_host *host;
};

octavo_status fail(void *ctx, octavo_status code, const char *text) {
  const octavo_host *host = static_cast<Device *>(ctx)->host;
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  d.code = code;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = OCTAVO_STR("kernels_cpp");
  d.text = octavo::borrow(text);
  host->diagnose(host->ctx, &d);
  return code;
}

// ---- Numbers: a switch of dtypes is all that octavo::format leaves to do. ----

bool is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}
bool is_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}
template <typename T>
T *element(const octavo_tensor &t, int64_t row, int64_t col) {
  return static_cast<T *>(t.data) + row * t.stride + col;
}
float load(const octavo_tensor &t, int64_t row, int64_t col) {
  switch (t.dtype) {
    case OCTAVO_BF16: return octavo::decode_bf16(*element<uint16_t>(t, row, col));
    case OCTAVO_F16: return octavo::decode_f16(*element<uint16_t>(t, row, col));
    case OCTAVO_E4M3FN: return octavo::decode_e4m3(*element<uint8_t>(t, row, col));
    case OCTAVO_E5M2: return octavo::decode_e5m2(*element<uint8_t>(t, row, col));
    default: return *element<float>(t, row, col);
  }
}
void store(const octavo_tensor &t, int64_t row, int64_t col, float value) {
  switch (t.dtype) {
    case OCTAVO_BF16: *element<uint16_t>(t, row, col) = octavo::encode_bf16(value); return;
    case OCTAVO_F16: *element<uint16_t>(t, row, col) = octavo::encode_f16(value); return;
    case OCTAVO_E4M3FN: *element<uint8_t>(t, row, col) = octavo::encode_e4m3(value); return;
    case OCTAVO_E5M2: *element<uint8_t>(t, row, col) = octavo::encode_e5m2(value); return;
    default: *element<float>(t, row, col) = value;
  }
}

// ---- The device ----

bool is_ours(octavo_device d) {
  return d.type == kDeviceType && d.index >= 0 && d.index < kDevices;
}
octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink) {
  auto v = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = OCTAVO_ACCEPT_EMULATED;
  v.text = OCTAVO_STR("the device computes FP8 in fp32 arithmetic");
  v.evidence = OCTAVO_STR("a stand-in on the CPU");  // the device's name, for reports
  if (!is_ours(d)) {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_DEVICE;
    v.text = OCTAVO_STR("there is no such device: expected index 0");
  }
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}
octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx) {
  Device none{host};
  *ctx = is_ours(d) ? new (std::nothrow) Device(none) : nullptr;
  if (*ctx != nullptr) return OCTAVO_OK;
  return fail(&none, OCTAVO_UNSUPPORTED, "open_device: no such device, or no memory");
}
void close_device(void *ctx) {
  delete static_cast<Device *>(ctx);
}
octavo_status describe(void *, octavo_kernels_caps *out) {
  out->id = OCTAVO_STR("kernels_cpp");
  out->flags = OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  out->alignment = 1;
  return OCTAVO_OK;
}

// What these kernels execute: a backend that needs more is refused before it runs.
bool executes(const octavo_ability &q) {
  if (q.granularity != OCTAVO_PER_TENSOR || q.b_granularity != OCTAVO_PER_TENSOR) return false;
  switch (q.call) {
    case OCTAVO_KIND_QUANTIZE: return is_code(q.dtype) && q.flags == 0;
    case OCTAVO_KIND_GEMM:
      if (is_plain(q.dtype) && is_plain(q.b_dtype)) return q.flags < OCTAVO_GEMM_B_PACKED;
      return is_code(q.dtype) && is_code(q.b_dtype) && q.flags == 0;
    case OCTAVO_KIND_SUM: return is_plain(q.dtype);
    default: return q.call == OCTAVO_KIND_COPY;
  }
}
octavo_status ability(void *, octavo_ability *q) {
  const bool known = executes(*q);
  q->decision = known ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  q->evidence = known ? octavo_str{} : octavo_str OCTAVO_STR("kernels_cpp does not have it");
  return OCTAVO_OK;
}
octavo_status workspace_bytes(void *, const void *, uint64_t *bytes) {
  *bytes = 0;
  return OCTAVO_OK;
}

// ---- Calls ----

void write_codes(const octavo_tensor *out, const octavo_tensor &in, float scale, bool turned) {
  for (int64_t r = 0; out != nullptr && r < out->rows; ++r)
    for (int64_t c = 0; c < out->cols; ++c) {
      const int64_t row = turned ? c : r, col = turned ? r : c;
      const bool is_there = row < in.rows && col < in.cols;
      store(*out, r, c, is_there ? octavo::scaled_by(load(in, row, col), scale) : 0.0f);
    }
}
// What octavo/kernels.h says of fp32 holds in every floating-point mode of the calling thread.
struct DefaultMode {
  std::fenv_t before;
  DefaultMode() { std::fegetenv(&before), std::fesetenv(FE_DFL_ENV); }
  ~DefaultMode() { std::fesetenv(&before); }
};
bool is_output(const octavo_tensor *t, const octavo_scale *s) {
  return (t == nullptr || is_code(t->dtype)) &&
         (s == nullptr || s->granularity == OCTAVO_PER_TENSOR);
}
octavo_status quantize(void *ctx, const octavo_quantize *c) {
  const octavo_tensor &in = *c->in;
  if (!is_plain(in.dtype) || c->in_scale_inv != nullptr || c->counter != nullptr || c->flags != 0 ||
      c->rounding != 0 || c->rule > OCTAVO_RULE_MSAMP || !is_output(c->out, c->out_scale_inv) ||
      !is_output(c->out_t, c->out_t_scale_inv))
    return fail(ctx, OCTAVO_UNSUPPORTED, "quantize: expected a plain tensor, and one scale");
  const DefaultMode mode;
  float amax = 0, nonfinite = 0;
  for (int64_t r = 0; r < in.rows; ++r)
    for (int64_t i = 0; i < in.cols; ++i) {
      const float value = octavo::absolute(load(in, r, i));
      if (value > amax) amax = value;  // a NaN is no maximum
      if (!octavo::is_finite(value)) nonfinite = 1;
    }
  const float kept = c->scale != nullptr ? *c->scale : 1.0f;
  const float used = amax < c->eps ? c->eps : amax;
  const float scale = c->rule == OCTAVO_RULE_GIVEN
                          ? kept
                          : octavo::scale_by_rule(c->rule, used, kept, c->format_max, 0);
  write_codes(c->out, in, scale, false);
  write_codes(c->out_t, in, scale, true);
  for (const octavo_scale *s : {c->out_scale_inv, c->out_t_scale_inv})
    if (s != nullptr && (c->out != nullptr || c->out_t != nullptr))
      *static_cast<float *>(s->data) = 1.0f / scale;
  // Atomically, where calls run at once.
  if (c->amax != nullptr && amax > *c->amax) *c->amax = amax;
  if (c->nonfinite != nullptr && nonfinite > 0) *c->nonfinite = 1;
  return OCTAVO_OK;
}

// Codes have one scale each and K contiguous; plain operands have none, in either order.
bool is_operand(const octavo_tensor &t, const octavo_scale *s, bool turned) {
  return s != nullptr ? s->granularity == OCTAVO_PER_TENSOR && !turned : is_plain(t.dtype);
}
float value_of(const octavo_scale *s) {
  return s != nullptr ? *static_cast<const float *>(s->data) : 1.0f;
}
octavo_status gemm(void *ctx, const octavo_gemm *c) {
  const bool a_km = (c->layout & OCTAVO_GEMM_A_KM) != 0, b_kn = (c->layout & OCTAVO_GEMM_B_KN) != 0;
  if (!is_operand(*c->a, c->a_scale_inv, a_km) || !is_operand(*c->b, c->b_scale_inv, b_kn) ||
      (c->layout & OCTAVO_GEMM_B_PACKED) != 0 || c->bias_after != 0 || !is_plain(c->d->dtype))
    return fail(ctx, OCTAVO_UNSUPPORTED, "gemm: expected codes with one scale, or plain operands");
  const DefaultMode mode;
  const float scale = value_of(c->a_scale_inv) * value_of(c->b_scale_inv);
  const int64_t length = a_km ? c->a->rows : c->a->cols;
  for (int64_t m = 0; m < c->d->rows; ++m)
    for (int64_t n = 0; n < c->d->cols; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < length; ++k)
        sum += load(*c->a, a_km ? k : m, a_km ? m : k) * load(*c->b, b_kn ? k : n, b_kn ? n : k);
      float value = sum * scale;
      if (c->bias != nullptr) value += load(*c->bias, 0, n);
      if (c->accumulate != 0) value += load(*c->d, m, n);
      store(*c->d, m, n, value);
    }
  return OCTAVO_OK;
}

octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  const octavo_tensor &in = *c->in;
  if (!is_plain(in.dtype) || c->in_scale_inv != nullptr)
    return fail(ctx, OCTAVO_UNSUPPORTED, "sum_rows: expected a plain tensor");
  const DefaultMode mode;
  auto *out = static_cast<float *>(c->out);
  for (int64_t i = 0; i < in.cols; ++i) {
    double total = 0, segment = 0, piece = 0;
    for (int64_t r = 1; r <= in.rows; ++r) {
      piece += load(in, r - 1, i);
      const bool is_last = r == in.rows;
      if (is_last || r % octavo::kPieceRows == 0) segment += piece, piece = 0;
      if (is_last || r % octavo::kSegmentRows == 0) total += segment, segment = 0;
    }
    out[i] = c->accumulate != 0 ? out[i] + static_cast<float>(total) : static_cast<float>(total);
  }
  return OCTAVO_OK;
}
octavo_status copy(void *, const octavo_copy *c) {
  if (c->bytes == 0) return OCTAVO_OK;
  c->in != nullptr ? std::memmove(c->out, c->in, c->bytes) : std::memset(c->out, 0, c->bytes);
  return OCTAVO_OK;
}

// ---- The device's memory ----

octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  *out = bytes > 0 ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  return bytes == 0 || *out != nullptr ? OCTAVO_OK
                                       : fail(ctx, OCTAVO_NO_RESOURCE, "allocate: no memory");
}
void release(void *, void *data) {
  std::free(data);
}
octavo_status copy_now(void *, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return OCTAVO_OK;
}
octavo_status synchronize(void *) {
  return OCTAVO_OK;
}

octavo_kernels table() {
  auto t = make<octavo_kernels>(OCTAVO_KIND_KERNELS);
  t.probe_device = probe_device;
  t.open_device = open_device;
  t.close_device = close_device;
  t.describe = describe;
  t.ability = ability;
  t.workspace_bytes = workspace_bytes;
  t.quantize = quantize;
  t.gemm = gemm;
  t.sum_rows = sum_rows;
  t.copy = copy;
  return t;
}
const void *get_interface(octavo_str id) {
  static const octavo_kernels kernels = table();
  static const octavo_memory memory = {
      sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy_now, synchronize};
  if (octavo::view(id) == OCTAVO_KERNELS_ID) return &kernels;
  return octavo::view(id) == OCTAVO_MEMORY_ID ? &memory : nullptr;
}

}  // namespace

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN,           OCTAVO_ABI_MAJOR,
      OCTAVO_TARGET_MINOR,   OCTAVO_STR(OCTAVO_PLUGIN_ID), OCTAVO_STR(OCTAVO_PLUGIN_VERSION),
      get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}
