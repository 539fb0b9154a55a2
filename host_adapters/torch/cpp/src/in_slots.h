// What a module has for what the backend keeps in slots: tensors with a shape and no memory.
//
// A weight has the dtype and device of the module's. Its views work, so products with it are
// recognized; whatever reads or writes values throws c10::Error with this library's text.
//
// A gradient is .grad of its parameter. torch::nn::utils::clip_grad_norm_ reads its norm and scales
// it, zero_grad drops or clears it, add_ rounds to its format. Any other read gives plain values,
// of which views are copies. Other writes throw Error.
#pragma once

#include "run.h"

namespace octavo::torch {

// Into the tensors of all weights in slots. Throws nothing but std::bad_alloc.
void put_placeholders(Run &run);

// Takes over what other code put in the place of a placeholder with set_data.
// Throws Error for another shape or dtype. Before each use; cheap when nothing happened.
void take_replaced(Run &run, Parameter &p);

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
