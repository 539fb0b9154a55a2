// Hyperparameters, sums and the skip flag lie where the backend's device reads them, and
// prepare_step turns sums into the factor of the clipped gradient and the flag there.
#include "backend_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpt {

BackendOptimizer::BackendOptimizer(OctavoRun &run, std::vector<Parameter *> parameters,
                                   const AdamWOptions &options, const Communicator &communicator)
    : run_(run),
      parameters_(std::move(parameters)),
      options_(options),
      communicator_(communicator),
      hyper_(run.device(), 2 * OCTAVO_HYPER_COUNT),
      sums_(run.device(), parameters_.size()),
      skip_(run.device(), 1) {
  std::vector<uint32_t> owned;
  uint64_t bytes = 0;
  for (const Parameter *p : parameters_) {
    // Lists of one parameter cover reading and writing, too.
    run_.check(run_.optimizer()->workspace_bytes(run_.session(), &p->id, 1, &bytes),
               "workspace_bytes", p->name);
    run_.reserve_workspace(bytes);
    if (!run_.owns(p->id)) continue;
    owned.push_back(p->id);
    items_.push_back(item(*p));
  }
  run_.check(run_.optimizer()->workspace_bytes(run_.session(), owned.data(), owned.size(), &bytes),
             "workspace_bytes", run_.backend());
  run_.reserve_workspace(bytes);
  for (Parameter *p : parameters_) hand_over(*p);
}

octavo_parameter_item BackendOptimizer::item(const Parameter &p) {
  return {p.id, 0,
          octavo_store_list(run_.store(), OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, p.id),
          hyper_.twin.device() + (p.decays ? OCTAVO_HYPER_COUNT : 0)};
}

void BackendOptimizer::hand_over(Parameter &p) {
  auto kept = [&](uint32_t role) {
    const octavo_slot *slot = run_.slot_of(p.id, role);
    return slot == nullptr || (slot->flags & OCTAVO_SLOT_NATIVE) != 0;
  };
  if (!kept(OCTAVO_ROLE_WEIGHT)) {
    if (run_.owns(p.id)) move(p, true, p.value.data());
    p.value.release();
  }
  if (!kept(OCTAVO_ROLE_GRADIENT)) p.grad.release();
}

void BackendOptimizer::move(const Parameter &p, bool write, float *plain) {
  Staging &staging = run_.staging();
  octavo_tensor tensor =
      write ? staging.in_matrix(plain, p.rows, p.cols) : staging.out_matrix(plain, p.rows, p.cols);
  octavo_parameter_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_PARAMETER_CALL;
  call.parameter = p.id;
  call.role = OCTAVO_ROLE_WEIGHT;
  call.plain = &tensor;
  call.slots = item(p).slots;
  call.workspace = run_.workspace();
  const octavo_optimizer *table = run_.optimizer();
  run_.check(write ? table->write_parameter(run_.session(), &call)
                   : table->read_parameter(run_.session(), &call),
             write ? "write_parameter" : "read_parameter", p.name);
  staging.finish();
}

std::vector<float> BackendOptimizer::read_weight(const Parameter &p) {
  std::vector<float> plain(p.count());
  if (p.value.size() > 0) {
    std::copy_n(p.value.data(), p.count(), plain.data());
  } else {
    move(p, false, plain.data());
  }
  return plain;
}

double BackendOptimizer::gradient_norm() {
  // One sum per parameter, added up in the order of the parameters: whichever rank took a sum, the
  // norm has the same bits, also those that one rank alone gets.
  for (const Parameter *p : parameters_) run_.upload(*p, OCTAVO_ROLE_GRADIENT);
  sums_.host.clear();
  sums_.twin.upload();
  size_t next = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (next == items_.size() || items_[next].parameter != parameters_[i]->id) continue;
    octavo_norm_call call = {};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_NORM_CALL;
    call.items = &items_[next++];
    call.count = 1;
    call.sum = sums_.twin.device() + i;
    call.workspace = run_.workspace();
    run_.check(run_.optimizer()->sum_of_squares(run_.session(), &call), "sum_of_squares",
               parameters_[i]->name);
  }
  sums_.twin.download();
  if (run_.sharded()) {
    communicator_.all_reduce_sum(sums_.host.data(), sums_.host.size());
    sums_.twin.upload();
  }
  double squares = 0.0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    squares += static_cast<double>(sums_.host[i]);
  }
  return std::sqrt(squares);
}

void BackendOptimizer::prepare() {
  float *hyper[] = {hyper_.twin.device(), hyper_.twin.device() + OCTAVO_HYPER_COUNT};
  octavo_prepare_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_PREPARE_CALL;
  call.sum = sums_.twin.device();
  call.sum_count = sums_.host.size();
  call.nonfinite = run_.nonfinite();
  call.skip = skip_.twin.device();
  call.hyper = hyper;
  call.count = 2;
  call.factor = 1.0f;
  call.max_norm = static_cast<float>(options_.clip);
  run_.check(run_.optimizer()->prepare_step(run_.session(), &call), "prepare_step", run_.backend());
}

void BackendOptimizer::step(double rate, double /*norm*/, bool skip) {
  for (const bool decays : {false, true}) {
    float *hyper = hyper_.host.data() + (decays ? OCTAVO_HYPER_COUNT : 0);
    hyper[OCTAVO_HYPER_LR] = static_cast<float>(rate);
    hyper[OCTAVO_HYPER_BETA1] = static_cast<float>(options_.beta1);
    hyper[OCTAVO_HYPER_BETA2] = static_cast<float>(options_.beta2);
    hyper[OCTAVO_HYPER_EPS] = static_cast<float>(options_.epsilon);
    hyper[OCTAVO_HYPER_WEIGHT_DECAY] = static_cast<float>(decays ? options_.decay : 0.0);
  }
  hyper_.twin.upload();
  prepare();
  if (skip) {
    skip_.host[0] = 1.0f;
    skip_.twin.upload();
  }
  for (const Parameter *p : parameters_) run_.upload(*p, OCTAVO_ROLE_WEIGHT);
  if (!items_.empty()) {
    octavo_optimizer_call call = {};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_OPTIMIZER_CALL;
    call.items = items_.data();
    call.count = items_.size();
    call.skip = skip_.twin.device();
    call.workspace = run_.workspace();
    run_.check(run_.optimizer()->optimizer_step(run_.session(), &call), "optimizer_step",
               run_.backend());
  }
  publish();
  for (const Parameter *p : parameters_) run_.download(*p, OCTAVO_ROLE_WEIGHT);
  run_.check(octavo_store_clear(run_.store(), OCTAVO_ROLE_GRADIENT), "octavo_store_clear",
             run_.backend());
}

void BackendOptimizer::publish() {
  if (!run_.sharded()) return;
  run_.check(octavo_store_publish(run_.store(), run_.collective(), nullptr), "octavo_store_publish",
             run_.backend());
}

}  // namespace gpt
