// Finds the linears of a module, and places them with a run.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "prepared.h"

namespace octavo::torch {

// A linear as it stands in the module.
struct Found {
  std::string name;
  at::Tensor weight;
  std::optional<Rows> rows;  // of the weight, when it stacks several
  std::string weight_name;
  std::weak_ptr<::torch::nn::Module> owner;
  const ::torch::nn::Module *raw = nullptr;
  std::shared_ptr<LinearImpl> own_kind;  // null: torch's own
};

struct Walk {
  std::vector<Found> linears;
  // Parameters that modules other than linears hold, and the name of one that does.
  std::unordered_map<const c10::TensorImpl *, std::string> held_elsewhere;
  std::unordered_set<const ::torch::nn::Module *> seen;

  // `shared` holds the module, or is null for a root outside of any shared_ptr.
  void visit(::torch::nn::Module &module, const std::string &name,
             const std::shared_ptr<::torch::nn::Module> &shared);

 private:
  void hold(const ::torch::nn::Module &module, const std::string &name,
            const std::unordered_set<const c10::TensorImpl *> &except);
};

// Tensors that stack several weights and stay with torch as a whole, and why.
using LeftOut = std::unordered_map<const c10::TensorImpl *, std::string>;

// Adds the model to the run, seals it, and fills in sites, layers and places. Changes nothing else;
// throws Error. False: the backend wants to keep some rows of a tensor and not others, which
// `left_out` now names; place again with another run.
bool place(Prepared::Impl &impl, const Walk &walk, LeftOut &left_out);

}  // namespace octavo::torch
