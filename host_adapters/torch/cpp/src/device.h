// What depends on the device of a model's tensors.
//
// cpu; cuda:N, with the kernels of that GPU; or a device of torch's PrivateUse1, with the kernels
// that device.kind names.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>

namespace torch::nn {
class Module;
}

namespace octavo::torch {

// The device of all parameters; without one the CPU. Throws Error for parameters on several, and on
// a device that no kernels exist for.
at::Device device_of(const ::torch::nn::Module &module);

// For octavo_open_desc. AUTO where the configuration decides.
octavo_device open_device_of(const at::Device &device);
// Throws Error unless a run on `opened` reads tensors of `device`.
void check_device(const at::Device &device, const octavo_device &opened);

}  // namespace octavo::torch
