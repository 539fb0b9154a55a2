// The fence during the verbs of a host.
#ifndef OCTAVO_CONFORMANCE_FENCED_CALL_H
#define OCTAVO_CONFORMANCE_FENCED_CALL_H

#include <cstdint>
#include <optional>
#include <string>

#include "fence.h"
#include "host.h"

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

}  // namespace octavo::conformance

#endif
