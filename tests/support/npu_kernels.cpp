// Kernels of a fake device: the CPU's, for another type of device and with memory of its own.
//
// OCTAVO_NPU_TYPE is the type in DLPack: 12, or 1 for a plugin that replaces the kernels of the
// CPU. The device has OCTAVO_NPU_DEVICES indices, of which only the last one works. With
// OCTAVO_NPU_STREAM in the environment casts are those of this stream, a number, and others fail.
// With OCTAVO_NPU_LATE calls are queued (late_kernels.h).
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "kernels/check/check.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/table.h"
#include "octavo/memory.h"
#include "octavo/plugin.h"
#ifdef OCTAVO_NPU_LATE
#include "tests/support/late_kernels.h"
#endif

namespace {

constexpr octavo_device kCpu = {OCTAVO_DEVICE_CPU, 0};

bool is_ours(octavo_device d) {
  return d.type == OCTAVO_NPU_TYPE && d.index == OCTAVO_NPU_DEVICES - 1;
}

octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = is_ours(d) ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  v.reason = is_ours(d) ? OCTAVO_REASON_NONE : OCTAVO_REASON_DEVICE;
  v.text =
      is_ours(d) ? octavo_str OCTAVO_STR("it computes") : octavo_str OCTAVO_STR("it is broken");
  v.evidence = OCTAVO_STR("fake");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx) {
  if (is_ours(d)) return octavo_cpu_kernels()->open_device(kCpu, host, ctx);
  return octavo::report_error({host, OCTAVO_PLUGIN_ID}, OCTAVO_UNSUPPORTED,
                              "open_device: there is no such device");
}

octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const octavo_status status = octavo_cpu_kernels()->describe(ctx, out);
  if (status == OCTAVO_OK) out->id = OCTAVO_STR(OCTAVO_PLUGIN_ID);
  return status;
}

octavo_status quantize(void *ctx, const octavo_quantize *c) {
  const char *only = std::getenv("OCTAVO_NPU_STREAM");
  if (only != nullptr && reinterpret_cast<uintptr_t>(c->stream) != std::strtoul(only, nullptr, 10))
    return OCTAVO_INVALID;
  return octavo_cpu_kernels()->quantize(ctx, c);
}

octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  *out = bytes == 0 ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (bytes == 0 || *out != nullptr) return OCTAVO_OK;
  return octavo::report_error(octavo::context_of(ctx).caller(), OCTAVO_NO_RESOURCE,
                              "allocate: no memory");
}
void release(void *, void *data) {
  std::free(data);
}
octavo_status synchronize(void *) {
#ifdef OCTAVO_NPU_LATE
  octavo::test::settle_late();
#endif
  return OCTAVO_OK;
}
octavo_status copy(void *ctx, void *to, const void *from, uint64_t bytes) {
  synchronize(ctx);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return OCTAVO_OK;
}

const void *get_interface(octavo_str id) {
  const std::string_view wanted(id.data, id.size);
  static const octavo_kernels kernels = [] {
    octavo_kernels own = *octavo_cpu_kernels();
    own.probe_device = probe_device;
    own.open_device = open_device;
    own.describe = describe;
    own.quantize = quantize;
#ifdef OCTAVO_NPU_LATE
    octavo::test::be_late(own, *octavo_cpu_kernels());
#endif
    return own;
  }();
  static const octavo_memory memory = {
      sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy, synchronize};
  if (wanted == OCTAVO_KERNELS_ID) return &kernels;
  return wanted == OCTAVO_MEMORY_ID ? &memory : nullptr;
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
