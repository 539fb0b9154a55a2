// One all-reduce of torch's own gradients, and the stages of octavo.gradients/1 for those in slots.
#include "gradient_flight.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "handles.h"
#include "host_adapters/torch/core/arguments.h"
#include "host_adapters/torch/core/reduction.h"

namespace octavo::torch {
namespace {

constexpr const char *kWhat = "exchange of gradients";

class NativeFlight : public GradientFlight {
 public:
  NativeFlight(std::vector<at::Tensor> gradients, ProcessGroup &group)
      : gradients_(std::move(gradients)), world_(group.world()) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor &g : gradients_) flat.push_back(g.reshape({-1}));
    sum_ = at::cat(flat);
    wait_ = group.start(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, sum_, sum_, kWhat);
  }

  bool advance() override {
    wait_();
    sum_.div_(world_);
    int64_t first = 0;
    for (at::Tensor &g : gradients_) {
      g.copy_(sum_.narrow(0, first, g.numel()).view(g.sizes()));
      first += g.numel();
    }
    return false;
  }

 private:
  std::vector<at::Tensor> gradients_;
  int64_t world_;
  at::Tensor sum_;
  ProcessGroup::Wait wait_;
};

class SlotFlight : public GradientFlight {
 public:
  SlotFlight(Run &run, const std::vector<Parameter *> &parameters, ProcessGroup &group)
      : run_(run), group_(group) {
    for (const Parameter *p : parameters) parameters_.push_back(p->id);
    const std::vector<uint32_t> ids(parameters_.begin(), parameters_.end());
    core::check(core::plan_reduction(run.entry(), ids.data(), ids.size(),
                                     static_cast<uint32_t>(group.world()), &plan_),
                "plan_reduction", run.entry(), OCTAVO_OWNER_PARAMETER, ids.front());
    send_ = bytes(plan_.buffer_bytes);
    recv_ = bytes(plan_.buffer_bytes);
    state_ = bytes(plan_.state_bytes);
    advance();
  }

  bool advance() override {
    if (wait_) wait_();
    wait_ = nullptr;
    if (next_ == plan_.stages.size()) return false;
    core::run_stage(run_.entry(), parameters_, static_cast<int64_t>(next_), group_.world(),
                    handle_of(recv_), handle_of(send_), handle_of(state_));
    const octavo_gradient_stage &stage = plan_.stages[next_++];
    if (stage.collective == OCTAVO_COLLECTIVE_NONE) return true;
    wait_ = group_.start(stage.collective, part(send_, stage.dtype, stage.send_count),
                         part(recv_, stage.dtype, stage.recv_count), kWhat);
    return true;
  }

 private:
  at::Tensor bytes(uint64_t count) const {
    return at::empty({static_cast<int64_t>(count)},
                     at::TensorOptions(at::kByte).device(run_.device()));
  }

  // The first elements of a buffer, in what gloo takes: FP8 codes cross as bytes.
  static at::Tensor part(const at::Tensor &buffer, uint32_t dtype, uint64_t count) {
    const at::ScalarType type = scalar_type_of(dtype);
    const auto bytes = static_cast<int64_t>(count * (OCTAVO_DTYPE_BITS(dtype) / 8));
    const at::Tensor view = buffer.narrow(0, 0, bytes);
    return OCTAVO_DTYPE_BITS(dtype) == 8 ? view : view.view(type);
  }

  Run &run_;
  ProcessGroup &group_;
  std::vector<int64_t> parameters_;
  core::Reduction plan_;
  at::Tensor send_;
  at::Tensor recv_;
  at::Tensor state_;
  size_t next_ = 0;
  ProcessGroup::Wait wait_;
};

}  // namespace

std::unique_ptr<GradientFlight> average_native(std::vector<at::Tensor> gradients,
                                               ProcessGroup &group) {
  return std::make_unique<NativeFlight>(std::move(gradients), group);
}

std::unique_ptr<GradientFlight> average_slots(Run &run, const std::vector<Parameter *> &parameters,
                                              ProcessGroup &group) {
  return std::make_unique<SlotFlight>(run, parameters, group);
}

}  // namespace octavo::torch
