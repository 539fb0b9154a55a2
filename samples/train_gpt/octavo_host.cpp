// Collects diagnostics until somebody shows them; hands out octavo.parallel/1.
#include "octavo_host.h"

#include <stdexcept>
#include <string_view>
#include <utility>

namespace gpt {

OctavoHost::OctavoHost(const Threads &threads) : parallel_(threads.table()) {
  host_.size = sizeof host_;
  host_.kind = OCTAVO_KIND_HOST;
  host_.abi_major = OCTAVO_ABI_MAJOR;
  host_.abi_minor = OCTAVO_ABI_MINOR;
  host_.ctx = this;
  host_.diagnose = diagnose;
  host_.get_extension = get_extension;
}

std::string OctavoHost::take_diagnostics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string all;
  for (const std::string &message : messages_) {
    if (!all.empty()) all += '\n';
    all += message;
  }
  messages_.clear();
  return all;
}

void OctavoHost::check(octavo_status status, const char *verb, const std::string &object) {
  if (status == OCTAVO_OK) return;
  const std::string said = take_diagnostics();
  throw std::runtime_error(std::string(verb) + " of " + object + " answered status " +
                           std::to_string(status) + (said.empty() ? "" : ":\n" + said));
}

// Called through a C interface: no exception may leave.
void OctavoHost::diagnose(void *ctx, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  auto *self = static_cast<OctavoHost *>(ctx);
  try {
    std::string line = d->severity == OCTAVO_SEVERITY_WARNING ? "warning: " : "error: ";
    if (d->domain.size > 0) line += std::string(d->domain.data, d->domain.size) + ": ";
    if (d->text.size > 0) line.append(d->text.data, d->text.size);
    const std::lock_guard<std::mutex> lock(self->mutex_);
    self->messages_.push_back(std::move(line));
  } catch (...) {
    // Out of memory while reporting: the status of the failing call still arrives.
  }
}

const void *OctavoHost::get_extension(void *ctx, octavo_str id) {
  const auto *self = static_cast<const OctavoHost *>(ctx);
  const std::string_view wanted(id.data, id.size);
  return wanted == OCTAVO_PARALLEL_ID ? self->parallel_ : nullptr;
}

}  // namespace gpt
