// The life of a linear layer in Octavo: add, seal, lend, build, then per step quantize, forward,
// backward.
//
// The backend owns no memory and remembers no pointer. The weight, x, y, the gradients, the saved
// bytes and the workspace all belong to the host, and their addresses go into every call. Where the
// run is on a GPU they are addresses there (octavo::Staging).
#include "fp8_linear.h"

#include <utility>

#include "host_adapters/standalone/error.h"
#include "octavo/kernels.h"

namespace gpt {

void attach(Model &model, OctavoRun &run, const Communicator &communicator) {
  std::vector<Fp8Linear *> placed;
  for (Linear *layer : model.linears()) {
    // 1. The weight, with its name and its shape, then the place where it is used. Configuration
    //    (layers.skip), shapes and the backend itself may decline; then the program keeps its own
    //    linear, which is no error.
    octavo::Added added = run.add(layer->weight(), OCTAVO_PARAMETER_LINEAR_WEIGHT);
    if (added) added = run.add_linear(layer->name(), added.id);
    std::string reason = added.verdict.text;
    if (!added.verdict.evidence.empty()) reason += " (" + added.verdict.evidence + ")";
    std::unique_ptr<Fp8Linear> place;
    if (added) place = std::make_unique<Fp8Linear>(*layer, run, added.id);
    if (added) placed.push_back(place.get());
    layer->place(std::move(place), run.backend_id(), reason);
  }
  const bool steps = run.optimizer() != nullptr;
  if (steps)
    expect(octavo::algorithm_of(run) == "adamw", "backend " + run.backend_id(),
           "a backend that steps by adamw, as this program does", octavo::algorithm_of(run),
           "choose another backend, or an option of this one");
  for (Parameter *p : model.parameters()) {
    if (!steps || p->id != OCTAVO_NONE) continue;
    if (const octavo::Added added = run.add(*p, 0); !added) {
      throw UserError("backend " + run.backend_id(),
                      "a backend whose optimizer takes every parameter of the model",
                      p->name + " declined: " + added.verdict.text, "choose another backend");
    }
  }
  run.seal(communicator);
  // 2. Native slots are the program's own tensors: Octavo's store allocates the others.
  for (Parameter *p : model.parameters()) {
    expect(steps || !(run.owns(p->id) || run.owns(p->id, OCTAVO_ROLE_GRADIENT)),
           "backend " + run.backend_id(), "a backend that steps what it owns",
           p->name + " in slots and no octavo.optimizer/2",
           "choose another backend: the AdamW of this program needs fp32 tensors");
    run.lend(*p);
  }
  for (Fp8Linear *linear : placed) linear->build(model.rows());
}

void Fp8Linear::build(int64_t max_rows) {
  // 3. Memory for calls with up to max_rows rows. A backend may compute the norm before the layer
  //    where it quantizes x, but need not.
  const uint32_t weight = layer_.weight().id;
  calls_.emplace(run_, *run_.store(), weight, id_, max_rows, &run_.workspace());
  needs_x_ = (run_.plan(id_).flags & OCTAVO_LINEAR_NEEDS_X) != 0;
  fuses_ = run_.fuses() && calls_->takes_prologue();

  // 4. Pointer lists, built once: building them does not belong into the hot path. Statistics of
  //    casts cost a pass over the tensor, so only the lists of sampled steps have their addresses.
  //    Evaluation must not leave its amax behind, either.
  using Record = OctavoRun::Record;
  for (const Record r : {Record::kAll, Record::kNoCastStatistics, Record::kNothing})
    lists_[r] = {run_.list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, weight, r),
                 run_.list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, id_, r),
                 run_.list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, id_, r)};
  // A gradient slot was cleared after the last step, and the backend adds to it. Each layer runs
  // once a step, so there is nothing to accumulate in this program's tensors.
  calls_->backward.overwrite(calls_->gives_dw());
}

void Fp8Linear::quantize_weight() {
  run_.upload(layer_.weight(), OCTAVO_ROLE_WEIGHT);
  calls_->quantize_weight.slots(lists_[run_.record()].weight.data());
  calls_->quantize_weight.workspace(run_.workspace().data())();
}

void Fp8Linear::forward(const float *x, int64_t rows, float *y, bool training) {
  call_forward(x, nullptr, rows, y, training);
  if (training) x_ = x;
}

void Fp8Linear::forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y,
                        bool training) {
  if (fuses_ && training) return call_forward(nullptr, &prologue, rows, y, training);
  // A backend may evaluate on plain operands, which need x.
  octavo_tensor out = run_.staging().out(x, rows, layer_.weight().cols);
  octavo::Prologue staged;
  run_.staging().stage(prologue, staged);
  auto apply = octavo::make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
  apply.prologue = &staged.call;
  apply.out = &out;
  const octavo_session_desc &desc = *octavo_run_session_desc(run_.get());
  run_.host().require(desc.kernels->prologue(desc.kernels_ctx, &apply), "prologue");
  run_.staging().finish();
  forward(x, rows, y, training);
}

void Fp8Linear::call_forward(const float *x, const octavo_prologue *prologue, int64_t rows,
                             float *y, bool training) {
  octavo::Staging &staging = run_.staging();
  const Parameter &w = layer_.weight();
  octavo::Forward &call = calls_->forward;
  call.x(staging.in(x, rows, w.cols)).y(staging.out(y, rows, w.rows));
  if (layer_.bias() != nullptr) call.bias(staging.in(layer_.bias()->value.data(), 1, w.rows));
  call.slots(lists_[training ? run_.record() : OctavoRun::Record::kNothing].forward.data());
  call.saved(training ? calls_->saved() : nullptr).evaluation(!training);
  octavo::Prologue staged;
  if (prologue != nullptr) staging.stage(*prologue, staged);
  call.prologue(prologue != nullptr ? &staged.call : nullptr).workspace(run_.workspace().data())();
  staging.finish();
}

void Fp8Linear::backward(const float *dy, int64_t rows, float *dx) {
  octavo::Staging &staging = run_.staging();
  Parameter &w = layer_.weight();
  const bool in_slot = !calls_->gives_dw();
  if (in_slot) {
    w.grad.clear();  // empty, unless the slot is native
    run_.upload(w, OCTAVO_ROLE_GRADIENT);
    if (layer_.bias() != nullptr) layer_.bias()->grad.clear();
  }
  octavo::Backward &call = calls_->backward;
  call.dy(staging.in(dy, rows, w.rows)).dx(staging.out(dx, rows, w.cols));
  if (needs_x_) call.x(staging.in(x_, rows, w.cols));
  if (!in_slot) call.dw(staging.out(w.grad.data(), w.rows, w.cols));
  if (layer_.bias() != nullptr) call.db(staging.in_out(layer_.bias()->grad.data(), 1, w.rows));
  call.slots(lists_[run_.record()].backward.data()).workspace(run_.workspace().data())();
  staging.finish();
  if (in_slot) run_.download(w, OCTAVO_ROLE_GRADIENT);
}

}  // namespace gpt
