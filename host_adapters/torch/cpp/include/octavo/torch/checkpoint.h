// Activation checkpointing: keeps the inputs of a part of the model instead of its activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "octavo/torch/error.h"

namespace octavo::torch {

using Tensors = std::vector<at::Tensor>;

// The outputs of fn(inputs), which backward computes a second time, in the state of the random
// number generator and of autocast that the first time had: losses and gradients are bit-identical
// to a plain call. fn must compute the same each time, and what it captures lives until
// backward. Without gradients it is a plain call. Not for backward passes that are differentiated.
OCTAVO_TORCH_API Tensors checkpoint(std::function<Tensors(const Tensors &)> fn,
                                    const Tensors &inputs);

// The same for fn(x, y, ...) with one result: checkpoint([&](auto x) { return block(x); }, x).
template <class F, class... More>
at::Tensor checkpoint(F fn, const at::Tensor &x, const More &...more) {
  return checkpoint(
      [fn = std::move(fn)]<size_t... I>(std::index_sequence<I...>) {
        return [fn](const Tensors &inputs) mutable { return Tensors{fn(inputs[I]...)}; };
      }(std::make_index_sequence<1 + sizeof...(More)>()),
      Tensors{x, more...})[0];
}

}  // namespace octavo::torch
