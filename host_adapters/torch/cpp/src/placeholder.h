// What a module has in the place of a weight that the backend keeps in slots: a tensor of the same
// shape, dtype and device without memory. Its views work, so products with it are
// recognized; whatever reads or writes values throws c10::Error with this library's text.
#pragma once

#include "run.h"

namespace octavo::torch {

// Into the tensors of all weights in slots. Throws nothing but std::bad_alloc.
void put_placeholders(Run &run);

// Takes over what other code put in the place of a placeholder with set_data.
// Throws Error for another shape or dtype. Before each use; cheap when nothing happened.
void take_replaced(Run &run, Parameter &p);

}  // namespace octavo::torch
