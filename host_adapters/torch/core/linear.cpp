// Fills the calls of a linear: linear_forward, the same of octavo.fused/1, and linear_backward.
#include "linear.h"

#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/util/shim_utils.h>

#include "arguments.h"
#include "nonfinite.h"

namespace octavo::core {
namespace {

// The flags of the contract, without the core's own.
uint32_t flags_of(int64_t flags) {
  return static_cast<uint32_t>(flags & 0xFF);
}

// A forward of one linear. Its operands are checked before anything changes: a refused call ends no
// step and quantizes nothing.
struct ForwardCall {
  const Entry &e;
  const List &list;
  const LinearShape &shape;
  const octavo_linear_plan &plan;
  Pointers pointers;
  std::optional<WeightMatrix> matrix_of_weight;
  octavo_forward_call call;

  ForwardCall(const Entry &entry, const ForwardInput &in)
      : e(entry),
        list(list_of(e, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, in.linear)),
        shape(e.shapes[static_cast<size_t>(in.linear)]),
        plan(e.plans[static_cast<size_t>(in.linear)]),
        pointers(e, list, (in.flags & kQuiet) == 0),
        call(call_of<octavo_forward_call>(e, OCTAVO_KIND_FORWARD_CALL, Uses::kReads)) {
    call.linear = static_cast<uint32_t>(in.linear);
    call.flags = flags_of(in.flags);
    call.slots = pointers.data();
    if (in.version != Coupling::kPacked)
      matrix_of_weight.emplace(e, shape.parameter, list, in.weight,
                               in.version == Coupling::kGathered, &pointers);
    else if ((in.flags & OCTAVO_FORWARD_EVALUATION) && list.native(OCTAVO_ROLE_WEIGHT) != nullptr)
      raise(
          OCTAVO_UNSUPPORTED,
          e.name(OCTAVO_OWNER_PARAMETER, shape.parameter) +
              ": expected an evaluation that reads codes, found one in the host's precision, which "
              "reads the weight itself, and only its codes were gathered; set "
              "fp8.te.use_autocast_during_eval = true, or octavo.prepare(fsdp_gather=\"values\")");
  }

  // The codes become those of the weight as it is now.
  void settle(const ForwardInput &in) const {
    e.coupling.settle(e, shape, in.weight, in.version,
                      {(in.flags & kQuiet) == 0, (in.flags & OCTAVO_FORWARD_EVALUATION) != 0,
                       (in.flags & kAsked) != 0});
  }

  Owned make_saved(int64_t rows, int64_t flags) const {
    if (flags & (kNoBackward | OCTAVO_FORWARD_EVALUATION)) return {};
    return empty_bytes(e, octavo_extent_bytes(&plan.saved, static_cast<uint64_t>(rows)));
  }

  void take(const octavo_tensor *x, octavo_tensor *y, const octavo_tensor *bias, View saved,
            void *workspace) {
    call.x = x;
    call.y = y;
    call.bias = bias;
    call.saved = saved ? saved.mutable_data() : nullptr;
    call.workspace = workspace;
  }

  void ran() const {
    e.calls[OCTAVO_VERB_FORWARD].fetch_add(1, std::memory_order_relaxed);
    e.forwards[call.linear].fetch_add(1, std::memory_order_relaxed);
  }
};

// A dense row of `cols` operands, or none.
octavo_tensor optional_row(const Entry &e, View t, int64_t cols, const char *name, int64_t linear) {
  if (!t) return {};
  check_operand(e, t, cols, name, linear);
  check_dense(e, t, name);
  return row(t);
}

octavo_prologue make_prologue(const PrologueInput &given, const octavo_tensor *in,
                              const octavo_tensor *gamma, const octavo_tensor *beta, View mean,
                              View rstd) {
  const auto floats = [](View t) { return t ? static_cast<float *>(t.mutable_data()) : nullptr; };
  auto p = make<octavo_prologue>(OCTAVO_KIND_PROLOGUE);
  p.op = static_cast<uint32_t>(given.op);
  p.eps = static_cast<float>(given.eps);
  p.in = in;
  p.gamma = given.gamma ? gamma : nullptr;
  p.beta = given.beta ? beta : nullptr;
  p.mean = floats(mean);
  p.rstd = floats(rstd);
  return p;
}

void check_saved(const Entry &e, View saved, const octavo_linear_plan &plan, uint64_t rows,
                 int64_t linear) {
  check_dense(e, saved, "saved");
  const auto expected = static_cast<int64_t>(octavo_extent_bytes(&plan.saved, rows));
  if (saved.numel() == expected) return;
  raise(OCTAVO_INVALID, e.name(OCTAVO_OWNER_LINEAR, linear) + ": saved: expected " +
                            std::to_string(expected) + " bytes, found " +
                            std::to_string(saved.numel()));
}

// With a gradient slot the backend adds, also to db, which starts here.
Owned make_db(const Entry &e, const LinearShape &shape, const BackwardInput &in) {
  Owned db = empty(e, {shape.n}, in.db_dtype != 0 ? in.db_dtype : shape.gradient_dtype);
  if (!(in.flags & OCTAVO_BACKWARD_OVERWRITE))
    TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(db.handle()));
  return db;
}

}  // namespace

Forwarded linear_forward(const Entry &e, const ForwardInput &in, View x) {
  ForwardCall f(e, in);
  check_taken(e, x, f.shape.k, "x", in.linear);
  const Dense x_dense(x);
  const octavo_tensor xm = matrix(x_dense.view(), f.shape.k);
  const Bias bias(e, in.bias, f.shape.n, x.dtype(), in.linear);
  f.settle(in);
  Owned y = empty_with_last(e, x, f.shape.n);
  octavo_tensor ym = matrix(y, f.shape.n);
  Owned saved = f.make_saved(xm.rows, in.flags);
  Workspace workspace(
      e, octavo_extent_bytes(&f.plan.forward_workspace, static_cast<uint64_t>(xm.rows)));
  f.take(&xm, &ym, bias.get(), saved, workspace.data());
  check(e.backend->linear_forward(e.session, &f.call), "linear_forward", e, OCTAVO_OWNER_LINEAR,
        in.linear);
  f.ran();
  if (!(in.flags & kQuiet))
    show_nonfinite(e, xm, in.weight, e.transposed[f.shape.parameter] != 0, &ym);
  return {std::move(y), std::move(saved)};
}

Fused fused_forward(const Entry &e, const ForwardInput &in, const PrologueInput &prologue, View x) {
  ForwardCall f(e, in);
  const octavo_extent &extent = e.fused_workspace[static_cast<size_t>(in.linear)];
  if (extent.row_multiple == 0)
    raise(OCTAVO_UNSUPPORTED,
          e.name(OCTAVO_OWNER_LINEAR, in.linear) + ": the backend does not fuse this layer");
  const int64_t in_cols = prologue.op == OCTAVO_PROLOGUE_SWIGLU ? 2 * f.shape.k : f.shape.k;
  check_taken(e, x, in_cols, "x", in.linear);
  const Dense x_dense(x);
  const octavo_tensor xm = matrix(x_dense.view(), in_cols);
  const octavo_tensor gm = optional_row(e, prologue.gamma, f.shape.k, "gamma", in.linear);
  const octavo_tensor bm = optional_row(e, prologue.beta, f.shape.k, "beta", in.linear);
  const Bias bias(e, in.bias, f.shape.n, x.dtype(), in.linear);
  f.settle(in);

  const bool is_layer_norm = prologue.op == OCTAVO_PROLOGUE_LAYER_NORM;
  const bool is_norm = is_layer_norm || prologue.op == OCTAVO_PROLOGUE_RMS_NORM;
  Fused out;
  if (is_layer_norm) out.mean = empty(e, {xm.rows}, OCTAVO_F32);
  if (is_norm) out.rstd = empty(e, {xm.rows}, OCTAVO_F32);
  const octavo_prologue p = make_prologue(prologue, &xm, &gm, &bm, out.mean, out.rstd);

  out.y = empty_with_last(e, x, f.shape.n);
  octavo_tensor ym = matrix(out.y, f.shape.n);
  octavo_tensor shape_of_x = xm;  // a shape and a dtype, no data
  shape_of_x.data = nullptr;
  shape_of_x.cols = shape_of_x.stride = f.shape.k;
  out.saved = f.make_saved(xm.rows, in.flags);
  Workspace workspace(e, octavo_extent_bytes(&extent, static_cast<uint64_t>(xm.rows)));
  f.take(&shape_of_x, &ym, bias.get(), out.saved, workspace.data());
  auto call = make<octavo_fused_forward_call>(OCTAVO_KIND_FUSED_FORWARD_CALL);
  call.forward = &f.call;
  call.prologue = &p;
  check(e.fused->linear_forward(e.session, &call), "linear_forward (octavo.fused/1)", e,
        OCTAVO_OWNER_LINEAR, in.linear);
  f.ran();
  return out;
}

Gradients linear_backward(const Entry &e, const BackwardInput &in, View dy) {
  const List &list = list_of(e, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, in.linear);
  const LinearShape &shape = e.shapes[static_cast<size_t>(in.linear)];
  const octavo_linear_plan &plan = e.plans[static_cast<size_t>(in.linear)];
  Pointers pointers(e, list, true);
  const bool is_gathered = (in.flags & kWeightGathered) != 0 && in.weight;
  const bool is_packed = (in.flags & kWeightPacked) != 0;
  std::optional<WeightMatrix> weight_matrix;
  if (!is_packed)
    weight_matrix.emplace(e, shape.parameter, list, in.weight, is_gathered, &pointers);
  check_taken(e, dy, shape.n, "dy", in.linear);
  const Dense dy_dense(dy);
  const octavo_tensor dym = matrix(dy_dense.view(), shape.n);
  const auto rows = static_cast<uint64_t>(dym.rows);
  check_saved(e, in.saved, plan, rows, in.linear);
  std::optional<Dense> x_dense;
  octavo_tensor xm = {}, dxm = {}, dwm = {}, dbm = {};
  if (plan.flags & OCTAVO_LINEAR_NEEDS_X) {
    if (!in.x)
      raise(OCTAVO_INVALID,
            e.name(OCTAVO_OWNER_LINEAR, in.linear) + ": x: expected a tensor, found none");
    check_operand(e, in.x, shape.k, "x", in.linear);
    x_dense.emplace(in.x);
    xm = matrix(x_dense->view(), shape.k);
  }

  if (is_gathered || is_packed)
    e.coupling.settle_gathered(e, shape.parameter, is_packed ? View() : in.weight);
  else if (in.weight && (in.wanted & kDx))
    e.coupling.settle_backward(e, shape.parameter, in.weight);
  Gradients out;
  if (in.wanted & kDx) {
    out.dx = empty_with_last(e, dy, shape.k);
    dxm = matrix(out.dx, shape.k);
  }
  if ((in.wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_TENSOR) {
    out.dw = empty(e, {shape.n, shape.k}, is_gathered ? in.weight.dtype() : shape.gradient_dtype);
    dwm = matrix(out.dw, shape.k);
  }
  if (in.wanted & kDb) {
    out.db = make_db(e, shape, in);
    dbm = row(out.db);
  }

  Workspace workspace(e, octavo_extent_bytes(&plan.backward_workspace, rows));
  auto call = call_of<octavo_backward_call>(
      e, OCTAVO_KIND_BACKWARD_CALL,
      plan.gradient == OCTAVO_GRADIENT_SLOT && (in.wanted & kDw) ? Uses::kWrites : Uses::kReads);
  call.linear = static_cast<uint32_t>(in.linear);
  call.flags = flags_of(in.flags);
  if (!(in.wanted & kDw)) call.flags |= OCTAVO_BACKWARD_SKIP_WEIGHT;
  call.dy = &dym;
  call.x = x_dense ? &xm : nullptr;
  call.dx = out.dx ? &dxm : nullptr;
  call.dw = out.dw ? &dwm : nullptr;
  call.db = out.db ? &dbm : nullptr;
  call.slots = pointers.data();
  call.saved = in.saved.data();
  call.workspace = workspace.data();
  check(e.backend->linear_backward(e.session, &call), "linear_backward", e, OCTAVO_OWNER_LINEAR,
        in.linear);
  e.calls[OCTAVO_VERB_BACKWARD].fetch_add(1, std::memory_order_relaxed);
  e.coupling.ran_backward(dym.dtype);
  if (plan.gradient != OCTAVO_GRADIENT_SLOT || !(in.wanted & kDw)) show_nonfinite(e, out);
  if ((in.flags & kFromCompiledGraph) && (in.wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_SLOT)
    e.coupling.added_to_gradient(e, shape.parameter);
  return out;
}

}  // namespace octavo::core
