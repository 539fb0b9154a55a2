// Between torch's C++ tensors and the handles that the core takes, which are the same objects.
#pragma once

#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <memory>

#include "host_adapters/torch/core/view.h"

namespace octavo::torch {

// Borrows `t`, the object itself; none for an undefined one.
inline core::View handle_of(const at::Tensor &t) {
  return t.defined() ? core::View(::torch::aot_inductor::tensor_pointer_to_tensor_handle(
                           const_cast<at::Tensor *>(&t)))
                     : core::View();
}

// Undefined for none.
inline at::Tensor tensor_of(core::Owned &&t) {
  if (!t) return {};
  const std::unique_ptr<at::Tensor> owned(
      ::torch::aot_inductor::tensor_handle_to_tensor_pointer(t.release()));
  return std::move(*owned);
}

}  // namespace octavo::torch
