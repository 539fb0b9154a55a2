// Names of statuses for messages.
//
// A status that this release does not know is a failure like any other and is shown as a number.
#include "report.h"

namespace octavo::conformance {

std::string status_name(octavo_status status) {
  static const char *const kNames[] = {"OCTAVO_OK",          "OCTAVO_UNSUPPORTED", "OCTAVO_INVALID",
                                       "OCTAVO_WRONG_STATE", "OCTAVO_VERSION",     "OCTAVO_DEVICE",
                                       "OCTAVO_RESOURCE",    "OCTAVO_INTERNAL"};
  const bool known = status >= 0 && status <= OCTAVO_INTERNAL;
  return text(known ? kNames[status] : "unknown status", " (", status, ")");
}

}  // namespace octavo::conformance
