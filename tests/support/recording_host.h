// A host that keeps every diagnostic, for tests that assert messages.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/host.h"

namespace octavo::test {

struct Diagnostic {
  uint32_t severity = 0;
  octavo_status code = 0;
  std::string domain;
  std::string text;
};

class RecordingHost {
 public:
  RecordingHost() {
    host_.size = sizeof(host_);
    host_.kind = OCTAVO_KIND_HOST;
    host_.abi_major = OCTAVO_ABI_MAJOR;
    host_.abi_minor = OCTAVO_ABI_MINOR;
    host_.ctx = this;
    host_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
      auto *self = static_cast<RecordingHost *>(ctx);
      const std::lock_guard lock(self->mutex_);
      self->all_.push_back({d->severity, d->code, std::string(d->domain.data, d->domain.size),
                            std::string(d->text.data, d->text.size)});
    };
    host_.get_extension = [](void *ctx, octavo_str id) -> const void * {
      return static_cast<RecordingHost *>(ctx)->extension(id);
    };
  }
  RecordingHost(const RecordingHost &) = delete;
  RecordingHost &operator=(const RecordingHost &) = delete;

  const octavo_host *get() const { return &host_; }
  void set_parallel(const octavo_parallel *p) { parallel_ = p; }

  std::vector<Diagnostic> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  // The texts of one severity, in order.
  std::vector<std::string> texts(uint32_t severity) const {
    std::vector<std::string> found;
    for (const Diagnostic &d : all())
      if (d.severity == severity) found.push_back(d.text);
    return found;
  }
  // The last error's text; empty without one.
  std::string error() const {
    const auto errors = texts(OCTAVO_SEVERITY_ERROR);
    return errors.empty() ? std::string() : errors.back();
  }

 private:
  const void *extension(octavo_str id) const {
    return std::string_view(id.data, id.size) == OCTAVO_PARALLEL_ID ? parallel_ : nullptr;
  }
  octavo_host host_ = {};
  const octavo_parallel *parallel_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<Diagnostic> all_;
};

}  // namespace octavo::test
