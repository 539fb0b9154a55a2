// octavo/hpp/host/host.hpp: the collector of diagnostics, and the exception that carries them.
#ifndef OCTAVO_HPP_HOST_HOST_HPP
#define OCTAVO_HPP_HOST_HOST_HPP

#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "octavo/host.h"
#include "octavo/hpp/text.hpp"

namespace octavo {
inline namespace hpp {

struct Diagnostic {
  uint32_t severity = OCTAVO_SEVERITY_DEBUG;
  octavo_status code = OCTAVO_OK;
  std::string domain;
  std::string text;
};

// The failure of a call of liboctavo or of a backend. what() contains the call, its status and the
// last error. diagnostics() contains all messages since the previous failure.
class Error : public std::runtime_error {
 public:
  Error(const std::string &call, octavo_status status, std::vector<Diagnostic> diagnostics)
      : std::runtime_error(sentence(call, status, diagnostics)),
        status_(status),
        diagnostics_(std::move(diagnostics)) {}
  octavo_status status() const noexcept { return status_; }
  const std::vector<Diagnostic> &diagnostics() const noexcept { return diagnostics_; }

 private:
  static std::string sentence(const std::string &call, octavo_status status,
                              const std::vector<Diagnostic> &diagnostics) {
    std::string all = call + ": " + status_name(status);
    for (auto d = diagnostics.rbegin(); d != diagnostics.rend(); ++d)
      if (d->severity == OCTAVO_SEVERITY_ERROR) return all + ": " + d->text;
    return all;
  }
  octavo_status status_;
  std::vector<Diagnostic> diagnostics_;
};

// An octavo_host that collects diagnostics from any thread. Runs keep its address, so it can be
// neither copied nor moved and must outlive them.
class Host {
 public:
  Host() : host_(make<octavo_host>(OCTAVO_KIND_HOST)) {
    host_.abi_major = OCTAVO_ABI_MAJOR;
    host_.abi_minor = OCTAVO_ABI_MINOR;
    host_.ctx = this;
    host_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
      static_cast<Host *>(ctx)->collect(*d);
    };
    host_.get_extension = [](void *ctx, octavo_str id) -> const void * {
      return view(id) == OCTAVO_PARALLEL_ID ? static_cast<Host *>(ctx)->parallel_ : nullptr;
    };
  }
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  const octavo_host *get() const { return &host_; }
  // Sets the thread pool for CPU kernels, which must outlive the runs. Call it before opening a
  // run.
  void set_parallel(const octavo_parallel *parallel) { parallel_ = parallel; }
  // Sets a function that receives each diagnostic as it is collected. Calls come from any thread,
  // one at a time. The listener must not use this host. Its exceptions are discarded, because none
  // may cross the C ABI. Call it before opening a run.
  void on_diagnostic(std::function<void(const Diagnostic &)> listener) {
    listener_ = std::move(listener);
  }

  std::vector<Diagnostic> diagnostics() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return collected_;
  }
  // Returns the collected diagnostics and clears them.
  std::vector<Diagnostic> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(collected_, {});
  }
  // Throws Error with the collected diagnostics unless the status is OCTAVO_OK.
  void require(octavo_status status, const char *call) {
    if (status != OCTAVO_OK) throw Error(call, status, take());
  }

 private:
  void collect(const octavo_diagnostic &d) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      // Bounds the memory of diagnostics that are never taken: drops the older half.
      if (collected_.size() >= kMost)
        collected_.erase(collected_.begin(), collected_.begin() + kMost / 2);
      collected_.push_back({d.severity, d.code, octavo::text(d.domain), octavo::text(d.text)});
      if (listener_) listener_(collected_.back());
    } catch (...) {
      return;  // out of memory, or the listener threw: the status still reports the failure
    }
  }

  static constexpr int kMost = 1024;
  octavo_host host_;
  const octavo_parallel *parallel_ = nullptr;
  std::function<void(const Diagnostic &)> listener_;
  mutable std::mutex mutex_;
  std::vector<Diagnostic> collected_;
};

}  // namespace hpp
}  // namespace octavo

#endif
