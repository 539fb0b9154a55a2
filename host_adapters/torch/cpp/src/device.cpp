// Which device of Octavo a device of torch is.
#include "device.h"

#include <torch/nn/module.h>

#include <optional>

#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

std::string name_of(const octavo_device &device) {
  switch (device.type) {
    case OCTAVO_DEVICE_CPU: return "cpu";
    case OCTAVO_DEVICE_CUDA: return "cuda:" + std::to_string(device.index);
    default: return "device type " + std::to_string(device.type);
  }
}

}  // namespace

at::Device device_of(const ::torch::nn::Module &module) {
  std::optional<at::Device> device;
  for (const auto &item : module.named_parameters()) {
    const at::Device found = item.value().device();
    if (!found.is_cpu() && !found.is_cuda() && !found.is_privateuseone())
      throw Error(OCTAVO_UNSUPPORTED,
                  "parameter \"" + item.key() + "\": expected a tensor on cpu or cuda, found " +
                      found.str() +
                      "; call module->to(torch::kCPU) or module->to(torch::kCUDA) "
                      "before");
    if (device.has_value() && *device != found)
      throw Error(OCTAVO_UNSUPPORTED,
                  "parameter \"" + item.key() + "\": expected a tensor on " + device->str() +
                      ", as the ones before it, found " + found.str() +
                      "; bring the whole model there with module->to(...) before");
    device = found;
  }
  return device.value_or(at::Device(at::kCPU));
}

// device.kind is checked for models on the CPU, too: "cuda" with such a model is a mistake to
// report.
octavo_device open_device_of(const at::Device &device) {
  if (device.is_cuda()) return {OCTAVO_DEVICE_CUDA, device.has_index() ? device.index() : 0};
  return {OCTAVO_DEVICE_AUTO, 0};
}

void check_device(const at::Device &device, const octavo_device &opened) {
  const bool on_cpu = opened.type == OCTAVO_DEVICE_CPU;
  if (device.is_cpu() == on_cpu) return;
  throw Error(
      OCTAVO_UNSUPPORTED,
      "the model: expected its tensors on " + name_of(opened) +
          ", where the configuration runs, found them on " + device.str() +
          (on_cpu ? "; set device.kind to that device, or call module->to(torch::kCPU) "
                    "before"
                  : "; call module->to(torch::kCUDA) before, or set device.kind = \"cpu\""));
}

}  // namespace octavo::torch
