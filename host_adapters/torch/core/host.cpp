// Diagnostics are kept in thread-local storage, because a verb reports before it returns, on the
// thread that called it: so messages of parallel calls never mix.
#include "host.h"

#include <torch/csrc/stable/ops.h>

#include <new>
#include <utility>

#include "octavo/hpp/text.hpp"

namespace octavo::core {
namespace {

constexpr size_t kMost = 1024;

thread_local std::vector<Said> diagnostics;

// No exception crosses the plugin: without memory the message is lost, and the status stays.
void diagnose(void *, const octavo_diagnostic *d) {
  try {
    if (diagnostics.size() >= kMost)
      diagnostics.erase(diagnostics.begin(), diagnostics.begin() + kMost / 2);
    diagnostics.push_back({d->code, d->severity, text(d->domain), text(d->text)});
  } catch (const std::bad_alloc &) {
  }
}

octavo_status parallel_for(void *, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
  if (begin >= end) return OCTAVO_OK;
  struct Call {
    void (*body)(void *, int64_t, int64_t);
    void *arg;
  } call = {body, arg};
  const auto run = [](int64_t b, int64_t e, void *ctx) {
    const auto *c = static_cast<const Call *>(ctx);
    c->body(c->arg, b, e);
  };
  const AOTITorchError failed = torch_parallel_for(begin, end, grain > 0 ? grain : 1, run, &call);
  return failed == AOTI_TORCH_SUCCESS ? OCTAVO_OK : OCTAVO_INTERNAL;
}

const octavo_parallel parallel = {sizeof(octavo_parallel), OCTAVO_KIND_PARALLEL, nullptr,
                                  parallel_for};

const void *get_extension(void *, octavo_str id) {
  return view(id) == OCTAVO_PARALLEL_ID ? &parallel : nullptr;
}

const octavo_host table = {sizeof(octavo_host), OCTAVO_KIND_HOST, OCTAVO_ABI_MAJOR,
                           OCTAVO_ABI_MINOR,    nullptr,          diagnose,
                           get_extension};

}  // namespace

const octavo_host *host() {
  return &table;
}

void diagnose(const std::string &text) {
  octavo_diagnostic d = {};
  d.size = sizeof d;
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = OCTAVO_STR("octavo.torch");
  d.text = {text.data(), text.size()};
  diagnose(nullptr, &d);
}

std::vector<Said> take_diagnostics() {
  return std::exchange(diagnostics, {});
}

}  // namespace octavo::core
