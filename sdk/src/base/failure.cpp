// Sends messages to the host.
#include "sdk/src/base/failure.h"

#include <cstring>

#include "sdk/src/base/text.h"

namespace octavo {

void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              const std::string &text) {
  if (host == nullptr || !OCTAVO_HAS(host, octavo_host, diagnose) || host->diagnose == nullptr)
    return;
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  d.code = code;
  d.severity = severity;
  d.domain = borrow(domain);
  d.text = borrow(text);
  host->diagnose(host->ctx, &d);
}

}  // namespace octavo
