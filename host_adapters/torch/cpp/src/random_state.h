// The state of torch's random number generators: of the CPU, and of a model's device.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>
#include <optional>
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

// The generator of a device; nothing for the CPU, and where torch knows none of its own.
inline std::optional<at::Generator> generator_of(const at::Device &device) {
  if (device.is_cpu()) return {};
  try {
    return at::globalContext().defaultGenerator(device);
  } catch (const c10::NotImplementedError &) {  // of the hooks of its type
    return {};
  }
}

// Both: as they were when this object was made, or as they were saved.
class RandomState {
 public:
  explicit RandomState(const at::Device &device)
      : device_(device), cpu_(state_of(at::detail::getDefaultCPUGenerator())) {
    if (const auto own = generator_of(device)) own_ = state_of(*own);
  }
  // own: of the device; undefined for none.
  RandomState(const at::Device &device, at::Tensor cpu, at::Tensor own)
      : device_(device), cpu_(std::move(cpu)), own_(std::move(own)) {}

  const at::Device &device() const { return device_; }
  const at::Tensor &cpu() const { return cpu_; }
  const at::Tensor &own() const { return own_; }
  void set() const {
    set_state_of(at::detail::getDefaultCPUGenerator(), cpu_);
    if (!own_.defined()) return;
    if (const auto own = generator_of(device_)) set_state_of(*own, own_);
  }

 private:
  at::Device device_;
  at::Tensor cpu_;
  at::Tensor own_;
};

}  // namespace octavo::torch
