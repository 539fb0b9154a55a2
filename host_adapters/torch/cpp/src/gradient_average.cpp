// Buckets, and when each of them begins. Autograd's report of a complete gradient comes
// from its accumulator, as in torch's own DistributedDataParallel; that of a weight whose gradient
// is in a slot is called, too, without a gradient.
#include "gradient_average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "host_adapters/torch/core/arguments.h"
#include "host_adapters/torch/core/reduction.h"
#include "in_slots.h"
#include "octavo/torch/error.h"

namespace octavo::torch {

// The average of one bucket of gradients, with a collective under way between two of its steps. Its
// first collective is begun when it is made.
class GradientFlight {
 public:
  virtual ~GradientFlight() = default;
  // Waits for the collective and begins the next one. False: there is none, the average is in its
  // place. Every rank calls it for the same flight in the same order.
  virtual bool advance() = 0;
};

namespace {

constexpr const char *kWhat = "exchange of gradients";

// The mean of torch's own gradients, of one dtype, as one all-reduce.
class NativeFlight : public GradientFlight {
 public:
  NativeFlight(std::vector<at::Tensor> gradients, ProcessGroup &group)
      : gradients_(std::move(gradients)), world_(group.world()) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor &g : gradients_) flat.push_back(g.reshape({-1}));
    sum_ = at::cat(flat);
    wait_ = group.start(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, sum_, sum_, kWhat);
  }

  bool advance() override {
    wait_();
    sum_.div_(world_);
    int64_t first = 0;
    for (at::Tensor &g : gradients_) {
      g.copy_(sum_.narrow(0, first, g.numel()).view(g.sizes()));
      first += g.numel();
    }
    return false;
  }

 private:
  std::vector<at::Tensor> gradients_;
  int64_t world_;
  at::Tensor sum_;
  ProcessGroup::Wait wait_;
};

// Of gradients in slots, by the backend's stages of octavo.gradients/1.
class SlotFlight : public GradientFlight {
 public:
  SlotFlight(Run &run, const std::vector<Parameter *> &parameters, ProcessGroup &group)
      : run_(run), group_(group) {
    for (const Parameter *p : parameters) parameters_.push_back(p->id);
    const std::vector<uint32_t> ids(parameters_.begin(), parameters_.end());
    core::check(core::plan_reduction(run.entry(), ids.data(), ids.size(),
                                     static_cast<uint32_t>(group.world()), &plan_),
                "plan_reduction", run.entry(), OCTAVO_OWNER_PARAMETER, ids.front());
    send_ = bytes(plan_.buffer_bytes);
    recv_ = bytes(plan_.buffer_bytes);
    state_ = bytes(plan_.state_bytes);
    advance();
  }

  bool advance() override {
    if (wait_) wait_();
    wait_ = nullptr;
    if (next_ == plan_.stages.size()) return false;
    core::run_stage(run_.entry(), parameters_, static_cast<int64_t>(next_), group_.world(),
                    handle_of(recv_), handle_of(send_), handle_of(state_));
    const octavo_gradient_stage &stage = plan_.stages[next_++];
    if (stage.collective == OCTAVO_COLLECTIVE_NONE) return true;
    wait_ = group_.start(stage.collective, part(send_, stage.dtype, stage.send_count),
                         part(recv_, stage.dtype, stage.recv_count), kWhat);
    return true;
  }

 private:
  at::Tensor bytes(uint64_t count) const {
    return at::empty({static_cast<int64_t>(count)},
                     at::TensorOptions(at::kByte).device(run_.device()));
  }

  // The first elements of a buffer, in what gloo takes: FP8 codes cross as bytes.
  static at::Tensor part(const at::Tensor &buffer, uint32_t dtype, uint64_t count) {
    const at::ScalarType type = scalar_type_of(dtype);
    const auto bytes = static_cast<int64_t>(count * (OCTAVO_DTYPE_BITS(dtype) / 8));
    const at::Tensor view = buffer.narrow(0, 0, bytes);
    return OCTAVO_DTYPE_BITS(dtype) == 8 ? view : view.view(type);
  }

  Run &run_;
  ProcessGroup &group_;
  std::vector<int64_t> parameters_;
  core::Reduction plan_;
  at::Tensor send_;
  at::Tensor recv_;
  at::Tensor state_;
  size_t next_ = 0;
  ProcessGroup::Wait wait_;
};

}  // namespace

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
                    "more, after their average had started; this model's use of its layers changes "
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
  if (bucket.in_slots)
    flights_.push_back(std::make_unique<SlotFlight>(*prepared_.run, kept, group_));
  else
    flights_.push_back(std::make_unique<NativeFlight>(std::move(gradients), group_));
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
    group_.all_reduce(used, OCTAVO_COLLECTIVE_ALL_REDUCE_MAX,
                      "all_reduce of the flags of used gradients");
  for (size_t i = 0; i < items_.size(); ++i) {
    if (flags[i] != 0.0f) continue;
    items_[i]->tensor.mutable_grad() = at::Tensor();
  }
}

void combine_slots(Run &run, ProcessGroup &group) {
  for (auto &[tensor, combine] : run.reduced_slots()) {
    at::Tensor slot = tensor;
    group.all_reduce(slot,
                     combine == OCTAVO_COMBINE_MAX ? OCTAVO_COLLECTIVE_ALL_REDUCE_MAX
                                                   : OCTAVO_COLLECTIVE_ALL_REDUCE_SUM,
                     "all_reduce of scales");
  }
}

}  // namespace octavo::torch
