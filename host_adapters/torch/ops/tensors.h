// Tensors of torch's stable ABI as the core takes them.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "host_adapters/torch/core/view.h"

namespace octavo::ops {

using core::View;
using torch::stable::Tensor;
using Tensors = std::vector<Tensor>;
using Ids = std::vector<int64_t>;

inline View view(const Tensor &t) {
  return View(t.get());
}

inline View view(const std::optional<Tensor> &t) {
  return t ? view(*t) : View();
}

inline core::Views views(const Tensors &tensors) {
  core::Views out;
  for (const Tensor &t : tensors) out.push_back(view(t));
  return out;
}

}  // namespace octavo::ops
