// Buckets are cut once: few messages for many small tensors, and buffers that do not grow with the
// model.
#include "gradient_reduction.h"

#include <algorithm>

#include "error.h"

namespace gpt {
namespace {

constexpr uint64_t kBucketElements = uint64_t{1} << 20;

}  // namespace

GradientReduction::GradientReduction(const std::vector<Parameter *> &parameters, OctavoRun *run,
                                     const Communicator &communicator, const Threads &threads)
    : run_(run), communicator_(communicator), threads_(threads) {
  if (communicator.world() == 1) return;
  for (size_t i = parameters.size(); i-- > 0;) {
    Parameter *p = parameters[i];
    add(p->grad.size() > 0 ? own_ : in_slots_, p);
  }
  uint64_t floats = 0;
  for (const Bucket &bucket : own_) floats = std::max(floats, bucket.elements);
  own_sums_.reset(floats);
  if (!in_slots_.empty() && octavo_gradients_of(run_->handle()) == nullptr) {
    throw UserError("backend " + run_->backend() + " with --ranks",
                    "a backend that reduces the gradients it keeps",
                    "gradient slots and no octavo.gradients/1", "use --ranks 1 with this backend");
  }
  if (!in_slots_.empty()) messages_ = std::make_unique<Messages>(run_->device());
  for (Bucket &bucket : in_slots_) prepare(bucket);
}

void GradientReduction::add(std::vector<Bucket> &buckets, Parameter *p) {
  if (buckets.empty() || buckets.back().elements + p->count() > kBucketElements) {
    buckets.emplace_back();
  }
  buckets.back().parameters.push_back(p);
  buckets.back().elements += p->count();
}

void GradientReduction::prepare(Bucket &bucket) {
  std::vector<uint32_t> ids;
  for (const Parameter *p : bucket.parameters) {
    ids.push_back(p->id);
    bucket.items.push_back(
        {p->id, 0,
         octavo_store_list(run_->store(), OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, p->id),
         nullptr});
  }
  uint64_t buffer = 0;
  uint64_t state = 0;
  run_->check(octavo_reduction_bytes(run_->handle(), ids.data(), ids.size(), communicator_.world(),
                                     &buffer, &state),
              "octavo_reduction_bytes", bucket.parameters.front()->name);
  messages_->send.grow(buffer);
  messages_->recv.grow(buffer);
  messages_->state.grow(state);
}

void GradientReduction::average() {
  if (communicator_.world() == 1) return;
  for (const Bucket &bucket : own_) average_own(bucket);
  for (const Bucket &bucket : in_slots_) {
    run_->check(octavo_reduce_gradients(run_->handle(), bucket.items.data(), bucket.items.size(),
                                        run_->collective(), messages_->send.data(),
                                        messages_->recv.data(), messages_->state.data(), nullptr),
                "octavo_reduce_gradients", bucket.parameters.front()->name);
  }
}

void GradientReduction::average_own(const Bucket &bucket) {
  float *at = own_sums_.data();
  for (const Parameter *p : bucket.parameters) at = std::copy_n(p->grad.data(), p->count(), at);
  communicator_.all_reduce_sum(own_sums_.data(), bucket.elements);
  const float share = 1.0f / static_cast<float>(communicator_.world());
  const float *sum = own_sums_.data();
  for (Parameter *p : bucket.parameters) {
    float *grad = p->grad.data();
    threads_.for_ranges(static_cast<int64_t>(p->count()), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) grad[i] = sum[i] * share;
    });
    sum += p->count();
  }
}

}  // namespace gpt
