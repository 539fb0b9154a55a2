// Which linears a module has, which of them the run takes, and why not the others.
#include "placement.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "octavo/torch/linear.h"

namespace octavo::torch {

using ::torch::nn::Module;

namespace {

std::string joined(const std::string &name, const std::string &member) {
  return name.empty() ? member : name + "." + member;
}

// Query, key and value: rows of one weight, or three weights where keys or values have a width of
// their own. torch multiplies by them without calling a module; out_proj is a linear of its own.
std::vector<Found> projections_of(const ::torch::nn::MultiheadAttentionImpl &attention,
                                  const std::string &name, const std::shared_ptr<Module> &shared) {
  const char *const parts[] = {"q", "k", "v"};
  const at::Tensor separate[] = {attention.q_proj_weight, attention.k_proj_weight,
                                 attention.v_proj_weight};
  const bool is_stack = attention.in_proj_weight.defined();
  const int64_t width = attention.options.embed_dim();
  std::vector<Found> all;
  for (int64_t i = 0; i < 3; ++i) {
    const std::string part = parts[i];
    all.push_back({joined(name, part), is_stack ? attention.in_proj_weight : separate[i],
                   is_stack ? std::optional<Rows>(Rows{i * width, width}) : std::nullopt,
                   joined(name, is_stack ? "in_proj_weight." + part : part + "_proj_weight"),
                   shared, &attention, nullptr});
  }
  return all;
}

}  // namespace

void Walk::visit(Module &module, const std::string &name, const std::shared_ptr<Module> &shared) {
  if (!seen.insert(&module).second) return;
  const auto *plain = dynamic_cast<const ::torch::nn::LinearImpl *>(&module);
  const auto *own = dynamic_cast<const LinearImpl *>(&module);
  if (plain != nullptr || own != nullptr) {
    linears.push_back({name, plain != nullptr ? plain->weight : own->weight, std::nullopt,
                       joined(name, "weight"), shared, &module,
                       std::dynamic_pointer_cast<LinearImpl>(shared)});
  } else if (const auto *attention =
                 dynamic_cast<const ::torch::nn::MultiheadAttentionImpl *>(&module)) {
    std::vector<Found> projections = projections_of(*attention, name, shared);
    std::unordered_set<const c10::TensorImpl *> weights;
    for (const Found &found : projections) weights.insert(found.weight.unsafeGetTensorImpl());
    linears.insert(linears.end(), projections.begin(), projections.end());
    hold(module, name, weights);
  } else {
    hold(module, name, {});
  }
  for (const auto &child : module.named_children())
    visit(*child.value(), joined(name, child.key()), child.value());
}

void Walk::hold(const Module &module, const std::string &name,
                const std::unordered_set<const c10::TensorImpl *> &except) {
  for (const auto &item : module.named_parameters(/*recurse=*/false))
    if (item.value().defined() && except.count(item.value().unsafeGetTensorImpl()) == 0)
      held_elsewhere.emplace(item.value().unsafeGetTensorImpl(), joined(name, item.key()));
}

namespace {

// Adds the model to the run and builds what Prepared holds. Changes nothing but the run.
class Placer {
 public:
  Placer(Prepared::Impl &impl, const Walk &walk, LeftOut &left_out)
      : impl_(impl), walk_(walk), left_out_(left_out) {}

  bool place() {
    for (const Found &found : walk_.linears) {
      check_ties(found);
      add(found);
    }
    if (impl_.run->has_optimizer() && !impl_.sites.empty()) {
      add_others();
    }
    impl_.run->seal();
    if (!stacks_are_whole()) return false;
    return true;
  }

 private:
  void keep(const Found &found, const std::string &reason) {
    impl_.layers.push_back({layer_of(found, false, reason), nullptr});
  }

  Layer layer_of(const Found &found, bool fp8, const std::string &reason) const {
    Layer layer;
    layer.name = found.name;
    layer.n = found.rows.has_value() ? found.rows->count : found.weight.size(0);
    layer.k = found.weight.size(1);
    layer.fp8 = fp8;
    layer.reason = reason;
    if (!fp8) return layer;
    layer.recipe = impl_.run->option("recipe");
    if (layer.recipe.empty()) layer.recipe = impl_.run->option("opt_level");
    return layer;
  }

  void add(const Found &found) {
    if (!impl_.run->has_backend())
      return keep(found, "mixed_precision is \"" + impl_.run->precision() + "\", not \"fp8\"");
    if (!found.weight.is_contiguous())
      return keep(found, "its weight is not contiguous; call contiguous() on it before");
    if (found.weight.numel() == 0) return keep(found, "its weight has no elements");
    const auto left_out = left_out_.find(found.weight.unsafeGetTensorImpl());
    if (left_out != left_out_.end()) return keep(found, left_out->second);
    const auto elsewhere = walk_.held_elsewhere.find(found.weight.unsafeGetTensorImpl());
    if (impl_.run->has_optimizer() && elsewhere != walk_.held_elsewhere.end())
      return keep(found, "its weight is also \"" + elsewhere->second +
                             "\", which needs plain values, and this backend keeps weights itself");
    if (Placed *tied = same_site(found)) return share(found, *tied);

    Run::Placement placement;
    Parameter *weight = weight_of(found, &placement);
    if (weight == nullptr) return keep(found, placement.reason);
    const uint32_t linear = impl_.run->add_linear(found.name, *weight, &placement);
    if (linear == OCTAVO_NONE) return keep(found, placement.reason);

    auto site = c10::make_intrusive<Site>();
    site->run = impl_.run;
    site->name = found.name;
    site->weight = weight;
    site->linear = linear;
    // The root of a module tree may live outside of any shared_ptr; it outlives the Prepared.
    if (found.owner.expired()) {
      site->is_training = [raw = found.raw] { return raw->is_training(); };
    } else {
      site->is_training = [owner = found.owner] {
        const std::shared_ptr<Module> module = owner.lock();
        return module == nullptr || module->is_training();
      };
    }
    impl_.sites.push_back(site);
    impl_.layers.push_back({layer_of(found, true, placement.reason), site});
    if (found.own_kind != nullptr) {
      impl_.places.push_back(std::make_shared<const Place>(Place{site, found.own_kind.get()}));
      impl_.placed_modules.emplace_back(found.own_kind, found.own_kind.get());
    }
  }

  // One tensor cannot be a weight of its own and a stack.
  void check_ties(const Found &found) const {
    for (const Parameter &p : impl_.run->parameters())
      if (p.tensor.is_same(found.weight) && p.is_piece != found.rows.has_value())
        throw Error(OCTAVO_UNSUPPORTED,
                    "linear \"" + found.name + "\": expected a separate weight, found that \"" +
                        p.name + "\" is the same tensor, divided otherwise; untie the two");
  }

  // The rows of a tensor live together: all of them in slots, or none.
  bool stacks_are_whole() {
    const size_t before = left_out_.size();
    const std::deque<Parameter> &all = impl_.run->parameters();
    for (const Parameter &p : all) {
      if (!p.is_piece || (!p.keeps_weight && !p.keeps_gradient)) continue;
      int64_t rows = 0;
      for (const Parameter &q : all)
        if (q.tensor.is_same(p.tensor) && q.keeps_weight == p.keeps_weight &&
            q.keeps_gradient == p.keeps_gradient)
          rows += q.rows;
      if (rows == p.whole_rows) continue;
      std::string others;
      for (const auto &placed : impl_.layers)
        if (placed.site == nullptr) others += (others.empty() ? "" : ", ") + placed.layer.name;
      left_out_.emplace(p.tensor.unsafeGetTensorImpl(),
                        "its weight also holds one that stays with torch (" + others +
                            "), and this backend keeps weights itself");
    }
    return left_out_.size() == before;
  }

  using Placed = Prepared::Impl::Placed;

  // A call of torch's own linear is recognized by its weight, so those with one weight are one
  // layer: its scales cover both. octavo::torch::Linear knows its place.
  Placed *same_site(const Found &found) {
    if (found.own_kind != nullptr) return nullptr;
    for (Placed &placed : impl_.layers)
      if (placed.site != nullptr && placed.site->weight->is(found.weight, found.rows))
        return &placed;
    return nullptr;
  }

  void share(const Found &found, const Placed &tied) {
    Layer layer = layer_of(found, true,
                           "one layer with \"" + tied.layer.name +
                               "\", whose weight it has; octavo::torch::Linear keeps them apart");
    impl_.layers.push_back({std::move(layer), tied.site});
  }

  // Tied weights are one parameter.
  Parameter *weight_of(const Found &found, Run::Placement *placement) {
    for (Parameter &p : impl_.run->parameters())
      if (p.is(found.weight, found.rows)) return &p;
    uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    if (!found.weight.requires_grad()) flags |= OCTAVO_PARAMETER_FROZEN;
    return impl_.run->add_parameter(found.weight_name, found.weight, found.rows, flags, placement);
  }

  // A backend that steps weights steps every parameter of the optimizer, to which a group with
  // others of the model may be added later.
  void add_others() {
    std::unordered_map<const c10::TensorImpl *, std::string> names;
    for (const auto &item : impl_.module->named_parameters())
      names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    std::unordered_set<const c10::TensorImpl *> added;
    for (const Parameter &p : impl_.run->parameters()) added.insert(p.tensor.unsafeGetTensorImpl());
    size_t foreign = 0;
    for (const auto &group : impl_.given->param_groups()) {
      for (const at::Tensor &t : group.params()) {
        if (!added.insert(t.unsafeGetTensorImpl()).second) continue;
        const auto named = names.find(t.unsafeGetTensorImpl());
        const std::string name = named != names.end()
                                     ? named->second
                                     : "optimizer.parameter" + std::to_string(foreign++);
        if (dtype_of(t.scalar_type()) == 0 || !t.is_contiguous())
          throw Error(OCTAVO_INVALID, "parameter \"" + name +
                                          "\": expected a contiguous tensor in f32, bf16 or f16, "
                                          "which this backend's Adam steps, found another");
        Run::Placement placement;
        if (impl_.run->add_parameter(name, t, std::nullopt,
                                     t.requires_grad() ? 0 : OCTAVO_PARAMETER_FROZEN,
                                     &placement) == nullptr)
          throw Error(OCTAVO_UNSUPPORTED, "parameter \"" + name +
                                              "\": expected one that this backend's Adam steps, "
                                              "found that it declines: " +
                                              placement.reason);
      }
    }
    for (const auto &item : impl_.module->named_parameters()) {
      const at::Tensor &t = item.value();
      if (!t.requires_grad() || dtype_of(t.scalar_type()) == 0 || !t.is_contiguous() ||
          !added.insert(t.unsafeGetTensorImpl()).second)
        continue;
      Run::Placement placement;
      impl_.run->add_parameter(item.key(), t, std::nullopt, 0, &placement);
    }
  }

  Prepared::Impl &impl_;
  const Walk &walk_;
  LeftOut &left_out_;
};

}  // namespace

bool place(Prepared::Impl &impl, const Walk &walk, LeftOut &left_out) {
  return Placer(impl, walk, left_out).place();
}

}  // namespace octavo::torch
