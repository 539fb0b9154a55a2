// octavo::torch::Linear: a drop-in for torch::nn::Linear.
//
// prepare() works on torch::nn::Linear as it is. This module differs in one point: it knows its own
// place in the model, so linears that share a weight and have no separate bias still are separate
// layers, each with its own scales.
#pragma once

#include <torch/nn/modules/linear.h>

#include <memory>

#include "octavo/torch/error.h"

namespace octavo::torch {

struct Place;  // where a prepared linear runs; this library's own

// Options, members, parameter names and initial values are torch::nn::Linear's.
class OCTAVO_TORCH_API LinearImpl : public ::torch::nn::Cloneable<LinearImpl> {
 public:
  LinearImpl(int64_t in_features, int64_t out_features)
      : LinearImpl(::torch::nn::LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const ::torch::nn::LinearOptions &given);

  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream &stream) const override;
  // y [..., out_features] of x [..., in_features]; plain torch until the model is prepared.
  at::Tensor forward(const at::Tensor &x);

  ::torch::nn::LinearOptions options;
  at::Tensor weight;
  at::Tensor bias;

  // Of prepare(): null takes the layer back to plain torch. A clone starts without one.
  void set_place(std::weak_ptr<const Place> place) { place_ = std::move(place); }

 private:
  std::weak_ptr<const Place> place_;
};

// The holder, with torch's semantics of references.
class Linear : public ::torch::nn::ModuleHolder<LinearImpl> {
 public:
  using ::torch::nn::ModuleHolder<LinearImpl>::ModuleHolder;
  using Impl = LinearImpl;
};

}  // namespace octavo::torch
