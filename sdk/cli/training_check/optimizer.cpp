// Both rules have the hyperparameters of samples/mlp_host.
#include "optimizer.h"

#include <cmath>

#include "sdk/verify/in_flight.h"

namespace octavo::training_check {
namespace {

constexpr float kAdamRate = 3e-3F, kBeta1 = 0.9F, kBeta2 = 0.99F, kEps = 1e-8F;
constexpr float kDescentRate = 0.02F, kMomentum = 0.9F;

// Without an access for it, the host steps the weights, whatever interfaces the backend has.
bool steps_weights(const octavo::Run &run) {
  for (const octavo_slot &slot : run.slots())
    if (slot.access[OCTAVO_VERB_OPTIMIZER_STEP] != OCTAVO_ACCESS_NONE) return true;
  return false;
}

}  // namespace

Optimizer::Optimizer(std::deque<Layer> &layers, Session *session, bool adam)
    : layers_(layers), session_(session), adam_(adam) {
  std::vector<uint32_t> parameters;
  const bool steps = session_ != nullptr && adam && steps_weights(session_->run);
  const auto add = [this](Floats &values, const Floats &gradient) {
    own_.push_back({&values, &gradient, Floats(values.size()), Floats(values.size())});
  };
  for (Layer &layer : layers_) {
    if (steps && layer.parameter() != OCTAVO_NONE)
      parameters.push_back(layer.parameter());
    else
      add(layer.weight, layer.gradient);
    add(layer.bias, layer.bias_gradient);
  }
  if (!parameters.empty()) backend_.emplace(*session_, parameters);
}

Optimizer::Backend::Backend(Session &session, const std::vector<uint32_t> &parameters)
    : hyper(session.memory, OCTAVO_HYPER_COUNT),
      sum(session.memory, 1),
      skip(session.memory, 1),
      norm(session.run, *session.store, parameters),
      prepare(session.run),
      run(session.run, *session.store, parameters),
      workspace(session.memory, run.workspace_bytes()) {
  norm.sum(sum.twin.device()).workspace(workspace.data());
  prepare.sums(sum.twin.device(), 1).skip(skip.twin.device()).hyper({hyper.twin.device()});
  prepare.nonfinite(session.store->nonfinite(session.run));
  run.hyper(hyper.twin.device()).skip(skip.twin.device()).workspace(workspace.data());
  hyper.host[OCTAVO_HYPER_BETA1] = kBeta1, hyper.host[OCTAVO_HYPER_BETA2] = kBeta2;
  hyper.host[OCTAVO_HYPER_EPS] = kEps;
}

void Optimizer::Backend::step(Session &session, float rate) {
  hyper.host[OCTAVO_HYPER_LR] = kAdamRate * rate;
  hyper.twin.upload();
  sum.host.clear();
  sum.twin.upload();
  conformance::calling("sum_of_squares");
  norm();
  conformance::calling("prepare_step");
  if (const octavo_status status = prepare.run(); status == OCTAVO_UNSUPPORTED) {
    hyper.host[OCTAVO_HYPER_GRAD_SCALE] = 1;  // the host derives these two itself
    hyper.twin.upload();
    skip.host[0] = session.nonfinite() ? 1 : 0;
    skip.twin.upload();
  } else {
    session.host.require(status, "prepare_step");
  }
  conformance::calling("optimizer_step");
  run();
  session.store->clear(OCTAVO_ROLE_GRADIENT);
}

void Optimizer::step(Own &own, float rate) const {
  const float unbias1 = 1 - std::pow(kBeta1, static_cast<float>(steps_)),
              unbias2 = 1 - std::pow(kBeta2, static_cast<float>(steps_));
  for (size_t i = 0; i < own.values->size(); ++i) {
    const float g = (*own.gradient)[i];
    float &m = own.first[i], &v = own.second[i], &w = (*own.values)[i];
    if (adam_) {
      m = kBeta1 * m + (1 - kBeta1) * g;
      v = kBeta2 * v + (1 - kBeta2) * g * g;
      w -= rate * kAdamRate * (m / unbias1) / (std::sqrt(v / unbias2) + kEps);
    } else {
      m = kMomentum * m + g;
      w -= rate * kDescentRate * m;
    }
  }
}

bool Optimizer::step(float rate) {
  const bool skips = session_ != nullptr && session_->nonfinite();
  if (backend_) {  // it looks at the flag itself
    for (Layer &layer : layers_) layer.upload_for_step();
    backend_->step(*session_, rate);
    for (Layer &layer : layers_) layer.download();
  }
  if (!skips) ++steps_;
  for (Own &own : own_) {
    if (!skips) step(own, rate);
  }
  if (session_ != nullptr) {
    conformance::calling("end_step");
    session_->end_step();
  }
  return !skips;
}

}  // namespace octavo::training_check
