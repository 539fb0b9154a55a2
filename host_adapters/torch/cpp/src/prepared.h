// What a Prepared holds; shared by prepare.cpp, state.cpp and accelerator.cpp.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <optional>

#include "linear_call.h"
#include "octavo/torch/adam.h"
#include "octavo/torch/prepare.h"

namespace octavo::torch {

class LinearImpl;

struct Prepared::Impl {
  ::torch::nn::Module *module = nullptr;
  ::torch::optim::Optimizer *given = nullptr;
  std::unique_ptr<Adam> adam;  // in the place of the given optimizer; or null
  std::shared_ptr<Run> run;
  std::vector<SitePointer> sites;
  struct Placed {
    Layer layer;
    SitePointer site;  // null: the layer stays with torch
  };
  std::vector<Placed> layers;
  // Modules that know their place, and the places.
  std::vector<std::shared_ptr<const Place>> places;
  std::vector<std::pair<std::weak_ptr<LinearImpl>, LinearImpl *>> placed_modules;
  uint64_t skipped_steps = 0;
  bool step_skipped = false;

  // Of an Accelerator: whether step() and zero_grad() act, and what comes before a step.
  std::function<bool()> is_due;
  std::function<void()> before_step;

  ::torch::optim::Optimizer &optimizer() {
    return adam != nullptr ? static_cast<::torch::optim::Optimizer &>(*adam) : *given;
  }
  // Gives the weights of the module that live in slots plain values.
  void materialize();
  // The reverse; kYes: the slots take over the weights that were written since.
  enum class TakeOver { kNo, kYes };
  void dematerialize(TakeOver take_over);
  // What each parameter held after materialize(): its version and its storage.
  std::vector<std::pair<uint64_t, const void *>> materialized;
  void close();
};

}  // namespace octavo::torch
