// What the CUDA driver that torch has loaded says; nothing where there is none.
#pragma once

#include <string>

namespace octavo::core {

struct Device;

// A function of a library that this process has loaded already; null without it.
void *loaded(const char *library, const char *name);

// The UUID of the GPU, or of the part of one, that has the device's index: 16 bytes, the same in
// every process. Empty on the CPU, and where no driver says it.
std::string gpu_of(const Device &device);

}  // namespace octavo::core
