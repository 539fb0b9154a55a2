// The entry of the te backend and its one table.
#include <string_view>

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

const void *get_interface(octavo_str id) {
  return std::string_view(id.data, id.size) == OCTAVO_BACKEND_ID ? &kBackend : nullptr;
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
