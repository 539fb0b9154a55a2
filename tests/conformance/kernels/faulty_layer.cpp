// A layer with no calls of its own and one fault, for tests of `octavo plugin verify`.
//
// OCTAVO_KERNELS_FAULT names the fault; without it every call passes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "octavo/draft/layer.h"
#include "octavo/plugin.h"

namespace octavo::test {
namespace {

octavo_layer_ctx &below(void *ctx) {
  return *static_cast<octavo_layer_ctx *>(ctx);
}

octavo_status declines_statistics(void *, octavo_ability *q) {
  if (q->call != OCTAVO_KIND_QUANTIZE_STATS) return OCTAVO_UNSUPPORTED;
  q->decision = OCTAVO_DECLINE;
  return OCTAVO_OK;
}
octavo_status accepts_all(void *, octavo_ability *q) {
  q->decision = OCTAVO_ACCEPT;
  return OCTAVO_OK;
}
octavo_status accepts_int8(void *, octavo_ability *q) {
  if (q->call != OCTAVO_KIND_QUANTIZE || q->dtype != 0x0800 || q->granularity != OCTAVO_PER_TENSOR)
    return OCTAVO_UNSUPPORTED;
  q->decision = OCTAVO_ACCEPT_EMULATED;
  return OCTAVO_OK;
}
octavo_status more_workspace(void *ctx, const void *call, uint64_t *bytes) {
  const octavo_layer_ctx &l = below(ctx);
  const octavo_status status = l.below->workspace_bytes(l.below_ctx, call, bytes);
  *bytes += 4096;
  return status;
}
octavo_status does_nothing(void *, const octavo_compute_amax *) {
  return OCTAVO_OK;
}
octavo_status adds_no_more(void *ctx, const octavo_dequantize *c) {
  octavo_dequantize own = *c;
  own.accumulate = 0;
  return below(ctx).below->dequantize(below(ctx).below_ctx, &own);
}
octavo_status without_eps(void *ctx, const octavo_quantize *c) {
  octavo_quantize own = *c;
  own.eps = 0;
  return below(ctx).below->quantize(below(ctx).below_ctx, &own);
}
octavo_status with_its_own_ctx(void *ctx, const octavo_gemm *c) {
  return below(ctx).below->gemm(ctx, c);
}
octavo_status refuses_as_invalid(void *, const octavo_pack *) {
  return OCTAVO_INVALID;
}
octavo_status states_no_alignment(void *, octavo_kernels_caps *out) {
  out->alignment = 0;
  return OCTAVO_OK;
}
const void *hides_tables(void *ctx, octavo_str id) {
  static octavo_kernels empty;
  const octavo_layer_ctx &l = below(ctx);
  const bool is_there = l.below->get_extension(l.below_ctx, id) != nullptr;
  return is_there && std::string_view(id.data, id.size) == "octavo.kernels.fp4/1" ? &empty
                                                                                  : nullptr;
}

octavo_status open_layer(octavo_layer_ctx *, const octavo_verdict_sink *sink) {
  octavo_verdict v = {};
  v.size = sizeof v;
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  v.decision = OCTAVO_ACCEPT;
  v.text = OCTAVO_STR("every call passes");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

struct Fault {
  const char *name;
  void (*plant)(octavo_kernels &calls);
};
constexpr Fault kFaults[] = {
    {"layer_hides_a_call", [](octavo_kernels &k) { k.ability = declines_statistics; }},
    {"layer_accepts_all", [](octavo_kernels &k) { k.ability = accepts_all; }},
    {"layer_accepts_what_it_has_not", [](octavo_kernels &k) { k.ability = accepts_int8; }},
    {"layer_adds_workspace", [](octavo_kernels &k) { k.workspace_bytes = more_workspace; }},
    {"layer_executes_nothing", [](octavo_kernels &k) { k.compute_amax = does_nothing; }},
    {"layer_drops_accumulate", [](octavo_kernels &k) { k.dequantize = adds_no_more; }},
    {"layer_drops_eps", [](octavo_kernels &k) { k.quantize = without_eps; }},
    {"layer_passes_its_own_ctx", [](octavo_kernels &k) { k.gemm = with_its_own_ctx; }},
    {"layer_refuses_what_passes", [](octavo_kernels &k) { k.pack = refuses_as_invalid; }},
    {"layer_states_no_alignment", [](octavo_kernels &k) { k.describe = states_no_alignment; }},
    {"layer_hides_a_table", [](octavo_kernels &k) { k.get_extension = hides_tables; }},
};

struct Planted {
  octavo_kernels calls = {};
  octavo_layer layer = {};

  Planted() {
    calls.size = sizeof calls;
    calls.kind = OCTAVO_KIND_KERNELS;
    layer.size = sizeof layer;
    layer.kind = OCTAVO_KIND_LAYER;
    layer.open_layer = open_layer;
    layer.calls = &calls;
    const char *wanted = std::getenv("OCTAVO_KERNELS_FAULT");
    if (wanted == nullptr || *wanted == 0) return;
    for (const Fault &fault : kFaults)
      if (std::strcmp(fault.name, wanted) == 0) {
        fault.plant(calls);
        return;
      }
    std::fprintf(stderr, "OCTAVO_KERNELS_FAULT: there is no fault %s\n", wanted);
    std::abort();
  }
};

const void *get_interface(octavo_str id) {
  static const Planted planted;
  return std::string_view(id.data, id.size) == OCTAVO_LAYER_ID ? &planted.layer : nullptr;
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
