// The subject as a plugin, for tests of `octavo plugin verify`.
//
// Its options are those of the backend, so a test breaks a rule with --set fp8.subject.fault=N.
#include "octavo/plugin.h"

#include <cstdlib>
#include <string_view>

#include "subject.h"
#include "subject_process.h"

namespace octavo::selftest {
namespace {

// The same faults while the library is loaded, by number.
__attribute__((constructor)) void at_load() {
  if (const char *fault = std::getenv("OCTAVO_SUBJECT_AT_LOAD")) misbehave(std::atoi(fault));
}

const void *get_interface(octavo_str id) {
  const std::string_view name(id.data, id.size);
  if (name == OCTAVO_BACKEND_ID) return subject_backend(kNone);
  if (name == OCTAVO_OPTIMIZER_ID) return subject_optimizer();
  if (name == OCTAVO_GRADIENTS_ID) return subject_gradients();
  if (name == OCTAVO_FUSED_ID) return subject_fused();
  if (name == OCTAVO_GROUPED_ID) return subject_grouped();
  if (name == OCTAVO_SHARD_ID) return subject_shard();
  return nullptr;
}

}  // namespace
}  // namespace octavo::selftest

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin kPlugin = {sizeof kPlugin,
                                        OCTAVO_KIND_PLUGIN,
                                        OCTAVO_ABI_MAJOR,
                                        OCTAVO_TARGET_MINOR,
                                        OCTAVO_STR("subject"),
                                        OCTAVO_STR("1"),
                                        octavo::selftest::get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &kPlugin;
  return OCTAVO_OK;
}
