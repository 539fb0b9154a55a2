// Gradients in this program's own tensors are summed in fp32; those that the backend keeps in slots
// are reduced by its own stages (octavo/gradients.h), in buckets that every rank cuts alike.
#include "host_adapters/standalone/error.h"
#include "octavo_run.h"

namespace gpt {
namespace {

constexpr uint64_t kBucketElements = uint64_t{1} << 20;

class GradientReduction {
 public:
  GradientReduction(const std::vector<Parameter *> &parameters, OctavoRun &run) : run_(run) {
    uint64_t elements = 0;  // of the last bucket
    for (size_t i = parameters.size(); i-- > 0;) {
      Parameter *p = parameters[i];
      if (p->grad.size() > 0) {
        own_.push_back(p);
        continue;
      }
      if (in_slots_.empty() || elements + p->count() > kBucketElements) {
        in_slots_.emplace_back();
        elements = 0;
      }
      elements += p->count();
      void *const *slots = run.store()->list(OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, p->id);
      in_slots_.back().push_back({p->id, 0, slots, nullptr});
    }
    if (in_slots_.empty()) return;
    expect(run.gradients() != nullptr, "backend " + run.backend_id() + " with --ranks",
           "a backend that reduces the gradients it keeps",
           "gradient slots and no octavo.gradients/1", "use --ranks 1 with this backend");
    for (const Bucket &bucket : in_slots_) {
      std::vector<uint32_t> ids;
      for (const octavo_parameter_item &item : bucket) ids.push_back(item.parameter);
      uint64_t buffer = 0, state = 0;
      run.host().require(octavo_reduction_bytes(run.get(), ids.data(), ids.size(),
                                                run.communicator().world(), &buffer, &state),
                         "octavo_reduction_bytes");
      send_.grow(buffer);
      recv_.grow(buffer);
      state_.grow(state);
    }
  }

  void average() {
    const float share = 1.0f / static_cast<float>(run_.communicator().world());
    for (Parameter *p : own_) {
      run_.communicator().all_reduce_sum(p->grad.data(), p->count());
      for (size_t i = 0; i < p->count(); ++i) p->grad[i] *= share;
    }
    for (const Bucket &bucket : in_slots_) {
      run_.host().require(
          octavo_reduce_gradients(run_.get(), bucket.data(), bucket.size(), run_.collective(),
                                  send_.data(), recv_.data(), state_.data(), nullptr),
          "octavo_reduce_gradients");
    }
  }

 private:
  using Bucket = std::vector<octavo_parameter_item>;

  OctavoRun &run_;
  // The last of the model come first: in this order backward finishes them.
  std::vector<Parameter *> own_;
  std::vector<Bucket> in_slots_;  // few messages, with buffers that do not grow with the model
  octavo::DeviceBuffer send_{run_.memory()}, recv_{run_.memory()}, state_{run_.memory()};
};

}  // namespace

std::function<void()> make_gradient_average(const std::vector<Parameter *> &parameters,
                                            OctavoRun &run) {
  if (run.communicator().world() == 1) return [] {};
  const auto reduction = std::make_shared<GradientReduction>(parameters, run);
  return [reduction] { reduction->average(); };
}

}  // namespace gpt
