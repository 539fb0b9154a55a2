// What a step does with gradients that a backend keeps: their mean over ranks, and the optimizer of
// the backend. Hyperparameters, sums and the skip flag are where the backend's device reads them;
// prepare_step turns sums into the factor of the clipped gradient and the flag there.
#include "octavo_run.h"

#include <cmath>
#include <optional>
#include <utility>

namespace gpt {
namespace {

class BackendOptimizer : public Optimizer {
 public:
  BackendOptimizer(OctavoRun &run, std::vector<Parameter *> parameters)
      : run_(run),
        parameters_(std::move(parameters)),
        hyper_(run.memory(), 2 * OCTAVO_HYPER_COUNT),
        sums_(run.memory(), parameters_.size()),
        skip_(run.memory(), 1),
        prepare_(run) {
    const octavo::Store &store = *run.store();
    std::vector<uint32_t> stepped;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter &p = *parameters_[i];
      if (!run_.steps(p.id)) continue;
      stepped.push_back(p.id);
      norms_.emplace_back(run, store, std::vector<uint32_t>{p.id});
      run_.workspace().grow(norms_.back().workspace_bytes());
      norms_.back().hyper(hyper(p)).sum(sums_.twin.device() + i);
    }
    if (!stepped.empty()) {
      step_.emplace(run, store, stepped).skip(skip_.twin.device());
      size_t next = 0;
      for (const Parameter *p : parameters_)
        if (run_.steps(p->id)) step_->hyper(next++, hyper(*p));
      run_.workspace().grow(step_->workspace_bytes());
    }
    prepare_.sums(sums_.twin.device(), sums_.host.size()).nonfinite(run_.nonfinite());
    prepare_.skip(skip_.twin.device()).max_norm(static_cast<float>(options_.clip));
    prepare_.hyper({hyper_.twin.device(), hyper_.twin.device() + OCTAVO_HYPER_COUNT});
    for (Parameter *p : parameters_) {  // what the backend owns leaves the program
      if (run_.owns(p->id)) {
        if (run_.steps(p->id)) {
          octavo::write_parameter(run, store, p->id,
                                  run_.staging().in(p->value.data(), p->rows, p->cols));
        }
        run_.staging().finish();
        p->value.release();
      }
      if (run_.owns(p->id, OCTAVO_ROLE_GRADIENT)) p->grad.release();
    }
  }

  double gradient_norm() override {
    // One sum per parameter, added up in the order of the parameters: whichever rank took a sum,
    // the norm has the same bits, also those that one rank alone gets.
    for (const Parameter *p : parameters_) run_.upload(*p, OCTAVO_ROLE_GRADIENT);
    sums_.host.clear();
    sums_.twin.upload();
    for (octavo::SumOfSquares &norm : norms_) norm.workspace(run_.workspace().data())();
    sums_.twin.download();
    if (run_.sharded()) {
      run_.communicator().all_reduce_sum(sums_.host.data(), sums_.host.size());
      sums_.twin.upload();
    }
    double squares = 0.0;
    for (size_t i = 0; i < sums_.host.size(); ++i) squares += static_cast<double>(sums_.host[i]);
    return std::sqrt(squares);
  }

  void step(double rate, double /*norm*/, bool skip) override {
    for (const bool decays : {false, true}) {
      float *values = hyper_.host.data() + (decays ? OCTAVO_HYPER_COUNT : 0);
      values[OCTAVO_HYPER_LR] = static_cast<float>(rate);
      values[OCTAVO_HYPER_BETA1] = static_cast<float>(options_.beta1);
      values[OCTAVO_HYPER_BETA2] = static_cast<float>(options_.beta2);
      values[OCTAVO_HYPER_EPS] = static_cast<float>(options_.epsilon);
      values[OCTAVO_HYPER_WEIGHT_DECAY] = static_cast<float>(decays ? options_.decay : 0.0);
    }
    hyper_.twin.upload();
    prepare_();
    if (skip) {
      skip_.host[0] = 1.0f;
      skip_.twin.upload();
    }
    for (const Parameter *p : parameters_) run_.upload(*p, OCTAVO_ROLE_WEIGHT);
    if (step_) step_->workspace(run_.workspace().data())();
    start();
    for (const Parameter *p : parameters_) run_.download(*p, OCTAVO_ROLE_WEIGHT);
    run_.store()->clear(OCTAVO_ROLE_GRADIENT);
  }

  void start() override {
    if (run_.sharded()) run_.store()->publish(run_.collective());
  }

 private:
  float *hyper(const Parameter &p) {
    return hyper_.twin.device() + (p.decays ? OCTAVO_HYPER_COUNT : 0);
  }

  OctavoRun &run_;
  std::vector<Parameter *> parameters_;
  const AdamWOptions options_;
  octavo::TwinArray hyper_;  // of two groups: weights that do not decay, weights that do
  octavo::TwinArray sums_;   // squares of each parameter's gradient, 0 where another rank counts
  octavo::TwinArray skip_;
  std::vector<octavo::SumOfSquares> norms_;  // one a parameter that this rank steps
  octavo::PrepareStep prepare_;
  std::optional<octavo::OptimizerStep> step_;  // none: this rank steps nothing
};

// Gradients in this program's own tensors are summed in fp32; those that the backend keeps in slots
// are reduced by its own stages (octavo/draft/gradients.h), in buckets that every rank cuts alike.
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

std::unique_ptr<Optimizer> make_backend_optimizer(OctavoRun &run,
                                                  std::vector<Parameter *> parameters) {
  return std::make_unique<BackendOptimizer>(run, std::move(parameters));
}

std::function<void()> make_gradient_average(const std::vector<Parameter *> &parameters,
                                            OctavoRun &run) {
  if (run.communicator().world() == 1) return [] {};
  const auto reduction = std::make_shared<GradientReduction>(parameters, run);
  return [reduction] { reduction->average(); };
}

}  // namespace gpt
