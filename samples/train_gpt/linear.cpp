// The life of a linear layer in Octavo: add, seal, bind, then per step quantize, forward, backward.
//
// The backend owns no memory and remembers no pointer. The weight, x, y, the gradients, the saved
// bytes and the workspace all belong to the host, and their addresses go into every call. Where the
// run is on a GPU they are addresses there (device.h).
#include "linear.h"

#include <utility>

namespace gpt {
Linear::Linear(std::string name, int64_t inputs, int64_t outputs, bool with_bias,
               Precision precision, const Threads &threads)
    : name_(std::move(name)),
      weight_(name_ + ".weight", outputs, inputs, true),
      bias_(with_bias ? std::make_unique<Parameter>(name_ + ".bias", 1, outputs, false) : nullptr),
      own_(precision, threads),
      placement_(precision == Precision::kBf16 ? "host bf16" : "host fp32"),
      reason_("a run without FP8") {}

void Linear::add_to(OctavoRun &run) {
  // 1. The weight, with its name, its shape and the dtype that this host keeps it in.
  octavo_verdict verdict = run.add(weight_, OCTAVO_PARAMETER_LINEAR_WEIGHT);

  // 2. The place where the weight is used. Configuration (layers.skip), shapes and the backend
  //    itself may decline; then the host keeps its own linear, which is no error.
  if (verdict.decision != OCTAVO_DECLINE) {
    octavo_linear_desc linear = {};
    linear.size = sizeof linear;
    linear.kind = OCTAVO_KIND_LINEAR_DESC;
    linear.name = view(name_);
    linear.weight = weight_.id;
    verdict = empty_verdict();
    run.check(octavo_add_linear(run.handle(), &linear, &verdict, &linear_), "octavo_add_linear",
              name_);
  }
  const bool declined = verdict.decision == OCTAVO_DECLINE;
  if (declined) linear_ = OCTAVO_NONE;
  run_ = declined ? nullptr : &run;
  if (!declined) placement_ = run.backend();
  reason_ = text(verdict.text);
  if (verdict.evidence.size > 0) reason_ += " (" + text(verdict.evidence) + ")";
}

void Linear::bind_to(OctavoRun &run, int64_t max_rows) {
  if (run_ == nullptr) return;
  // 3. Native slots are the host's own tensors: Octavo's store allocates the others.
  run.lend(weight_);

  // 4. The plan says how many bytes the host provides for a call with M rows.
  const octavo_linear_plan *plan = octavo_get_plan(run.handle(), linear_);
  plan_flags_ = plan->flags;
  gradient_ = plan->gradient;
  const auto rows = static_cast<uint64_t>(max_rows);
  saved_ = std::make_unique<DeviceBuffer>(run.device());
  saved_->grow(octavo_extent_bytes(&plan->saved, rows));
  run.reserve_workspace(octavo_extent_bytes(&plan->forward_workspace, rows));
  run.reserve_workspace(octavo_extent_bytes(&plan->backward_workspace, rows));
  run.reserve_workspace(plan->weight_workspace);

  // Optional: a backend may compute what lies before the layer where it quantizes x.
  fused_ = run.fused();
  octavo_extent extent = {};
  if (fused_ == nullptr || !run.fuses()) return;
  const octavo_status status = fused_->workspace(run.session(), linear_, &extent);
  if (status == OCTAVO_UNSUPPORTED) return;  // it reads x in the host's precision
  run.check(status, "workspace of octavo.fused/1", name_);
  run.reserve_workspace(octavo_extent_bytes(&extent, rows));
  fuses_ = true;
}

void Linear::fetch_lists() {
  if (run_ == nullptr) return;
  // 5. Pointer lists, built once: building them does not belong into the hot path. Statistics of
  //    casts cost a pass over the tensor, so only the lists of sampled steps have their addresses.
  using Record = OctavoRun::Record;
  auto fetch = [this](Record record) {
    return Lists{
        run_->list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, weight_.id, record),
        run_->list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear_, record),
        run_->list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear_, record)};
  };
  sampled_ = fetch(Record::kAll);
  unsampled_ = fetch(Record::kNoCastStatistics);

  // 6. Evaluation must not leave its amax behind, either.
  evaluation_slots_ =
      run_->list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear_, Record::kNothing);
}

void Linear::quantize_weight() {
  if (run_ == nullptr) return;
  run_->upload(weight_, OCTAVO_ROLE_WEIGHT);
  octavo_weight_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_WEIGHT_CALL;
  call.parameter = weight_.id;
  call.slots = lists().weight.data();
  call.workspace = run_->workspace();
  run_->check(run_->table()->quantize_weight(run_->session(), &call), "quantize_weight",
              weight_.name);
}

void Linear::forward(const float *x, int64_t rows, float *y, bool training) {
  if (run_ == nullptr) {
    own_.forward(x, rows, weight_, bias_.get(), y);
    return;
  }
  call_forward(x, rows, nullptr, y, training);
  if (training) x_ = x;
}

void Linear::call_forward(const float *x, int64_t rows, const octavo_prologue *prologue, float *y,
                          bool training) {
  Staging &staging = run_->staging();
  const octavo_tensor x_tensor = staging.in_matrix(x, rows, weight_.cols);
  octavo_tensor y_tensor = staging.out_matrix(y, rows, weight_.rows);
  octavo_tensor bias = {};
  if (bias_ != nullptr) bias = staging.in_matrix(bias_->value.data(), 1, weight_.rows);

  octavo_forward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_FORWARD_CALL;
  call.linear = linear_;
  call.x = &x_tensor;
  call.y = &y_tensor;
  call.bias = bias_ != nullptr ? &bias : nullptr;
  call.flags = training ? 0 : OCTAVO_FORWARD_EVALUATION;
  call.slots = training ? lists().forward.data() : evaluation_slots_.data();
  call.saved = training ? saved_->data() : nullptr;
  call.workspace = run_->workspace();
  if (prologue == nullptr) {
    run_->check(run_->table()->linear_forward(run_->session(), &call), "linear_forward", name_);
    staging.finish();
    return;
  }
  Prologue staged;
  staging.stage(*prologue, staged);
  octavo_fused_forward_call fused = {};
  fused.size = sizeof fused;
  fused.kind = OCTAVO_KIND_FUSED_FORWARD_CALL;
  fused.forward = &call;
  fused.prologue = &staged.call;
  run_->check(fused_->linear_forward(run_->session(), &fused), "linear_forward of octavo.fused/1",
              name_);
  staging.finish();
}

void Linear::forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y,
                     bool training) {
  if (fuses_ && training) {
    call_forward(nullptr, rows, &prologue, y, training);
  } else {  // a backend may evaluate on plain operands, which need x
    Staging &staging = run_->staging();
    octavo_tensor out = staging.out_matrix(x, rows, weight_.cols);
    Prologue staged;
    staging.stage(prologue, staged);
    octavo_prologue_call apply = {};
    apply.size = sizeof apply;
    apply.kind = OCTAVO_KIND_PROLOGUE_CALL;
    apply.prologue = &staged.call;
    apply.out = &out;
    run_->check(fused_->apply(run_->session(), &apply), "apply of octavo.fused/1", name_);
    staging.finish();
    forward(x, rows, y, training);
  }
}

void Linear::backward(const float *dy, int64_t rows, float *dx) {
  if (fault_ != nullptr) dy = fault_->pass(dy, rows * weight_.rows);
  if (run_ == nullptr) {
    own_.backward(dy, rows, weight_, bias_.get(), dx);
    return;
  }
  // Each layer runs once a step, so there is nothing to accumulate in this program's tensors. A
  // gradient slot was cleared after the last step, and the backend adds to it.
  const bool in_slot = gradient_ == OCTAVO_GRADIENT_SLOT;
  if (in_slot) {
    weight_.grad.clear();  // empty, unless the slot is native
    run_->upload(weight_, OCTAVO_ROLE_GRADIENT);
    if (bias_ != nullptr) bias_->grad.clear();
  }
  const bool needs_x = (plan_flags_ & OCTAVO_LINEAR_NEEDS_X) != 0;
  const bool gives_dw = gradient_ == OCTAVO_GRADIENT_TENSOR;
  Staging &staging = run_->staging();
  const octavo_tensor dy_tensor = staging.in_matrix(dy, rows, weight_.rows);
  const octavo_tensor x_tensor = staging.in_matrix(needs_x ? x_ : nullptr, rows, weight_.cols);
  octavo_tensor dx_tensor = staging.out_matrix(dx, rows, weight_.cols);
  octavo_tensor dw =
      staging.out_matrix(gives_dw ? weight_.grad.data() : nullptr, weight_.rows, weight_.cols);
  octavo_tensor db = {};
  if (bias_ != nullptr) db = staging.in_out_matrix(bias_->grad.data(), 1, weight_.rows);

  octavo_backward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_BACKWARD_CALL;
  call.linear = linear_;
  call.flags = in_slot ? 0 : OCTAVO_BACKWARD_OVERWRITE;
  call.dy = &dy_tensor;
  call.x = needs_x ? &x_tensor : nullptr;
  call.dx = dx != nullptr ? &dx_tensor : nullptr;
  call.dw = gives_dw ? &dw : nullptr;
  call.db = bias_ != nullptr ? &db : nullptr;
  call.slots = lists().backward.data();
  call.saved = saved_->data();
  call.workspace = run_->workspace();
  run_->check(run_->table()->linear_backward(run_->session(), &call), "linear_backward", name_);
  staging.finish();
  if (in_slot) run_->download(weight_, OCTAVO_ROLE_GRADIENT);
}

}  // namespace gpt
