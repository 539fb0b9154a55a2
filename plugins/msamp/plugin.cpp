// The entry of the msamp backend and its three tables.
#include <string_view>

#include "msamp.h"
#include "plugins/common/setup.h"

namespace {

using namespace octavo::msamp;

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

const octavo_optimizer kOptimizer = {
    sizeof(octavo_optimizer), OCTAVO_KIND_OPTIMIZER,   guarded<optimizer_workspace_bytes>,
    guarded<optimizer_step>,  guarded<sum_of_squares>, prepare_step,
    guarded<read_parameter>,  guarded<write_parameter>};

const octavo_gradients kGradients = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                     guarded<plan_reduction>, guarded<run_stage>};

const void *get_interface(octavo_str id) {
  const std::string_view wanted(id.data, id.size);
  if (wanted == OCTAVO_BACKEND_ID) return &kBackend;
  if (wanted == OCTAVO_OPTIMIZER_ID) return &kOptimizer;
  if (wanted == OCTAVO_GRADIENTS_ID) return &kGradients;
  return nullptr;
}

}  // namespace

octavo_status octavo_plugin_query_v1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof(octavo_plugin), OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("msamp"),   OCTAVO_STR("0.1.0"), get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_VERSION;
  *out = &plugin;
  return OCTAVO_OK;
}
