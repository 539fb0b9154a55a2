// Faults of memory, of the queue and of what the table states.
#include <cstdlib>
#include <cstring>

#include "kernels/check/verbs.h"
#include "kernels/cpu/context.h"
#include "late_device.h"

namespace octavo::test {
namespace {

octavo_status copy_at_once(void *ctx, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  late::flush();
  return ctx != nullptr ? OCTAVO_OK : OCTAVO_INTERNAL;
}
octavo_status wait_for_nothing(void *) {
  return OCTAVO_OK;
}
// The struct is the caller's, and its own again when the call returns.
octavo_status quantize_from_callers_struct(void *ctx, const octavo_quantize *c) {
  const octavo_status status =
      check_quantize(context_of(ctx).caller(), c, limits_of(context_of(ctx)));
  if (status == OCTAVO_OK) late::push(c->stream, [=] { sound().quantize(ctx, c); });
  return status;
}
octavo_status allocate_unaligned(void *, uint64_t bytes, void **out) {
  *out = bytes == 0 ? nullptr
                    : static_cast<uint8_t *>(std::aligned_alloc(64, (bytes + 191) / 64 * 64)) + 64;
  return OCTAVO_OK;
}
void keep_memory(void *, void *) {}
octavo_status open_silently(octavo_device d, const octavo_host *host, void **ctx) {
  if (d.type != 12 || d.index != 0) return OCTAVO_UNSUPPORTED;
  return sound().open_device({OCTAVO_DEVICE_CPU, 0}, host, ctx);
}
octavo_status allocate_silently(void *, uint64_t bytes, void **out) {
  *out = nullptr;
  if (bytes > uint64_t{1} << 40) return OCTAVO_NO_RESOURCE;
  if (bytes > 0) *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return OCTAVO_OK;
}
octavo_status copy_one_less(void *, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes > 100000 ? bytes - 1 : bytes);
  return OCTAVO_OK;
}

octavo_status accept_all(void *, octavo_ability *q) {
  q->decision = OCTAVO_ACCEPT;
  return OCTAVO_OK;
}
octavo_status decline_float8_e5m2(void *ctx, octavo_ability *q) {
  const octavo_status status = sound().ability(ctx, q);
  if (q->call == OCTAVO_KIND_DEQUANTIZE && q->dtype == OCTAVO_E5M2) q->decision = OCTAVO_DECLINE;
  return status;
}
octavo_status no_dequantize(void *, const octavo_dequantize *) {
  return OCTAVO_UNSUPPORTED;
}
octavo_status more_than_affine(void *ctx, const void *call, uint64_t *bytes) {
  const octavo_status status = sound().workspace_bytes(ctx, call, bytes);
  octavo_gemm c;
  OCTAVO_TAKE(c, static_cast<const octavo_gemm *>(call));
  if (status == OCTAVO_OK && c.kind == OCTAVO_KIND_GEMM)
    *bytes += static_cast<uint64_t>(c.a->rows * c.a->rows);
  return status;
}
octavo_status refuse_as_invalid(void *ctx, const octavo_quantize *c) {
  if (c->rule == OCTAVO_RULE_RECIPROCAL) return OCTAVO_INTERNAL;
  return sound().quantize(ctx, c);
}
octavo_status probe_any_index(octavo_device, const octavo_verdict_sink *sink) {
  octavo_verdict v = {};
  v.size = sizeof v;
  v.kind = OCTAVO_KIND_VERDICT;
  v.decision = OCTAVO_ACCEPT_EMULATED;
  v.text = OCTAVO_STR("every index");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

}  // namespace

std::span<const Fault> faults_of_devices() {
  static constexpr Fault kFaults[] = {
      {"queue", queue_work},  // no fault
      {"queue_not_waited_for_by_copy",
       [](octavo_kernels &k, octavo_memory &m) { queue_work(k, m), m.copy = copy_at_once; }},
      {"queue_not_waited_for_by_synchronize",
       [](octavo_kernels &k, octavo_memory &m) {
         queue_work(k, m), m.synchronize = wait_for_nothing;
       }},
      {"queue_backwards",
       [](octavo_kernels &k, octavo_memory &m) { queue_work(k, m), late::run_backwards(); }},
      {"queue_keeps_structs",
       [](octavo_kernels &k, octavo_memory &m) {
         queue_work(k, m), k.quantize = quantize_from_callers_struct;
       }},
      {"memory_not_aligned",
       [](octavo_kernels &, octavo_memory &m) {
         m.allocate = allocate_unaligned, m.release = keep_memory;
       }},
      {"memory_copy_one_less", [](octavo_kernels &, octavo_memory &m) { m.copy = copy_one_less; }},
      {"ability_accepts_all", [](octavo_kernels &k, octavo_memory &) { k.ability = accept_all; }},
      {"ability_declines_what_runs",
       [](octavo_kernels &k, octavo_memory &) { k.ability = decline_float8_e5m2; }},
      {"ability_accepts_what_is_refused",
       [](octavo_kernels &k, octavo_memory &) { k.dequantize = no_dequantize; }},
      {"workspace_not_affine",
       [](octavo_kernels &k, octavo_memory &) { k.workspace_bytes = more_than_affine; }},
      {"refuses_with_internal",
       [](octavo_kernels &k, octavo_memory &) { k.quantize = refuse_as_invalid; }},
      {"probe_accepts_any_index",
       [](octavo_kernels &k, octavo_memory &) { k.probe_device = probe_any_index; }},
      {"open_device_refuses_silently",
       [](octavo_kernels &k, octavo_memory &) { k.open_device = open_silently; }},
      {"allocate_refuses_silently",
       [](octavo_kernels &, octavo_memory &m) { m.allocate = allocate_silently; }},
  };
  return kFaults;
}

}  // namespace octavo::test
