// The way of a message to the host.
#include "failure.h"

#include <cstring>

#include "text.h"

namespace octavo {

void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              const std::string &text) {
  if (host == nullptr || !OCTAVO_HAS(host, octavo_host, diagnose) || host->diagnose == nullptr)
    return;
  octavo_diagnostic d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.code = code;
  d.severity = severity;
  d.domain = str(domain);
  d.text = str(text);
  host->diagnose(host->ctx, &d);
}

}  // namespace octavo
