// The host table, and octavo.parallel/1 on the threads of at::parallel_for.
#include "host.h"

#include <ATen/Parallel.h>

#include <string_view>
#include <utility>

#include "text.h"

namespace octavo::torch {
namespace {

// A run that nobody asks for its messages does not grow without bound.
constexpr size_t kMostDiagnostics = 1024;

octavo_status parallel_for(void *, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
  at::parallel_for(begin, end, grain < 1 ? 1 : grain,
                   [body, arg](int64_t b, int64_t e) { body(arg, b, e); });
  return OCTAVO_OK;
}

const octavo_parallel kParallel = {sizeof(octavo_parallel), OCTAVO_KIND_PARALLEL, nullptr,
                                   parallel_for};

std::string with_diagnostics(const std::string &text, const std::vector<Diagnostic> &said) {
  std::string all = text;
  for (const Diagnostic &d : said) all += "\n  " + d.domain + ": " + d.text;
  return all;
}

}  // namespace

Error::Error(octavo_status status, const std::string &text, std::vector<Diagnostic> diagnostics)
    : std::runtime_error(with_diagnostics(text, diagnostics)),
      status_(status),
      diagnostics_(std::move(diagnostics)) {}

Error::~Error() = default;

Host::Host() : table_(make<octavo_host>(OCTAVO_KIND_HOST)) {
  table_.abi_major = OCTAVO_ABI_MAJOR;
  table_.abi_minor = OCTAVO_ABI_MINOR;
  table_.ctx = this;
  table_.diagnose = diagnose;
  table_.get_extension = get_extension;
}

void Host::diagnose(void *ctx, const octavo_diagnostic *d) {
  Host &host = *static_cast<Host *>(ctx);
  const std::lock_guard<std::mutex> lock(host.mutex_);
  if (host.said_.size() < kMostDiagnostics)
    host.said_.push_back({d->code, d->severity, text(d->domain), text(d->text)});
}

const void *Host::get_extension(void *, octavo_str id) {
  return std::string_view(id.data, id.size) == OCTAVO_PARALLEL_ID ? &kParallel : nullptr;
}

std::vector<Diagnostic> Host::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(said_, {});
}

void Host::check(octavo_status status, const char *verb, const std::string &object) {
  if (status == OCTAVO_OK) return;
  throw Error(status,
              std::string(verb) + (object.empty() ? "" : " of " + object) + " answered status " +
                  std::to_string(status),
              take());
}

}  // namespace octavo::torch
