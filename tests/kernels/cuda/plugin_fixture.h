// A run on the plugin of CUDA kernels: a fake GPU (tests/misconfigurations/fake_gpu.c), device
// code that the CPU executes.
#pragma once

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "octavo/kernels.h"
#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/environment.h"
#include "tests/support/model.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

using testing::HasSubstr;

class CudaPlugin : public testing::Test {
 protected:
  CudaPlugin() {
    environment.set("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06");
    on_cuda(request, OCTAVO_FAKE_KERNELS_DIR).set("layers.min_gain", "off");
  }
  // Asks for a run on the GPU with the backends of the build, and kernels of that directory.
  static Request &on_cuda(Request &r, const std::string &kernels) {
    return r.set("plugins.trust", "dev")
        .set("device.kind", "cuda")
        .plugins(kernels)
        .plugins(OCTAVO_PLUGINS_DIR);
  }
  // A runtime in a state of its own, once the plugin is loaded.
  static cuda_on_cpu::Script &script() {
    return *function<cuda_on_cpu::Script *()>("cuda_on_cpu_script")();
  }
  static cuda_on_cpu::Counters &counters() {
    return *function<cuda_on_cpu::Counters *()>("cuda_on_cpu_counters")();
  }
  template <typename F>
  static F *function(const char *name) {
    void *opened = dlopen(OCTAVO_FAKE_KERNELS_DIR "/kernels-cuda.so", RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(opened, nullptr) << "the plugin is not loaded";
    return reinterpret_cast<F *>(dlsym(opened, name));
  }
  // One line of what explain says; empty when there is none of that name.
  std::string line(const char *name) {
    const octavo_open_desc d = request.desc();
    std::string all;
    octavo_explain(&d, borrow("text"), Request::append_line, &all);
    const size_t at = all.find(name);
    return at == std::string::npos ? all : all.substr(at, all.find('\n', at) - at);
  }

  Environment environment;
  TempDir dir;
  Request request;
};

}  // namespace octavo::test
