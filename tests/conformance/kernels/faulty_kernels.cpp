// The plugin: one device, memory of its own, and the fault that the environment names.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "faulty.h"
#include "kernels/check/check.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/table.h"
#include "octavo/plugin.h"

namespace octavo::test {

const octavo_kernels &sound() {
  return *octavo_cpu_kernels();
}

namespace {

constexpr uint32_t kType = 12;
constexpr octavo_device kCpu = {OCTAVO_DEVICE_CPU, 0};

bool is_ours(octavo_device d) {
  return d.type == kType && d.index == 0;
}
octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {};
  v.size = sizeof v;
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = is_ours(d) ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  v.reason = is_ours(d) ? OCTAVO_REASON_NONE : OCTAVO_REASON_DEVICE;
  v.text = OCTAVO_STR("index 0 is there");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}
octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx) {
  if (is_ours(d)) return sound().open_device(kCpu, host, ctx);
  return report_error({host, "faulty"}, OCTAVO_UNSUPPORTED,
                      "open_device: expected type 12, index 0");
}
// Products have another last bit on most devices, so these do not promise bits either.
octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const octavo_status status = sound().describe(ctx, out);
  out->flags &= ~uint64_t{OCTAVO_CAPS_EXACT_GEMM};
  return status;
}

octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  *out = bytes == 0 || bytes > uint64_t{1} << 40
             ? nullptr
             : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (bytes == 0 || *out != nullptr) return OCTAVO_OK;
  return report_error(context_of(ctx).caller(), OCTAVO_NO_RESOURCE, "allocate: no memory");
}
void release(void *, void *data) {
  std::free(data);
}
octavo_status copy(void *, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return OCTAVO_OK;
}
octavo_status synchronize(void *) {
  return OCTAVO_OK;
}

struct Planted {
  octavo_kernels kernels = sound();
  octavo_memory memory = {
      sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy, synchronize};

  Planted() {
    kernels.probe_device = probe_device;
    kernels.open_device = open_device;
    kernels.describe = describe;
    const char *wanted = std::getenv("OCTAVO_KERNELS_FAULT");
    if (wanted == nullptr || *wanted == 0) return;
    for (const auto &all : {faults_of_casts(), faults_of_values(), faults_of_fp4(),
                            faults_of_devices(), faults_of_streams(), faults_of_special()})
      for (const Fault &fault : all)
        if (std::strcmp(fault.name, wanted) == 0) {
          fault.plant(kernels, memory);
          return;
        }
    std::fprintf(stderr, "OCTAVO_KERNELS_FAULT: there is no fault %s\n", wanted);
    std::abort();
  }
};

const void *get_interface(octavo_str id) {
  static const Planted planted;
  const std::string_view wanted(id.data, id.size);
  if (wanted == OCTAVO_KERNELS_ID) return &planted.kernels;
  return wanted == OCTAVO_MEMORY_ID ? &planted.memory : nullptr;
}

}  // namespace
}  // namespace octavo::test

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin),      OCTAVO_KIND_PLUGIN,           OCTAVO_ABI_MAJOR,
      OCTAVO_TARGET_MINOR,        OCTAVO_STR(OCTAVO_PLUGIN_ID), OCTAVO_STR(OCTAVO_PLUGIN_VERSION),
      octavo::test::get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}
