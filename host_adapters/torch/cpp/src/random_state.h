// The state of torch's random number generators: of the CPU, and of the GPU of a model.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace octavo::torch {

inline at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

inline void set_state_of(at::Generator generator, const at::Tensor &state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

inline at::Tensor random_state() {
  return state_of(at::detail::getDefaultCPUGenerator());
}

inline void set_random_state(const at::Tensor &state) {
  set_state_of(at::detail::getDefaultCPUGenerator(), state);
}

// Both, as they were when this object was made.
class RandomState {
 public:
  explicit RandomState(const at::Device &device) : device_(device), cpu_(random_state()) {
    if (device.is_cuda()) own_ = state_of(at::globalContext().defaultGenerator(device));
  }
  const at::Device &device() const { return device_; }
  void set() const {
    set_random_state(cpu_);
    if (own_.defined()) set_state_of(at::globalContext().defaultGenerator(device_), own_);
  }

 private:
  at::Device device_;
  at::Tensor cpu_;
  at::Tensor own_;
};

}  // namespace octavo::torch
