// The fence during the verbs of a host.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fence.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {

// Arms the fence while a verb of `host` runs, from here to the end of this object.
class FencedCall : public Host::Observer {
 public:
  explicit FencedCall(Host &host) : host_(host), fence_(host.arena()) {
    host_.session().kernels().set_fence(&fence_);
    host_.set_observer(this);
  }
  ~FencedCall() override {
    host_.set_observer(nullptr);
    host_.session().kernels().set_fence(nullptr);
  }
  void before(const std::string &) override { fence_.arm(); }
  void after(const std::string &) override { first_ = fence_.disarm(); }
  // The first byte that the last verb touched by itself.
  std::optional<uint64_t> first() const { return first_; }

 private:
  Host &host_;
  Fence fence_;
  std::optional<uint64_t> first_;
};

// Runs a call of `name`, behind the fence if asked: then it fails when host code of the backend
// touches memory.
inline void run_fenced(Host &host, uint32_t verb, const std::string &name, bool is_fenced,
                       const std::function<octavo_status()> &call) {
  std::optional<FencedCall> fence;
  if (is_fenced) fence.emplace(host);
  host.run(verb, name, call);
  const auto touched = fence ? fence->first() : std::nullopt;
  expect(!touched, name, " touched ", host.arena().describe(touched.value_or(0)),
         " outside of every kernel");
}

}  // namespace octavo::conformance
