/* The entry of the plugin "kernels-cuda": interfaces octavo.kernels/1 and octavo.memory/1 for
 * NVIDIA GPUs. */
#include <string_view>

#include "kernels/cuda/table.h"
#include "octavo/plugin.h"

namespace {

const void *get_interface(octavo_str id) {
  const std::string_view wanted(id.data, id.size);
  if (wanted == OCTAVO_KERNELS_ID) return octavo::cuda::table();
  if (wanted == OCTAVO_MEMORY_ID) return octavo::cuda::memory_table();
  return nullptr;
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
