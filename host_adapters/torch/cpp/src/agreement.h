// Whether the processes of a group train the same thing.
#pragma once

#include "octavo/torch/prepare.h"
#include "process_group.h"

namespace octavo::torch {

// Before the processes exchange tensors. Throws Error in every process unless the models have the
// same parameters and buffers on devices of one kind, and NCCL has a GPU for each process. Nothing
// in a world of 1, as below.
void check_models(ProcessGroup &group, const ::torch::nn::Module &module);

// After prepare(): the same for what it chose. null: it failed here, which the other processes are
// waiting to hear; throws nothing then.
void check_choices(ProcessGroup &group, Prepared *prepared);

}  // namespace octavo::torch
