// A plugin that calls itself kernels-cuda and has less than that: the interfaces of the plugin
// PARTIAL_OF but for one of memory, or with kernels of another kind.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "octavo/kernels.h"
#include "octavo/memory.h"
#include "octavo/plugin.h"

namespace {

const octavo_plugin *whole = nullptr;

const void *get_interface(octavo_str id) {
  [[maybe_unused]] const std::string_view wanted(id.data, id.size);
  const void *table = whole->get_interface(id);
#if defined(PARTIAL_NO_MEMORY)
  if (wanted == OCTAVO_MEMORY_ID) return nullptr;
#elif defined(PARTIAL_WRONG_KIND)
  if (wanted == OCTAVO_KERNELS_ID) {
    static octavo_kernels changed;
    std::memcpy(&changed, table, sizeof changed);
    changed.kind = OCTAVO_KIND_HOST;
    return &changed;
  }
#endif
  return table;
}

}  // namespace

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  using Query = octavo_status(const octavo_host *, const octavo_plugin **);
  void *library = dlopen(PARTIAL_OF, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return OCTAVO_NO_RESOURCE;
  auto *query = reinterpret_cast<Query *>(dlsym(library, OCTAVO_PLUGIN_SYMBOL));
  const octavo_status status = query(host, &whole);
  if (status != OCTAVO_OK) return status;
  static octavo_plugin own;
  own = *whole;
  own.id = OCTAVO_STR("kernels-cuda");
  own.version = OCTAVO_STR("0.1.0");
  own.get_interface = get_interface;
  *out = &own;
  return OCTAVO_OK;
}
