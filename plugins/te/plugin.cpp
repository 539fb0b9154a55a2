// The entry of the te backend and its one table.
#include <string_view>

#include "te.h"

namespace {

const octavo_backend kBackend = {
    sizeof(octavo_backend),      OCTAVO_KIND_BACKEND,        octavo::te::list_options,
    octavo::te::check_session,   octavo::te::open_session,   octavo::te::add_parameter,
    octavo::te::add_linear,      octavo::te::seal,           octavo::te::linear_plan,
    octavo::te::quantize_weight, octavo::te::linear_forward, octavo::te::linear_backward,
    octavo::te::end_step,        octavo::te::close_session};

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
