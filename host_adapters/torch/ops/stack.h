// The arguments and results of an op that is boxed by hand: an argument costs what torch's
// interface costs.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

#include "host_adapters/torch/core/view.h"

namespace octavo::ops {

using core::Owned;
using core::View;
using core::Views;

// The arguments of a boxed op, which belong to the callee, and the place of its results. Take each
// argument once, and all of them before a result is given.
class Stack {
 public:
  explicit Stack(StableIValue *stack) : stack_(stack) { owned_.reserve(16); }

  int64_t integer(uint32_t at) const { return torch::stable::detail::to<int64_t>(stack_[at]); }
  double real(uint32_t at) const { return torch::stable::detail::to<double>(stack_[at]); }
  View tensor(uint32_t at) { return own(stack_[at]); }
  View optional_tensor(uint32_t at) {
    auto *value = torch::stable::detail::to<StableIValue *>(stack_[at]);
    if (value == nullptr) return View();
    const View tensor = own(*value);
    delete value;
    return tensor;
  }

  void give(uint32_t at, Owned &&result) {
    stack_[at] = torch::stable::detail::from(result.release());
  }

 private:
  View own(StableIValue value) {
    return owned_.emplace_back(torch::stable::detail::to<AtenTensorHandle>(value));
  }

  StableIValue *stack_;
  std::vector<Owned> owned_;
};

}  // namespace octavo::ops
