// A gradient that the backend keeps in slots, as .grad of its parameter.
//
// The tensor has a shape and no memory. torch::nn::utils::clip_grad_norm_ reads its norm and scales
// it, zero_grad drops or clears it, add_ rounds to its format. Any other read gives plain values,
// of which views are copies. Other writes throw Error.
#pragma once

#include "run.h"

namespace octavo::torch {

// Gives torch the kernels of such tensors, once a process. Setup: before any of them exists.
void enable_slot_gradients();

// Whether the slot holds a gradient since the last zero_grad. A plain tensor in .grad moves there.
bool has_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p);
// The same for a backward that is about to add: applies the factor that clipping left.
bool adds_to_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p);
// The slot holds a gradient from now on, and .grad stands for it.
void begin_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p);
// Before a step takes it: clears the slot where no backward reached this part of the tensor.
void complete_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p);
// There is no gradient any more.
void drop_slot_gradients(Run &run);

}  // namespace octavo::torch
