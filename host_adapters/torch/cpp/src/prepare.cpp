// Checks everything, places the linears, and commits only when all of it has succeeded.
#include "octavo/torch/prepare.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <unordered_map>
#include <unordered_set>

#include "host_adapters/torch/core/host.h"
#include "in_slots.h"
#include "octavo/torch/linear.h"
#include "placement.h"
#include "run.h"
#include "site_registry.h"

namespace octavo::torch {
namespace {

using ::torch::nn::Module;

void check_model(const Module &model, const Walk &walk) {
  for (const Found &found : walk.linears) {
    if (dtype_of(found.weight.scalar_type()) == 0)
      throw Error(OCTAVO_INVALID, "linear \"" + found.name +
                                      "\": expected a weight in f32, bf16 or f16, found " +
                                      c10::toString(found.weight.scalar_type()) +
                                      "; convert the model before, for example with "
                                      "module->to(torch::kFloat)");
    const Hit hit = SiteRegistry::instance().find(found.weight);
    if (!hit) continue;
    const Site &site = hit.first_site();
    if (site.run->model == &model)
      throw Error(OCTAVO_WRONG_STATE,
                  "linear \"" + found.name +
                      "\": expected a model that is not prepared, found one that is; use its "
                      "Prepared, or close that first");
    throw Error(
        OCTAVO_WRONG_STATE,
        "linear \"" + found.name +
            "\": expected a weight that no other prepared model has, found the weight of \"" +
            site.name +
            "\" of one; prepare one module that holds both models, or close the Prepared "
            "of the other first");
  }
}

void check_optimizer(const Module &module, const ::torch::optim::Optimizer &optimizer) {
  std::unordered_set<const c10::TensorImpl *> own;
  for (const at::Tensor &t : module.parameters()) own.insert(t.unsafeGetTensorImpl());
  size_t shared = 0;
  size_t foreign = 0;
  for (const auto &group : optimizer.param_groups())
    for (const at::Tensor &t : group.params())
      ++(own.count(t.unsafeGetTensorImpl()) != 0 ? shared : foreign);
  if (shared == 0)
    throw Error(OCTAVO_INVALID, "the optimizer: expected parameters of this model, found " +
                                    std::to_string(foreign) +
                                    " of another one and none of this one; make the optimizer from "
                                    "module->parameters()");
}

// Layers with one weight are one site, whatever their names.
void name_recipes_of_rules(Prepared::Impl &impl) {
  const std::vector<std::string> &names = impl.run->linear_names();
  for (uint32_t id = 0; id < names.size(); ++id)
    if (const std::string recipe = impl.run->option("recipe", id); !recipe.empty())
      for (const Prepared::Impl::Placed &ruled : impl.layers)
        if (ruled.layer.name == names[id] && ruled.site != nullptr)
          for (Prepared::Impl::Placed &placed : impl.layers)
            if (placed.site == ruled.site) placed.layer.recipe = recipe;
}

// FP8 without a single layer in FP8 is an error.
void check_something_runs(const Prepared::Impl &impl) {
  if (!impl.sites.empty() || !impl.run->has_backend()) return;
  std::string reasons = impl.layers.empty() ? "it has no linear layers" : "";
  for (size_t i = 0; i < std::min<size_t>(impl.layers.size(), 4); ++i) {
    const Layer &layer = impl.layers[i].layer;
    reasons += (i == 0 ? "" : "; ") + layer.name + ": " + layer.reason;
  }
  throw Error(OCTAVO_UNSUPPORTED,
              "the model: expected at least one linear layer that runs in FP8, found none (" +
                  reasons +
                  "); change the model or the configuration, or set mixed_precision = \"bf16\"");
}

std::pair<uint64_t, const void *> content_of(const at::Tensor &tensor) {
  const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  return {impl->version_counter().current_version(), impl->unsafe_storage().unsafeGetStorageImpl()};
}

}  // namespace

void Prepared::Impl::materialize() {
  const c10::InferenceMode off(false);
  const at::NoGradGuard no_grad;
  std::unordered_map<const c10::TensorImpl *, at::Tensor> plain;  // by the module's tensor
  for (Parameter &p : run->parameters()) {
    if (!p.keeps_weight) continue;
    take_replaced(*run, p);
    at::Tensor &whole = plain[p.tensor.unsafeGetTensorImpl()];
    if (!whole.defined()) whole = at::empty(p.tensor.sizes(), p.tensor.detach().options());
    at::Tensor part = p.part_of(whole);
    // The master has more bits than a weight in FP8.
    const bool has_master = run->slot_of(p, OCTAVO_ROLE_MASTER_WEIGHT) != nullptr;
    run->read_parameter(p, has_master ? OCTAVO_ROLE_MASTER_WEIGHT : OCTAVO_ROLE_WEIGHT, part);
  }
  for (Parameter &p : run->parameters())
    if (p.keeps_weight) p.tensor.set_data(plain.at(p.tensor.unsafeGetTensorImpl()));
  run->is_plain = true;
  materialized.clear();
  for (const Parameter &p : run->parameters()) materialized.push_back(content_of(p.tensor));
}

void Prepared::Impl::dematerialize(TakeOver take_over) {
  const at::NoGradGuard no_grad;
  for (Parameter &p : run->parameters()) {
    if (!p.keeps_weight) continue;
    if (take_over == TakeOver::kYes && content_of(p.tensor) != materialized.at(p.id)) {
      run->write_parameter(p, OCTAVO_ROLE_WEIGHT, p.part_of(p.tensor.detach()));
      p.tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
  put_placeholders(*run);
}

void Prepared::Impl::close() {
  materialize();  // may throw, and has changed nothing then
  release(sites);
  for (auto &[weak, raw] : placed_modules)
    if (const auto alive = weak.lock()) alive->set_place({});
  run->is_closed = true;
  drop_slot_gradients(*run);
}

Prepared prepare(::torch::nn::Module &module, ::torch::optim::Optimizer &optimizer,
                 const Config &config) {
  Walk walk;
  walk.visit(module, "", module.weak_from_this().lock());
  const at::Device device = device_of(module);
  check_model(module, walk);
  check_optimizer(module, optimizer);

  std::unique_ptr<Prepared::Impl> impl;
  LeftOut left_out;
  do {
    core::take_diagnostics();
    impl = std::make_unique<Prepared::Impl>();
    impl->module = &module;
    impl->given = &optimizer;
    impl->run = std::make_shared<Run>(config, device);
    impl->run->model = &module;
  } while (!place(*impl, walk, left_out));
  Run &run = *impl->run;
  check_something_runs(*impl);
  name_recipes_of_rules(*impl);
  bool kept = false;
  for (const Parameter &p : run.parameters()) kept = kept || p.keeps_weight || p.keeps_gradient;
  if (kept) {
    enable_slot_gradients();
    impl->adam = std::make_unique<Adam>(impl->run, optimizer);
  }
  {
    const at::NoGradGuard no_grad;
    for (Parameter &p : run.parameters())
      if (p.keeps_weight) run.write_parameter(p, OCTAVO_ROLE_WEIGHT, p.part_of(p.tensor.detach()));
  }
  // From here on nothing fails but the registration, which is all or nothing itself.
  intercept(impl->sites, device.type());
  for (size_t i = 0; i < impl->places.size(); ++i)
    impl->placed_modules[i].second->set_place(impl->places[i]);
  for (Parameter &p : run.parameters())
    if (p.keeps_gradient) p.tensor.mutable_grad() = at::Tensor();
  impl->dematerialize(Prepared::Impl::TakeOver::kNo);
  for (const core::Said &said : core::take_diagnostics())
    if (said.severity >= OCTAVO_SEVERITY_WARNING)
      TORCH_WARN("octavo::torch: ", said.domain, ": ", said.text);
  return Prepared(std::move(impl));
}

Prepared::Prepared(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prepared::Prepared(Prepared &&) noexcept = default;

Prepared &Prepared::operator=(Prepared &&other) noexcept {
  if (this != &other) {
    close();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

Prepared::~Prepared() {
  try {
    close();
  } catch (const std::exception &e) {
    TORCH_WARN("octavo::torch: closing a prepared model failed: ", e.what());
  }
}

void Prepared::close() {
  if (impl_ == nullptr) return;
  impl_->close();
  impl_.reset();
}

bool Prepared::is_closed() const {
  return impl_ == nullptr;
}

Prepared::Impl &Prepared::impl() {
  return const_cast<Impl &>(opened());
}

const Prepared::Impl &Prepared::opened() const {
  if (impl_ == nullptr)
    throw Error(OCTAVO_WRONG_STATE,
                "Prepared: expected one that is open, found it closed or moved from; prepare the "
                "model again");
  return *impl_;
}

std::vector<Layer> Prepared::layers() const {
  std::vector<Layer> all;
  for (const Impl::Placed &placed : opened().layers) {
    all.push_back(placed.layer);
    if (placed.site == nullptr) continue;
    all.back().forward_calls = placed.site->forward_calls();
    all.back().dgrad_calls = placed.site->dgrad_calls;
    all.back().wgrad_calls = placed.site->wgrad_calls;
  }
  return all;
}

std::string Prepared::report(const std::string &format) const {
  std::string text = opened().run->report(format);
  if (format == "json") return text;
  std::string idle;
  bool has_run = false;
  for (const Layer &layer : layers()) {
    has_run = has_run || layer.forward_calls > 0;
    if (layer.fp8 && layer.forward_calls == 0) idle += (idle.empty() ? "" : ", ") + layer.name;
  }
  if (has_run && !idle.empty()) text += "never ran  " + idle + "\n";
  return text;
}

Session Prepared::session() const {
  return Session(opened().run);
}

::torch::optim::Optimizer &Prepared::optimizer() {
  return impl().optimizer();
}

void Prepared::refresh() {
  Run &run = *impl().run;
  for (const Parameter &p : run.parameters()) run.entry().coupling.moved(p.id);
}

void Prepared::with_plain_weights(const std::function<void()> &fn) {
  Impl &state = impl();
  state.materialize();
  try {
    fn();
  } catch (...) {
    state.dematerialize(Impl::TakeOver::kNo);
    throw;
  }
  state.dematerialize(Impl::TakeOver::kYes);
}

}  // namespace octavo::torch
