// A device of torch's PrivateUse1 whose memory is that of tests/support/cuda_on_cpu/sealed.h: what
// reads or writes it without torch or a kernel dies. Operators run on copies of the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

namespace testing_torch {

// Gives torch the device, at the first call.
at::Device made_up_device();

}  // namespace testing_torch
