// The session of the scripted plugin, and what its seal emits.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/plugin.h"
#include "script.h"

struct octavo_session {
  const octavo_host *host = nullptr;
  std::vector<octavo_parameter_desc> parameters;
  uint32_t linears = 0;
  uint32_t sealed_parameters = 0;
  uint32_t sealed_linears = 0;
  uint32_t slots = 0;
};

namespace octavo::fuzz {

// Defined by the program that loads this.
extern "C" __attribute__((visibility("default"))) Script *octavo_fuzz_script;

// Which one of `n` things to do wrong; 0 without a script.
inline uint32_t fault(uint32_t n) {
  return octavo_fuzz_script == nullptr ? 0 : octavo_fuzz_script->defect(n);
}
inline uint32_t any_id() {
  return octavo_fuzz_script == nullptr ? 0 : octavo_fuzz_script->id();
}
inline int64_t any_extent() {
  return octavo_fuzz_script == nullptr ? 1 : octavo_fuzz_script->extent();
}
// A failure of any number, which is explained, as every failure is.
inline octavo_status any_failure(const octavo_host *host) {
  static constexpr octavo_status kStatuses[] = {
      OCTAVO_NO_RESOURCE, OCTAVO_INTERNAL, OCTAVO_INCOMPATIBLE, OCTAVO_UNSUPPORTED, 99,
      0xFFFFFFFFu};
  const octavo_status status = kStatuses[any_id() % std::size(kStatuses)];
  if (host == nullptr) return status;
  const octavo_diagnostic d = {sizeof(d),
                               OCTAVO_KIND_DIAGNOSTIC,
                               status,
                               OCTAVO_SEVERITY_ERROR,
                               OCTAVO_STR("scripted"),
                               OCTAVO_STR("the script says so")};
  host->diagnose(host->ctx, &d);
  return status;
}

octavo_status seal(octavo_session *s, const octavo_slot_sink *sink);

}  // namespace octavo::fuzz
