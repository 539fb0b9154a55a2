// The verbs of a training step, with tensors that fit and with those that do not.
#include "machine.h"

#include "octavo/fused.h"

namespace octavo::fuzz {
namespace {

constexpr uint32_t kFloats[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kOthers[] = {OCTAVO_I32, OCTAVO_E4M3FN, OCTAVO_U8, 0x0863u, 0};

uint32_t dtype_of(Script &script) {
  const uint8_t choice = script.byte();
  return choice < 240 ? kFloats[choice % 3] : kOthers[choice % std::size(kOthers)];
}

// What a call of one linear needs. Fields are null where the linear has no plan.
struct Layer {
  uint32_t linear = 0;
  Shape weight;
  const octavo_linear_plan *plan = nullptr;
  int64_t m = 0;
};

// A matrix of this shape, or of nearly this shape.
Matrix matrix(Script &script, int64_t rows, int64_t cols) {
  int64_t stride = 0;
  uint32_t dtype = dtype_of(script);
  switch (script.defect(6)) {
    case 1: ++rows; break;
    case 2: ++cols; break;
    case 3: cols = 0; break;
    case 4: rows = 0; break;
    case 5: rows = script.extent(); break;
    case 6: cols = script.extent(); break;
    default: stride = script.below(4) == 3 ? cols + 5 : 0; break;
  }
  return Matrix(rows, cols, dtype, stride);
}

// An argument that may be left out where it must not.
octavo_tensor *or_null(Script &script, Matrix &m) {
  return script.defect(1) != 0 && script.below(4) == 0 ? nullptr : &m.tensor;
}

Block block_of(const octavo_extent &e, int64_t m) {
  return Block(m > 0 && m < 4096 ? octavo_extent_bytes(&e, static_cast<uint64_t>(m)) : 0, 0x5A);
}

Layer any_layer(Script &script, const OpenRun &r) {
  Layer l;
  const uint32_t count = static_cast<uint32_t>(r.weights.size());
  l.linear = script.defect(1) != 0 || count == 0 ? script.id() : script.below(count);
  l.plan = octavo_run_plan(r.run, l.linear);
  const auto weight = r.weights.find(l.linear);
  if (weight != r.weights.end()) {
    const auto shape = r.shapes.find(weight->second);
    if (shape != r.shapes.end()) l.weight = shape->second;
  }
  static constexpr int64_t kRows[] = {1, 2, 3, 5, 16, 17, 32, 0};
  l.m = kRows[script.below(std::size(kRows))];
  return l;
}

// Whether a linear is described well enough that memory for its calls can be stated.
bool is_usable(const Layer &l) {
  if (l.plan == nullptr) return true;  // must be refused before anything is read
  return is_small(l.weight.rows, l.weight.cols) && l.weight.rows > 0;
}

}  // namespace

void Machine::quantize() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->run->scripted) return;
  const OpenRun &r = *s->run;
  const Layer l = any_layer(script_, r);
  const auto weight = r.weights.find(l.linear);
  octavo_weight_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_WEIGHT_CALL;
  c.parameter = weight == r.weights.end() || script_.defect(1) != 0 ? script_.id() : weight->second;
  uint64_t bytes = 0;
  for (const auto &[linear, parameter] : r.weights)
    if (const octavo_linear_plan *plan = octavo_run_plan(r.run, linear);
        plan != nullptr && parameter == c.parameter)
      bytes = std::max(bytes, plan->weight_workspace);
  const Block workspace(bytes);
  c.workspace = workspace.get();
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER,
                               c.parameter);
  judge(r, "quantize_weight",
        [&] { return octavo_run_backend(r.run)->quantize_weight(octavo_run_session(r.run), &c); });
}

void Machine::forward() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->run->scripted) return;
  const OpenRun &r = *s->run;
  const Layer l = any_layer(script_, r);
  if (!is_usable(l)) return;
  Matrix x = matrix(script_, l.m, l.weight.cols);
  Matrix y = matrix(script_, l.m, l.weight.rows);
  Matrix bias = matrix(script_, 1, l.weight.rows);
  const uint8_t flags = script_.byte();
  octavo_forward_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_FORWARD_CALL;
  c.linear = l.linear;
  c.flags = flags & 1 ? uint32_t{OCTAVO_FORWARD_EVALUATION} : 0;
  c.x = or_null(script_, x);
  c.y = or_null(script_, y);
  c.bias = flags & 2 ? &bias.tensor : nullptr;
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, l.linear);
  const octavo_linear_plan none{0, 0, 0, 0, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, 0};
  const octavo_linear_plan &plan = l.plan == nullptr ? none : *l.plan;
  const int64_t m = std::max(x.tensor.rows, y.tensor.rows);
  const Block saved = block_of(plan.saved, m);
  const Block workspace = block_of(plan.forward_workspace, m);
  c.saved = flags & 4 || c.flags != 0 ? nullptr : saved.get();
  c.workspace = workspace.get();
  judge(r, "linear_forward",
        [&] { return octavo_run_backend(r.run)->linear_forward(octavo_run_session(r.run), &c); });
}

void Machine::backward() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->run->scripted) return;
  const OpenRun &r = *s->run;
  const Layer l = any_layer(script_, r);
  if (!is_usable(l)) return;
  Matrix dy = matrix(script_, l.m, l.weight.rows);
  Matrix x = matrix(script_, l.m, l.weight.cols);
  Matrix dx = matrix(script_, l.m, l.weight.cols);
  Matrix dw = matrix(script_, l.weight.rows, l.weight.cols);
  Matrix db = matrix(script_, 1, l.weight.rows);
  const uint8_t wanted = script_.byte();
  octavo_backward_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_BACKWARD_CALL;
  c.linear = l.linear;
  c.flags = wanted & 3;
  c.dy = or_null(script_, dy);
  const octavo_linear_plan none{0, 0, 0, 0, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, 0};
  const octavo_linear_plan &plan = l.plan == nullptr ? none : *l.plan;
  const bool needs_x = (plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0;
  c.x = needs_x || wanted & 4 ? or_null(script_, x) : nullptr;
  c.dx = wanted & 8 ? nullptr : &dx.tensor;
  const bool takes_dw = plan.gradient == OCTAVO_GRADIENT_TENSOR;
  c.dw = takes_dw != (script_.defect(1) != 0) ? &dw.tensor : nullptr;
  c.db = wanted & 16 ? &db.tensor : nullptr;
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, l.linear);
  const int64_t m = std::max({dy.tensor.rows, c.x == nullptr ? 0 : x.tensor.rows, dx.tensor.rows});
  // Any bytes are codes, so what forward would have saved need not come from it.
  const Block saved = block_of(plan.saved, m);
  const Block workspace = block_of(plan.backward_workspace, m);
  c.saved = saved.get();
  c.workspace = workspace.get();
  judge(r, "linear_backward",
        [&] { return octavo_run_backend(r.run)->linear_backward(octavo_run_session(r.run), &c); });
}

void Machine::end_step() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->run->scripted) return;
  octavo_step_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_STEP_CALL;
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  judge(*s->run, "end_step", [&] {
    return octavo_run_backend(s->run->run)->end_step(octavo_run_session(s->run->run), &c);
  });
}

void Machine::fused() {
  OpenStore *s = ready_store();
  if (s == nullptr) return;
  const OpenRun &r = *s->run;
  const octavo_fused *fused =
      static_cast<const octavo_fused *>(octavo_run_interface(r.run, OCTAVO_STR(OCTAVO_FUSED_ID)));
  if (fused == nullptr) return;
  const Layer l = any_layer(script_, r);
  if (!is_usable(l)) return;
  octavo_extent extent{1, 0, 0};
  octavo_status status = OCTAVO_OK;
  judge(r, "fused workspace", [&] {
    status = fused->workspace(octavo_run_session(r.run), l.linear, &extent);
    // The answer to whether the linear can be fused, and no failure.
    return status == OCTAVO_UNSUPPORTED ? octavo_status{OCTAVO_OK} : status;
  });
  const uint32_t op = script_.below(7);
  Matrix in = matrix(script_, l.m, l.weight.cols * (op == OCTAVO_PROLOGUE_SWIGLU ? 2 : 1));
  Matrix gamma = matrix(script_, 1, l.weight.cols);
  Matrix beta = matrix(script_, 1, l.weight.cols);
  Matrix y = matrix(script_, l.m, l.weight.rows);
  const int64_t m = std::max(in.tensor.rows, y.tensor.rows);
  const uint8_t wanted = script_.byte();
  const uint64_t rows = m > 0 && m < 4096 ? static_cast<uint64_t>(m) * sizeof(float) : 0;
  const Block mean(rows);
  const Block rstd(rows);
  octavo_prologue p{};
  p.size = sizeof(p);
  p.kind = OCTAVO_KIND_PROLOGUE;
  p.op = op;
  p.eps = 1e-5f;
  p.in = &in.tensor;
  p.gamma = op == OCTAVO_PROLOGUE_LAYER_NORM || op == OCTAVO_PROLOGUE_RMS_NORM
                ? or_null(script_, gamma)
                : nullptr;
  p.beta = wanted & 1 ? &beta.tensor : nullptr;
  p.mean = wanted & 2 ? static_cast<float *>(mean.get()) : nullptr;
  p.rstd = wanted & 4 ? static_cast<float *>(rstd.get()) : nullptr;
  octavo_tensor x{nullptr, in.tensor.rows, l.weight.cols, l.weight.cols, dtype_of(script_), 0};
  octavo_forward_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_FORWARD_CALL;
  c.linear = l.linear;
  c.flags = wanted & 8 ? uint32_t{OCTAVO_FORWARD_EVALUATION} : 0;
  c.x = &x;
  c.y = or_null(script_, y);
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, l.linear);
  const Block saved = l.plan == nullptr ? Block() : block_of(l.plan->saved, m);
  const Block workspace = status == OCTAVO_OK ? block_of(extent, m) : Block();
  if (l.plan != nullptr && status != OCTAVO_OK) return;
  c.saved = c.flags != 0 || wanted & 16 ? nullptr : saved.get();
  c.workspace = workspace.get();
  octavo_fused_forward_call call{sizeof(call), OCTAVO_KIND_FUSED_FORWARD_CALL, &c, &p};
  judge(r, "fused linear_forward",
        [&] { return fused->linear_forward(octavo_run_session(r.run), &call); });
}

}  // namespace octavo::fuzz
