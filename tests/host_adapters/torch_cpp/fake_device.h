// Devices of torch's PrivateUse1. With CUDA_ON_CPU_SEALED=1 there is one, whose memory is that of
// tests/support/cuda_on_cpu/sealed.h: what reads or writes it without torch or a kernel dies.
// Otherwise there are two, whose memory is the CPU's, for kernels that know nothing of seals.
// Operators run on copies of the CPU's.
#pragma once

#include <ATen/core/Tensor.h>

namespace testing_torch {

// Gives torch the devices, at the first call, and returns the first one. name: of their type.
at::Device fake_device(const char *name = "fake_device");

// Of the device's registration: what runs in which type in torch.autocast.
void register_autocast();

// Kernels that are late (tests/support/late_kernels.h), once they are loaded: 0 lets them run at
// once, another seed when somebody waits, in an order that it chooses of those that streams and
// events allow. Fresh memory then has garbage. is_idle: nothing is queued.
void be_lazy(uint64_t seed);
bool is_idle();

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
