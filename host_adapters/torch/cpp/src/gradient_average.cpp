// Buckets, and when each of them begins. Autograd's report of a complete gradient comes
// from its accumulator, as in torch's own DistributedDataParallel; that of a weight whose gradient
// is in a slot is called, too, without a gradient.
#include "gradient_average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "octavo/torch/error.h"
#include "slot_gradient.h"

namespace octavo::torch {

struct GradientAverage::Item {
  at::Tensor tensor;
  std::vector<Parameter *> kept;  // those of its weights whose gradient is in a slot
  size_t bucket = 0;
  std::shared_ptr<::torch::autograd::Node> accumulator;
  uintptr_t hook = 0;
  int64_t expected = 0;  // gradients in a backward pass
  int64_t seen = 0;
  bool filled = false;  // only other processes have a gradient

  int64_t bytes() const { return 4 * tensor.numel(); }
};

class GradientAverage::Hook : public ::torch::autograd::FunctionPostHook {
 public:
  Hook(GradientAverage &owner, size_t item) : owner_(owner), item_(item) {}
  ::torch::autograd::variable_list operator()(
      const ::torch::autograd::variable_list &outputs,
      const ::torch::autograd::variable_list & /*inputs*/) override {
    owner_.produced(item_);
    return outputs;
  }

 private:
  GradientAverage &owner_;
  size_t item_;
};

namespace {

std::vector<at::Tensor> trained(Prepared::Impl &prepared) {
  std::vector<at::Tensor> tensors;
  for (const auto &group : prepared.optimizer().param_groups())
    for (const at::Tensor &t : group.params())
      if (t.requires_grad()) tensors.push_back(t);
  return tensors;
}

}  // namespace

GradientAverage::GradientAverage(Prepared::Impl &prepared, ProcessGroup &group,
                                 const Averaging &how)
    : prepared_(prepared), group_(group), how_(how) {}

GradientAverage::~GradientAverage() {
  unwatch();
}

bool GradientAverage::is_current() const {
  const std::vector<at::Tensor> tensors = trained(prepared_);
  if (tensors.size() != items_.size()) return false;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!items_[i]->tensor.is_same(tensors[i])) return false;
  return true;
}

void GradientAverage::watch() {
  unwatch();
  for (const at::Tensor &t : trained(prepared_)) {
    auto item = std::make_unique<Item>();
    item->tensor = t;
    for (Parameter *p : prepared_.run->parts_of(t))
      if (p->keeps_gradient) item->kept.push_back(p);
    item->accumulator = ::torch::autograd::impl::grad_accumulator(t);
    item->hook = item->accumulator->add_post_hook(std::make_unique<Hook>(*this, items_.size()));
    items_.push_back(std::move(item));
  }
  counted_ = false;
  cut();
}

void GradientAverage::unwatch() {
  for (const auto &item : items_) item->accumulator->del_post_hook(item->hook);
  items_.clear();
}

// Gradients come roughly in the reverse order of the parameters.
void GradientAverage::cut() {
  buckets_.clear();
  Bucket open[2];  // torch's own, and in slots
  open[1].in_slots = true;
  const auto close = [&](Bucket &bucket) {
    if (bucket.items.empty()) return;
    for (const size_t i : bucket.items) items_[i]->bucket = buckets_.size();
    buckets_.push_back(bucket);
    bucket.items.clear();
    bucket.bytes = 0;
  };
  for (size_t i = items_.size(); i-- > 0;) {
    const Item &item = *items_[i];
    Bucket &bucket = open[item.kept.empty() ? 0 : 1];
    const bool fits = bucket.items.empty() ||
                      (bucket.bytes + item.bytes() <= how_.bucket_bytes &&
                       (bucket.in_slots || items_[bucket.items.back()]->tensor.scalar_type() ==
                                               item.tensor.scalar_type()));
    if (!fits) close(bucket);
    bucket.items.push_back(i);
    bucket.bytes += item.bytes();
  }
  close(open[1]);
  close(open[0]);
}

void GradientAverage::begin() {
  abandon();
  if (!is_current()) watch();
  for (const auto &item : items_) {
    item->seen = 0;
    item->filled = false;
  }
  begun_ = 0;
  collecting_ = true;
}

void GradientAverage::produced(size_t index) {
  if (!collecting_) return;
  Item &item = *items_[index];
  ++item.seen;
  if (item.bucket < begun_)
    throw Error(OCTAVO_WRONG_STATE,
                "Accelerator: expected " + std::to_string(item.expected) +
                    " gradients of a parameter in a backward pass, as in the first one, found "
                    "more, after their average had begun; this model's use of its layers changes "
                    "from step to step: set Averaging::overlap = false");
  if (!how_.overlap || !counted_) return;
  while (begun_ < buckets_.size() && is_ready(buckets_[begun_])) begin_next();
}

bool GradientAverage::is_ready(const Bucket &bucket) const {
  for (const size_t i : bucket.items)
    if (items_[i]->expected == 0 || items_[i]->seen < items_[i]->expected) return false;
  return true;
}

void GradientAverage::begin_next() {
  const at::NoGradGuard no_grad;
  advance();
  const Bucket &bucket = buckets_[begun_++];
  std::vector<at::Tensor> gradients;
  std::vector<Parameter *> kept;
  for (const size_t i : bucket.items) {
    Item &item = *items_[i];
    fill(item);
    if (!bucket.in_slots) gradients.push_back(item.tensor.grad());
    kept.insert(kept.end(), item.kept.begin(), item.kept.end());
  }
  flights_.push_back(bucket.in_slots ? average_slots(*prepared_.run, kept, group_)
                                     : average_native(std::move(gradients), group_));
}

void GradientAverage::advance() {
  std::vector<std::unique_ptr<GradientFlight>> flying;
  for (auto &flight : flights_)
    if (flight->advance()) flying.push_back(std::move(flight));
  flights_ = std::move(flying);
}

// Zeros where this process has no gradient.
void GradientAverage::fill(Item &item) {
  if (item.kept.empty()) {
    at::Tensor &gradient = item.tensor.mutable_grad();
    item.filled = !gradient.defined();
    if (item.filled) gradient = at::zeros(item.tensor.sizes(), item.tensor.detach().options());
    return;
  }
  item.filled = true;
  for (Parameter *p : item.kept)  // with what clipping left on this process
    if (adds_to_slot_gradient(prepared_.run, *p)) item.filled = false;
  for (Parameter *p : item.kept) complete_slot_gradient(prepared_.run, *p);
}

void GradientAverage::finish() {
  const at::NoGradGuard no_grad;
  collecting_ = false;
  while (begun_ < buckets_.size()) begin_next();
  while (!flights_.empty()) advance();
  drop_unused();
  if (counted_) return;
  for (const auto &item : items_) item->expected = item->seen;
  counted_ = true;
}

void GradientAverage::abandon() {
  collecting_ = false;
  flights_.clear();
}

// What no process used has no gradient again, so that the optimizer leaves it alone.
void GradientAverage::drop_unused() {
  at::Tensor used = at::zeros({static_cast<int64_t>(items_.size())}, at::kFloat);
  auto *flags = used.mutable_data_ptr<float>();
  for (size_t i = 0; i < items_.size(); ++i) flags[i] = items_[i]->filled ? 0.0f : 1.0f;
  if (!items_.empty())
    group_.all_reduce(used, ProcessGroup::Combine::kMax, "all_reduce of which gradients are used");
  for (size_t i = 0; i < items_.size(); ++i) {
    if (flags[i] != 0.0f) continue;
    items_[i]->tensor.mutable_grad() = at::Tensor();
  }
}

void combine_slots(Run &run, ProcessGroup &group) {
  for (auto &[tensor, combine] : run.reduced_slots()) {
    at::Tensor slot = tensor;
    group.all_reduce(
        slot,
        combine == OCTAVO_COMBINE_MAX ? ProcessGroup::Combine::kMax : ProcessGroup::Combine::kSum,
        "all_reduce of scales");
  }
}

}  // namespace octavo::torch
