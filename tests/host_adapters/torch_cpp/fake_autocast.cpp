// Autocast of the fake device: the operators that torch names for devices of others, which are
// those of CUDA.
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "fake_device.h"

#define OCTAVO_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define OCTAVO_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define OCTAVO_FP32_UNLESS_GIVEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define OCTAVO_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace testing_torch {

void register_autocast() {
  using namespace at;
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  static torch::Library others(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFallthrough());
  static torch::Library m(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  AT_FORALL_LOWER_PRECISION_FP(OCTAVO_LOWER)
  AT_FORALL_FP32(OCTAVO_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(OCTAVO_FP32_UNLESS_GIVEN)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(OCTAVO_PROMOTE)
}

}  // namespace testing_torch
