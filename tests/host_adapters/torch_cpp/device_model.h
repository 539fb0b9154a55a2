// A small model on the CPU or on the fake device, and the machine that has the device.
#pragma once

#include <gtest/gtest.h>
#include <octavo/torch/config.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <string>

#include "fake_device.h"
#include "transformer.h"

namespace testing_torch {

// Of the GPU; blocks of 32 begin with 10.0.
inline void use_capability(int capability) {
  const std::string gpu = "cuda=13000 driver=580.65.06 capability=" + std::to_string(capability);
  setenv("OCTAVO_FAKE_GPU", gpu.c_str(), 1);
}

class FakeGpu : public testing::Environment {
 public:
  void SetUp() override {
    setenv("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06", 0);  // a parent may have made another
    setenv("CUDA_ON_CPU_SEALED", "1", 1);
    setenv("OCTAVO_CUBLASLT", OCTAVO_FAKE_BLAS, 1);
    at::set_num_threads(1);
  }
};

// Module::to cannot change the kind of a tensor to PrivateUse1; GPUs of torch's own it can.
struct MovableLinear : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;
  void move(const at::Device &device) {
    for (auto &item : parameters_) {
      at::Tensor &p = item.value();
      if (p.defined()) p = p.detach().to(device).requires_grad_();
    }
    weight = parameters_["weight"];
    if (parameters_.contains("bias")) bias = parameters_["bias"];
  }
};

struct Model : torch::nn::Module {
  explicit Model(const at::Device &device) {
    torch::manual_seed(5);
    wide = register_module("wide", std::make_shared<MovableLinear>(48, 80));
    narrow = register_module(
        "narrow", std::make_shared<MovableLinear>(torch::nn::LinearOptions(80, 16).bias(false)));
    if (device.is_cpu()) return;
    wide->move(device);
    narrow->move(device);
  }
  at::Tensor forward(const at::Tensor &x) { return narrow->forward(torch::gelu(wide->forward(x))); }

  std::shared_ptr<MovableLinear> wide, narrow;
};

inline octavo::torch::Config config_on(const at::Device &device, const std::string &backend,
                                       const std::string &recipe) {
  octavo::torch::Config config = testing_torch::config_of(backend, recipe);
  config.set("plugins.trust", "dev").set("layers.min_gain", "off");
  config.set("device.kind", device.is_cpu() ? "cpu" : "cuda");
  config.plugin_dirs.push_back(OCTAVO_FAKE_KERNELS_DIR);
  return config;
}

inline at::Tensor inputs(int64_t step) {
  torch::manual_seed(100 + step);
  return torch::randn({24, 48});
}

}  // namespace testing_torch
