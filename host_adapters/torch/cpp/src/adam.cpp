// Hyperparameters, sums and the skip flag are tensors on the backend's device; what this library
// has to know of them it reads back once a step.
#include "octavo/torch/adam.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/serialize/archive.h>

#include <deque>
#include <unordered_map>

#include "host_adapters/torch/core/optimizer.h"
#include "in_slots.h"
#include "run.h"

namespace octavo::torch {
// Of a group.
struct Hyper {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  bool amsgrad;
  bool decoupled;

  bool operator==(const Hyper &) const = default;
};

namespace {

template <class Options>
Hyper hyper_from(const Options &o, bool decoupled) {
  return {o.lr(),   std::get<0>(o.betas()), std::get<1>(o.betas()),
          o.eps(),  o.weight_decay(),       o.amsgrad(),
          decoupled};
}

Hyper hyper_of(const ::torch::optim::OptimizerParamGroup &group) {
  const ::torch::optim::OptimizerOptions &options = group.options();
  if (const auto *w = dynamic_cast<const ::torch::optim::AdamWOptions *>(&options))
    return hyper_from(*w, true);
  if (const auto *a = dynamic_cast<const ::torch::optim::AdamOptions *>(&options))
    return hyper_from(*a, false);
  throw Error(OCTAVO_UNSUPPORTED,
              "the optimizer: expected torch::optim::AdamOptions or AdamWOptions, found others");
}

// Throws unless the backend steps by the options of a group.
void check_group(const Run &run, const ::torch::optim::OptimizerParamGroup &group) {
  const std::string backend = run.backend_id();
  const std::string rule = run.algorithm();
  const Hyper hyper = hyper_of(group);
  if (hyper.amsgrad)
    throw Error(OCTAVO_UNSUPPORTED,
                "the optimizer: expected amsgrad(false), found true: its maximum of second "
                "moments has no low-bit form; switch it off");
  const std::string wanted = hyper.decoupled ? "adamw" : "adam";
  if (rule != "adam" && rule != "adamw")
    throw Error(OCTAVO_UNSUPPORTED,
                "the optimizer: expected \"" + rule + "\", the rule of backend \"" + backend +
                    "\" for the weights that it keeps, found \"" + wanted +
                    "\"; use the backend \"te\", which works with any optimizer");
  if (hyper.weight_decay != 0.0 && rule != wanted)
    throw Error(OCTAVO_INVALID, "the optimizer: expected the weight decay that fp8." + backend +
                                    ".optimizer = \"" + rule + "\" names, found the decay of \"" +
                                    wanted + "\"; set fp8." + backend + ".optimizer = \"" + wanted +
                                    "\"");
}

// Throws unless the optimizer is one that the backend can stand in for.
const ::torch::optim::Optimizer &checked(const Run &run,
                                         const ::torch::optim::Optimizer &optimizer) {
  const bool is_adam = dynamic_cast<const ::torch::optim::Adam *>(&optimizer) != nullptr ||
                       dynamic_cast<const ::torch::optim::AdamW *>(&optimizer) != nullptr;
  const std::string backend = run.backend_id();
  if (!is_adam)
    throw Error(OCTAVO_UNSUPPORTED,
                "the optimizer: expected torch::optim::Adam or AdamW, since "
                "backend \"" +
                    backend +
                    "\" steps the weights that it keeps by Adam, found another "
                    "one; use one of the two, or the backend \"te\", which "
                    "works with any optimizer");
  if (!optimizer.state().empty())
    throw Error(OCTAVO_WRONG_STATE,
                "the optimizer: expected one that made no step yet, since its "
                "moments move into slots, found " +
                    std::to_string(optimizer.state().size()) +
                    " states; prepare before the first step");
  for (const ::torch::optim::OptimizerParamGroup &group : optimizer.param_groups())
    check_group(run, group);
  return optimizer;
}

std::vector<::torch::optim::OptimizerParamGroup> groups_of(
    const ::torch::optim::Optimizer &optimizer) {
  return {optimizer.param_groups().begin(), optimizer.param_groups().end()};
}

}  // namespace

struct Adam::Impl {
  using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

  std::shared_ptr<Run> run;
  ::torch::optim::Optimizer *replaced = nullptr;

  // What both optimizers had in a group when they were compared last.
  struct Agreed {
    Hyper hyper;
    std::vector<const c10::TensorImpl *> parameters;

    explicit Agreed(const ::torch::optim::OptimizerParamGroup &group) : hyper(hyper_of(group)) {
      for (const at::Tensor &tensor : group.params())
        parameters.push_back(tensor.unsafeGetTensorImpl());
    }
    bool operator==(const Agreed &) const = default;
  };
  std::vector<Agreed> agreed;

  // More than one for a tensor that stacks several.
  std::unordered_map<const c10::TensorImpl *, std::vector<Parameter *>> by_tensor;
  at::Tensor skip;  // f32 [1]

  at::TensorOptions f32() const { return at::TensorOptions(at::kFloat).device(run->device()); }

  // Takes over what changed in the groups of either optimizer since the last time. Throws before
  // anything changes.
  void follow(Groups &own) {
    Groups &given = replaced->param_groups();
    for (const Groups *groups : {&own, &given}) check(*groups);
    if (own.size() > agreed.size() && given.size() > agreed.size()) refuse_both("a new group");
    for (size_t i = 0; i < agreed.size(); ++i) {
      const Agreed mine(own[i]), theirs(given[i]);
      if (!(mine == theirs) && !(mine == agreed[i]) && !(theirs == agreed[i]))
        refuse_both("group " + std::to_string(i) + " (lr " + std::to_string(theirs.hyper.lr) +
                    " and " + std::to_string(mine.hyper.lr) + ")");
    }
    for (size_t i = 0; i < std::max(own.size(), given.size()); ++i) {
      const bool is_ours = i >= given.size() || (i < own.size() && !(Agreed(own[i]) == agreed[i]));
      Groups &from = is_ours ? own : given, &to = is_ours ? given : own;
      if (i < to.size()) {
        to[i].set_options(from[i].options().clone());
        to[i].params() = from[i].params();
        agreed[i] = Agreed(from[i]);
      } else {
        to.push_back(from[i]);
        agreed.emplace_back(from[i]);
      }
    }
  }

  [[noreturn]] static void refuse_both(const std::string &what) {
    throw Error(OCTAVO_INVALID,
                "the optimizer: expected a change in the optimizer that prepare() was given, or in "
                "Prepared::optimizer(), found one in each to " +
                    what + "; change one of the two");
  }

  // Whether these groups can be stepped.
  void check(const Groups &groups) const {
    for (size_t i = 0; i < std::max(groups.size(), agreed.size()); ++i) {
      const size_t least = i < agreed.size() ? agreed[i].parameters.size() : 0;
      const size_t found = i < groups.size() ? groups[i].params().size() : 0;
      if (i >= groups.size() || found < least)
        throw Error(OCTAVO_INVALID, "the optimizer: expected the " + std::to_string(least) +
                                        " parameters of group " + std::to_string(i) +
                                        " or more, found " + std::to_string(found) +
                                        "; prepare again to step fewer");
      check_group(*run, groups[i]);
      for (const at::Tensor &tensor : groups[i].params())
        if (by_tensor.count(tensor.unsafeGetTensorImpl()) == 0)
          throw Error(OCTAVO_WRONG_STATE,
                      "the optimizer: expected the parameters that it had when the model was "
                      "prepared, found another one in group " +
                          std::to_string(i) + "; prepare again after adding parameters");
    }
  }

  // What one step passes, in the order of the groups and their parameters.
  struct Step {
    at::Tensor hyper;  // f32 [groups, OCTAVO_HYPER_COUNT]
    std::vector<Parameter *> parameters;
    std::vector<int64_t> groups;  // of the parameters
    at::Tensor sums;              // f32 [parameters]
    bool scaled = false;          // one of them has a factor
  };

  // torch's own tensors of parameters, as the core takes them.
  struct Natives {
    std::vector<int64_t> ids;
    core::Views weights, gradients;
    std::deque<at::Tensor> parts;  // what the views borrow

    core::ParameterSet set() const { return {ids, weights, gradients}; }
  };

  Natives natives_of(const std::vector<Parameter *> &parameters) const {
    Natives natives;
    for (const Parameter *p : parameters) {
      natives.ids.push_back(p->id);
      const core::ObjectLists &lists = run->entry().parameters[p->id];
      for (const core::Native &native : lists.verbs[OCTAVO_VERB_OPTIMIZER_STEP].natives) {
        const bool is_weight = native.role == OCTAVO_ROLE_WEIGHT;
        const at::Tensor &whole = is_weight ? p->tensor : p->tensor.grad();
        natives.parts.push_back(p->part_of(whole));
        (is_weight ? natives.weights : natives.gradients)
            .push_back(handle_of(natives.parts.back()));
      }
    }
    return natives;
  }

  Step gather(std::vector<::torch::optim::OptimizerParamGroup> &groups) {
    Step step;
    const at::Tensor plain =
        at::zeros({static_cast<int64_t>(groups.size()), OCTAVO_HYPER_COUNT}, at::kFloat);
    auto *hyper = plain.mutable_data_ptr<float>();
    for (size_t i = 0; i < groups.size(); ++i, hyper += OCTAVO_HYPER_COUNT) {
      const Hyper given = hyper_of(groups[i]);
      hyper[OCTAVO_HYPER_LR] = static_cast<float>(given.lr);
      hyper[OCTAVO_HYPER_BETA1] = static_cast<float>(given.beta1);
      hyper[OCTAVO_HYPER_BETA2] = static_cast<float>(given.beta2);
      hyper[OCTAVO_HYPER_EPS] = static_cast<float>(given.eps);
      hyper[OCTAVO_HYPER_WEIGHT_DECAY] = static_cast<float>(given.weight_decay);
      hyper[OCTAVO_HYPER_GRAD_SCALE] = 1.0f;
      for (at::Tensor &tensor : groups[i].params()) add(step, tensor, static_cast<int64_t>(i));
    }
    step.hyper = plain.to(run->device());
    step.sums = at::zeros({static_cast<int64_t>(step.parameters.size())}, f32());
    for (size_t i = 0; i < step.parameters.size(); ++i) {
      const Natives natives = natives_of({step.parameters[i]});
      const at::Tensor sum = step.sums.narrow(0, static_cast<int64_t>(i), 1);
      core::sum_of_squares(run->entry(), natives.set(), handle_of(sum));
      const at::Tensor &factor = step.parameters[i]->gradient_factor;
      if (!factor.defined()) continue;
      at::Tensor(sum).mul_(factor.square());
      step.scaled = true;
    }
    return step;
  }

  void add(Step &step, at::Tensor &tensor, int64_t group) {
    const std::vector<Parameter *> &parts = by_tensor.at(tensor.unsafeGetTensorImpl());
    bool has_gradient = false;
    for (Parameter *p : parts)
      has_gradient |= p->keeps_gradient ? has_slot_gradient(run, *p) : tensor.grad().defined();
    if (!has_gradient) return;
    for (Parameter *p : parts) add(step, tensor, *p, group);
  }

  void add(Step &step, at::Tensor &tensor, Parameter &p, int64_t group) {
    if (p.frozen() && tensor.requires_grad())
      throw Error(OCTAVO_INVALID, "parameter \"" + p.name +
                                      "\": expected requires_grad as it was when the model was "
                                      "prepared (frozen), found true; prepare it after unfreezing");
    if (p.frozen()) return;
    take_replaced(*run, p);
    if (p.keeps_gradient) {
      complete_slot_gradient(run, p);
    } else {
      if (!tensor.grad().defined()) return;
      at::Tensor &gradient = tensor.mutable_grad();
      if (gradient.layout() != at::kStrided)
        throw Error(OCTAVO_UNSUPPORTED, "parameter \"" + p.name +
                                            "\": expected a dense gradient, found a sparse one; "
                                            "make the embedding with sparse(false)");
      if (!gradient.is_contiguous()) gradient = gradient.contiguous();
    }
    step.parameters.push_back(&p);
    step.groups.push_back(group);
  }

  // Writes the skip flag.
  void decide(Step &step) {
    skip.zero_();
    core::prepare_step(run->entry(), handle_of(step.sums), handle_of(run->nonfinite()), {},
                       handle_of(skip), handle_of(step.hyper), 1.0, 0.0);
  }

  // Gives each parameter a row of its own, with the factor of its gradient.
  void spread(Step &step) const {
    if (!step.scaled) return;
    step.hyper = step.hyper.index_select(0, at::tensor(step.groups).to(run->device()));
    for (size_t i = 0; i < step.parameters.size(); ++i) {
      step.groups[i] = static_cast<int64_t>(i);
      const at::Tensor &factor = step.parameters[i]->gradient_factor;
      if (factor.defined()) step.hyper[static_cast<int64_t>(i)][OCTAVO_HYPER_GRAD_SCALE] *= factor;
    }
  }
};

Adam::Adam(std::shared_ptr<Run> run, ::torch::optim::Optimizer &replaced)
    : Optimizer(groups_of(checked(*run, replaced)), replaced.defaults().clone()),
      impl_(std::make_unique<Impl>()) {
  impl_->run = std::move(run);
  impl_->replaced = &replaced;
  for (const ::torch::optim::OptimizerParamGroup &group : param_groups())
    impl_->agreed.emplace_back(group);
  for (Parameter &p : impl_->run->parameters())
    impl_->by_tensor[p.tensor.unsafeGetTensorImpl()].push_back(&p);
  impl_->skip = at::zeros({1}, impl_->f32());
}

Adam::~Adam() = default;

at::Tensor Adam::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_graph(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  Run &run = *impl_->run;
  impl_->follow(param_groups());
  Impl::Step step = impl_->gather(param_groups());
  impl_->decide(step);
  skipped_ = impl_->skip.item<float>() != 0.0f;
  if (!step.parameters.empty()) {
    impl_->spread(step);
    core::optimizer_step(run.entry(), impl_->natives_of(step.parameters).set(), step.groups,
                         handle_of(step.hyper), handle_of(impl_->skip));
  }
  for (Parameter *p : step.parameters) {
    if (p->keeps_weight) run.entry().coupling.moved(p->id);
    p->tensor.unsafeGetTensorImpl()->bump_version();
  }
  return loss;
}

void Adam::save(::torch::serialize::OutputArchive &archive) const {
  for (size_t i = 0; i < param_groups().size(); ++i) {
    ::torch::serialize::OutputArchive group(archive.compilation_unit());
    param_groups()[i].options().serialize(group);
    archive.write("group" + std::to_string(i), group);
  }
}

void Adam::load(::torch::serialize::InputArchive &archive) {
  for (size_t i = 0; i < param_groups().size(); ++i) {
    ::torch::serialize::InputArchive group;
    if (!archive.try_read("group" + std::to_string(i), group))
      throw Error(OCTAVO_INVALID, "the optimizer's file: expected group " + std::to_string(i) +
                                      ", found none; load a checkpoint of the same optimizer");
    param_groups()[i].options().serialize(group);
  }
  impl_->agreed.clear();
  for (const ::torch::optim::OptimizerParamGroup &group : param_groups())
    impl_->agreed.emplace_back(group);
  impl_->replaced->param_groups() = Impl::Groups(param_groups());
}

}  // namespace octavo::torch
