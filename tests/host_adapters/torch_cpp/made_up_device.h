// A device of torch's PrivateUse1 whose memory is that of tests/support/cuda_on_cpu/sealed.h: what
// reads or writes it without torch or a kernel dies. Operators run on copies of the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

namespace testing_torch {

// Gives torch the device, at the first call.
at::Device made_up_device();

// Of the device's registration: what runs in which type in torch.autocast.
void register_autocast();

// Copies from it to the CPU so far, which a host waits for. Not counted: those by which
// operators run, and those in the scope of an Uncounted.
int64_t copies_to_cpu();
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted &) = delete;
  Uncounted &operator=(const Uncounted &) = delete;
};

}  // namespace testing_torch
