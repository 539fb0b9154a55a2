// The entry of the te backend and its tables.
#include <string_view>

#include "fused.h"
#include "plugins/common/setup.h"
#include "te.h"

namespace {

using namespace octavo::te;

template <auto function>
constexpr auto guarded = octavo::plugin::Guard<function>::call;

const octavo_backend kBackend = {sizeof(octavo_backend),
                                 OCTAVO_KIND_BACKEND,
                                 guarded<list_options>,
                                 guarded<check_session>,
                                 guarded<open_session>,
                                 guarded<add_parameter>,
                                 guarded<add_linear>,
                                 guarded<seal>,
                                 guarded<linear_plan>,
                                 quantize_weight,
                                 linear_forward,
                                 linear_backward,
                                 end_step,
                                 close_session};

const octavo_fused kFused = {sizeof(octavo_fused), OCTAVO_KIND_FUSED, guarded<fused_workspace>,
                             fused_linear_forward, fused_apply};

const void *get_interface(octavo_str id) {
  const std::string_view wanted(id.data, id.size);
  if (wanted == OCTAVO_BACKEND_ID) return &kBackend;
  if (wanted == OCTAVO_FUSED_ID) return &kFused;
  return nullptr;
}

}  // namespace

octavo_status octavo_plugin_query_v1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("te"),      OCTAVO_STR("0.1.0"), get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_VERSION;
  *out = &plugin;
  return OCTAVO_OK;
}
