// octavo/hpp/host/optimizer.hpp: the verbs of octavo.optimizer/2, for a backend that keeps weights,
// gradients or moments in slots and steps them itself.
//
// What must not go wrong: hyperparameters, sums, norm and flags are memory of the run's device.
#ifndef OCTAVO_HPP_HOST_OPTIMIZER_HPP
#define OCTAVO_HPP_HOST_OPTIMIZER_HPP

#include <vector>

#include "octavo/hpp/host/calls.hpp"
#include "octavo/hpp/host/memory.hpp"

namespace octavo {
inline namespace hpp {

// The rule of the backend's optimizer, such as "adamw". Throws Error for a run without one.
inline std::string algorithm_of(const Run &run) {
  if (run.optimizer() == nullptr)
    throw Error("backend " + run.backend_id() + " has no octavo.optimizer/2", OCTAVO_WRONG_STATE,
                {});
  auto desc = make<octavo_optimizer_desc>(OCTAVO_KIND_OPTIMIZER_DESC);
  run.host().require(run.optimizer()->describe(run.session(), &desc), "describe");
  return text(desc.algorithm);
}

// What the five calls share. Throws Error for a run whose backend has no optimizer.
template <typename Derived, typename Raw>
class OptimizerCall : public Call<Derived, Raw> {
 protected:
  OptimizerCall(const Run &run, uint32_t kind)
      : Call<Derived, Raw>(run, kind), optimizer_(run.optimizer()) {
    if (optimizer_ == nullptr)
      throw Error(std::string(Derived::kName) + ": backend " + run.backend_id() +
                      " has no octavo.optimizer/2",
                  OCTAVO_WRONG_STATE, {});
  }
  const octavo_optimizer *optimizer_;
};

// A call for a list of parameters.
template <typename Derived, typename Raw>
class ParametersCall : public OptimizerCall<Derived, Raw> {
 public:
  // What each verb of the optimizer needs for these parameters.
  uint64_t workspace_bytes() const {
    std::vector<uint32_t> ids;
    for (const octavo_parameter_item &item : items_) ids.push_back(item.parameter);
    uint64_t bytes = 0;
    this->host_->require(
        this->optimizer_->workspace_bytes(this->session_, ids.data(), ids.size(), &bytes),
        "workspace_bytes");
    return bytes;
  }
  // f32[OCTAVO_HYPER_COUNT] of every parameter, or of the parameter at `index`.
  Derived &hyper(const float *values) {
    for (octavo_parameter_item &item : items_) item.hyper = values;
    return this->derived();
  }
  Derived &hyper(size_t index, const float *values) {
    items_.at(index).hyper = values;
    return this->derived();
  }

 protected:
  ParametersCall(const Run &run, const Store &store, const std::vector<uint32_t> &parameters,
                 uint32_t kind)
      : OptimizerCall<Derived, Raw>(run, kind) {
    for (const uint32_t p : parameters)
      items_.push_back(
          {p, 0, store.list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, p), nullptr});
  }
  void fill() noexcept {
    this->raw_.items = items_.data();
    this->raw_.count = items_.size();
    this->raw_.workspace = this->workspace_;
  }
  std::vector<octavo_parameter_item> items_;
};

// One step with the hyperparameters of each parameter.
class OptimizerStep : public ParametersCall<OptimizerStep, octavo_optimizer_call> {
 public:
  static constexpr const char *kName = "optimizer_step";
  OptimizerStep(const Run &run, const Store &store, const std::vector<uint32_t> &parameters)
      : ParametersCall(run, store, parameters, OCTAVO_KIND_OPTIMIZER_CALL) {}
  // 1: nothing changes.
  OptimizerStep &skip(const float *flag) {
    raw_.skip = flag;
    return *this;
  }
  octavo_status run() noexcept {
    fill();
    return optimizer_->optimizer_step(session_, &raw_);
  }
};

// Adds the squares of all gradients to *sum.
class SumOfSquares : public ParametersCall<SumOfSquares, octavo_norm_call> {
 public:
  static constexpr const char *kName = "sum_of_squares";
  SumOfSquares(const Run &run, const Store &store, const std::vector<uint32_t> &parameters)
      : ParametersCall(run, store, parameters, OCTAVO_KIND_NORM_CALL) {}
  SumOfSquares &sum(float *s) {
    raw_.sum = s;
    return *this;
  }
  octavo_status run() noexcept {
    fill();
    return optimizer_->sum_of_squares(session_, &raw_);
  }
};

// From sums of squares to the factor of the clipped gradient and the skip flag, on the device.
class PrepareStep : public OptimizerCall<PrepareStep, octavo_prepare_call> {
 public:
  static constexpr const char *kName = "prepare_step";
  explicit PrepareStep(const Run &run) : OptimizerCall(run, OCTAVO_KIND_PREPARE_CALL) {
    raw_.factor = 1;
  }
  PrepareStep &sums(const float *values, uint64_t count) {
    raw_.sum = values, raw_.sum_count = count;
    return *this;
  }
  PrepareStep &nonfinite(const float *flag) {
    raw_.nonfinite = flag;
    return *this;
  }
  PrepareStep &norm(float *value) {
    raw_.norm = value;
    return *this;
  }
  PrepareStep &skip(float *flag) {
    raw_.skip = flag;
    return *this;
  }
  // Of each group of parameters; OCTAVO_HYPER_GRAD_SCALE is written.
  PrepareStep &hyper(std::vector<float *> groups) {
    groups_ = std::move(groups);
    return *this;
  }
  // The factor that every gradient is multiplied by: 1 / loss scale.
  PrepareStep &factor(float f) {
    raw_.factor = f;
    return *this;
  }
  // 0: no clipping.
  PrepareStep &max_norm(float n) {
    raw_.max_norm = n;
    return *this;
  }
  octavo_status run() noexcept {
    raw_.hyper = groups_.data();
    raw_.count = groups_.size();
    return optimizer_->prepare_step(session_, &raw_);
  }

 private:
  std::vector<float *> groups_;
};

// Between slots and a plain tensor of the parameter's shape, for example its weight in fp32.
class ParameterCall : public OptimizerCall<ParameterCall, octavo_parameter_call> {
 public:
  static constexpr const char *kName = "read_parameter or write_parameter";
  enum Direction { kRead, kWrite };
  ParameterCall(const Run &run, const Store &store, uint32_t parameter, Direction direction,
                uint32_t role = OCTAVO_ROLE_WEIGHT)
      : OptimizerCall(run, OCTAVO_KIND_PARAMETER_CALL), direction_(direction) {
    raw_.parameter = parameter;
    raw_.role = role;
    raw_.slots = store.list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter);
  }
  ParameterCall &plain(const octavo_tensor &t) {
    plain_ = t;
    return *this;
  }
  uint64_t workspace_bytes() const {
    uint64_t bytes = 0;
    host_->require(optimizer_->workspace_bytes(session_, &raw_.parameter, 1, &bytes),
                   "workspace_bytes");
    return bytes;
  }
  octavo_status run() noexcept {
    raw_.plain = &plain_;
    raw_.workspace = workspace_;
    return direction_ == kRead ? optimizer_->read_parameter(session_, &raw_)
                               : optimizer_->write_parameter(session_, &raw_);
  }

 private:
  Direction direction_;
  octavo_tensor plain_{};
};

// The first value of a weight that the backend owns, in the backend's format. `plain` is a tensor
// on the run's device. Allocates its workspace, so it is for setup.
inline void write_parameter(const Run &run, const Store &store, uint32_t parameter,
                            const octavo_tensor &plain) {
  const Memory memory(run);
  ParameterCall call(run, store, parameter, ParameterCall::kWrite);
  DeviceBuffer workspace(memory, call.workspace_bytes());
  call.plain(plain).workspace(workspace.data())();
}

}  // namespace hpp
}  // namespace octavo

#endif
