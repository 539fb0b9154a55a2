// The state of torch's random number generators: of the CPU, and of the GPU of a model.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>
#include <utility>

namespace octavo::torch {

inline at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

inline void set_state_of(at::Generator generator, const at::Tensor &state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Both: as they were when this object was made, or as they were saved.
class RandomState {
 public:
  explicit RandomState(const at::Device &device)
      : device_(device), cpu_(state_of(at::detail::getDefaultCPUGenerator())) {
    if (device.is_cuda()) own_ = state_of(at::globalContext().defaultGenerator(device));
  }
  // own: of a GPU; undefined for none.
  RandomState(const at::Device &device, at::Tensor cpu, at::Tensor own)
      : device_(device), cpu_(std::move(cpu)), own_(std::move(own)) {}

  const at::Device &device() const { return device_; }
  const at::Tensor &cpu() const { return cpu_; }
  const at::Tensor &own() const { return own_; }
  void set() const {
    set_state_of(at::detail::getDefaultCPUGenerator(), cpu_);
    if (own_.defined() && device_.is_cuda())
      set_state_of(at::globalContext().defaultGenerator(device_), own_);
  }

 private:
  at::Device device_;
  at::Tensor cpu_;
  at::Tensor own_;
};

}  // namespace octavo::torch
