// Sends messages to the host.
#include "sdk/src/base/failure.h"

#include <algorithm>
#include <new>

#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

constexpr size_t kMostLine = 8 << 10;

bool can_be_shown(std::string_view text) {
  return text.size() <= kMostLine && std::ranges::all_of(text, [](char c) {
           return (c >= ' ' && c < 0x7F) || c == '\n' || c == '\t';
         });
}

void send(const octavo_host &host, uint32_t severity, octavo_status code, std::string_view domain,
          std::string_view text) {
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  d.code = code;
  d.severity = severity;
  d.domain = {domain.data(), domain.size()};
  d.text = {text.data(), text.size()};
  host.diagnose(host.ctx, &d);
}

}  // namespace

void relay_diagnostic(void *ctx, const octavo_diagnostic *d) {
  const auto *host = static_cast<const octavo_host *>(ctx);
  if (host == nullptr || d == nullptr || !OCTAVO_HAS(host, octavo_host, diagnose) ||
      host->diagnose == nullptr)
    return;
  const octavo_diagnostic theirs = copy_known_fields(*d);
  const uint32_t severity = std::min<uint32_t>(theirs.severity, OCTAVO_SEVERITY_ERROR);
  try {
    send(*host, severity, theirs.code, take_text(theirs.domain), take_text(theirs.text));
  } catch (const std::bad_alloc &) {
    send(*host, severity, theirs.code, "octavo", "a message was lost: out of memory");
  }
}

void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              std::string_view text) {
  // A table of liboctavo's own stands in front of the caller's for the words of plugins only.
  if (host != nullptr && OCTAVO_HAS(host, octavo_host, diagnose) &&
      host->diagnose == relay_diagnostic)
    host = static_cast<const octavo_host *>(host->ctx);
  if (host == nullptr || !OCTAVO_HAS(host, octavo_host, diagnose) || host->diagnose == nullptr)
    return;
  if (can_be_shown(text)) return send(*host, severity, code, domain, text);
  send(*host, severity, code, domain, plain_lines(text, kMostLine));
}

}  // namespace octavo
