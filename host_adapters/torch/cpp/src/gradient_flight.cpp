// One all-reduce of torch's own gradients, and the stages of octavo.gradients/1 for those in slots.
#include "gradient_flight.h"

#include <ATen/ops/cat.h>

#include "device.h"
#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

class NativeFlight : public GradientFlight {
 public:
  NativeFlight(std::vector<at::Tensor> gradients, ProcessGroup &group)
      : gradients_(std::move(gradients)), world_(group.world()) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor &g : gradients_) flat.push_back(g.reshape({-1}));
    sum_ = at::cat(flat);
    wait_ = group.start(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, sum_, sum_);
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

octavo_status collect_stage(void *ctx, const octavo_gradient_stage *given) {
  octavo_gradient_stage stage;
  OCTAVO_TAKE(stage, given);
  try {
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(stage);
  } catch (...) {
    return OCTAVO_RESOURCE;  // no exception crosses the plugin
  }
  return OCTAVO_OK;
}

class SlotFlight : public GradientFlight {
 public:
  SlotFlight(Run &run, const std::vector<Parameter *> &parameters, ProcessGroup &group)
      : run_(run), group_(group), addresses_(parameters.size()) {
    first_name_ = parameters.front()->name;
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter &p = *parameters[i];
      ids.push_back(p.id);
      items_.push_back({p.id, 0, run.fill(p.reduce, &addresses_[i]), nullptr});
    }
    plan(ids);
    advance();
  }

  bool advance() override {
    if (wait_) wait_();
    wait_ = nullptr;
    if (next_ == stages_.size()) return false;
    auto call = make<octavo_gradient_call>(OCTAVO_KIND_GRADIENT_CALL);
    call.stream = current_stream(run_.device());
    call.stage = static_cast<uint32_t>(next_);
    call.world = static_cast<uint32_t>(group_.world());
    call.items = items_.data();
    call.count = items_.size();
    call.recv = recv_.const_data_ptr();
    call.send = send_.mutable_data_ptr();
    call.state = state_.mutable_data_ptr();
    const octavo_gradients *table = octavo_gradients_of(run_.handle());
    run_.host().check(table->run_stage(run_.session(), &call), "run_stage", first_name_);
    const octavo_gradient_stage &stage = stages_[next_++];
    if (stage.collective == OCTAVO_COLLECTIVE_NONE) return true;
    wait_ = group_.start(stage.collective, part(send_, stage.dtype, stage.send_count),
                         part(recv_, stage.dtype, stage.recv_count));
    return true;
  }

 private:
  // octavo_reduction_bytes looks at the whole plan and refuses what a host could not carry out.
  void plan(const std::vector<uint32_t> &ids) {
    const auto world = static_cast<uint32_t>(group_.world());
    uint64_t buffer_bytes = 0;
    uint64_t state_bytes = 0;
    run_.host().check(octavo_reduction_bytes(run_.handle(), ids.data(), ids.size(), world,
                                             &buffer_bytes, &state_bytes),
                      "octavo_reduction_bytes", first_name_);
    auto asked = make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
    asked.world = world;
    asked.parameters = ids.data();
    asked.count = ids.size();
    asked.ctx = &stages_;
    asked.stage = collect_stage;
    const octavo_gradients *table = octavo_gradients_of(run_.handle());
    run_.host().check(table->plan_reduction(run_.session(), &asked), "plan_reduction", first_name_);
    send_ = aligned_bytes(buffer_bytes, run_.device());
    recv_ = aligned_bytes(buffer_bytes, run_.device());
    state_ = aligned_bytes(state_bytes, run_.device());
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
  std::string first_name_;
  std::vector<Addresses> addresses_;
  std::vector<octavo_parameter_item> items_;
  std::vector<octavo_gradient_stage> stages_;
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
