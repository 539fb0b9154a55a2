// The state of torch's random number generator of the CPU.
#ifndef OCTAVO_TORCH_RANDOM_STATE_H
#define OCTAVO_TORCH_RANDOM_STATE_H

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace octavo::torch {

inline at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

inline void set_random_state(const at::Tensor &state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace octavo::torch

#endif
