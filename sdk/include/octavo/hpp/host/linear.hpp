// octavo/hpp/host/linear.hpp: the three calls of one linear, with the memory that they need.
#ifndef OCTAVO_HPP_HOST_LINEAR_HPP
#define OCTAVO_HPP_HOST_LINEAR_HPP

#include <algorithm>

#include "octavo/hpp/host/calls.hpp"
#include "octavo/hpp/host/memory.hpp"

namespace octavo {
inline namespace hpp {

// For batches of up to `rows` rows. Built after the last seal, extend and native; stays in place.
class LinearCalls {
 public:
  // shared: a workspace of several linears, which grows to what this one needs; its address is then
  // passed to every call. Null: these calls have a workspace of their own.
  LinearCalls(const Run &run, const Store &store, uint32_t parameter, uint32_t linear, int64_t rows,
              DeviceBuffer *shared = nullptr)
      : quantize_weight(run, store, parameter),
        forward(run, store, linear),
        backward(run, store, linear),
        gives_dw_(run.plan(linear).gradient == OCTAVO_GRADIENT_TENSOR),
        memory_(run),
        saved_(memory_, forward.saved_bytes(rows)),
        workspace_(memory_) {
    uint64_t bytes = std::max({run.plan(linear).weight_workspace, forward.workspace_bytes(rows),
                               backward.workspace_bytes(rows)});
    if (const octavo_fused *fused = run.fused(); fused != nullptr) {
      octavo_extent extent = {};
      const octavo_status status = fused->workspace(run.session(), linear, &extent);
      takes_prologue_ = status != OCTAVO_UNSUPPORTED;
      if (takes_prologue_) {
        run.host().require(status, "workspace of octavo.fused/1");
        bytes = std::max(bytes, octavo_extent_bytes(&extent, static_cast<uint64_t>(rows)));
      }
    }
    forward.saved(saved_.data());
    backward.saved(saved_.data());
    (shared != nullptr ? *shared : workspace_).grow(bytes);
    if (shared != nullptr) return;
    quantize_weight.workspace(workspace_.data());
    forward.workspace(workspace_.data());
    backward.workspace(workspace_.data());
  }
  LinearCalls(const LinearCalls &) = delete;
  LinearCalls &operator=(const LinearCalls &) = delete;

  // Whether backward takes dw; else it adds it to the parameter's gradient slot.
  bool gives_dw() const { return gives_dw_; }
  // Whether forward takes a prologue in the place of x.
  bool takes_prologue() const { return takes_prologue_; }
  // For Backward, written by Forward; evaluation goes without.
  void *saved() { return saved_.data(); }

  QuantizeWeight quantize_weight;
  Forward forward;
  Backward backward;

 private:
  bool gives_dw_, takes_prologue_ = false;
  Memory memory_;
  DeviceBuffer saved_, workspace_;
};

}  // namespace hpp
}  // namespace octavo

#endif
