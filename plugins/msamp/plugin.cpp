// The entry of the msamp backend and its three tables.
#include <string_view>

#include "msamp.h"

namespace {

using namespace octavo::msamp;

const octavo_backend kBackend = {
    sizeof(octavo_backend), OCTAVO_KIND_BACKEND, list_options, check_session, open_session,
    add_parameter,          add_linear,          seal,         linear_plan,   quantize_weight,
    linear_forward,         linear_backward,     end_step,     close_session};

const octavo_optimizer kOptimizer = {
    sizeof(octavo_optimizer), OCTAVO_KIND_OPTIMIZER, optimizer_workspace_bytes,
    optimizer_step,           sum_of_squares,        read_parameter,
    write_parameter};

const octavo_gradients kGradients = {sizeof(octavo_gradients), OCTAVO_KIND_GRADIENTS,
                                     plan_reduction, run_stage};

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
