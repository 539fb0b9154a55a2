// Sends messages to the host.
#include "sdk/src/base/failure.h"

#include <algorithm>

#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {

void relay_diagnostic(void *ctx, const octavo_diagnostic *d) {
  const auto *host = static_cast<const octavo_host *>(ctx);
  if (host == nullptr || d == nullptr || !OCTAVO_HAS(host, octavo_host, diagnose) ||
      host->diagnose == nullptr)
    return;
  const octavo_diagnostic theirs = head_of(*d);
  const std::string domain = take_text(theirs.domain);
  const std::string text = take_text(theirs.text);
  auto own = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  own.code = theirs.code;
  own.severity = std::min<uint32_t>(theirs.severity, OCTAVO_SEVERITY_ERROR);
  own.domain = borrow(domain);
  own.text = borrow(text);
  host->diagnose(host->ctx, &own);
}

void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              const std::string &text) {
  // A table of liboctavo's own stands in front of the caller's for the words of plugins only.
  if (host != nullptr && OCTAVO_HAS(host, octavo_host, diagnose) &&
      host->diagnose == relay_diagnostic)
    host = static_cast<const octavo_host *>(host->ctx);
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
