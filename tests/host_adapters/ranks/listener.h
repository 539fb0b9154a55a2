// The host of a library of ranks, which hears of it on several threads.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "octavo/host.h"

namespace octavo::test {

// Collects diagnostics of several threads.
class Listener {
 public:
  Listener() {
    host_.size = sizeof(host_);
    host_.kind = OCTAVO_KIND_HOST;
    host_.ctx = this;
    host_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
      auto *self = static_cast<Listener *>(ctx);
      const std::lock_guard lock(self->mutex_);
      self->texts_.emplace_back(d->text.data, d->text.size);
    };
  }
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;
  const octavo_host *host() const { return &host_; }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  std::string first() const { return texts().empty() ? "" : texts().front(); }
  std::string last() const { return texts().empty() ? "" : texts().back(); }

 private:
  octavo_host host_ = {};
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace octavo::test
