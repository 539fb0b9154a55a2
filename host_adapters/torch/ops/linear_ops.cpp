// Forward and backward of linear layers. A compiler may call them again, earlier, or not at all:
// what a forward records is a maximum, and what a backward adds to is an argument.
//
// These run at each layer, so they are boxed by hand: an argument costs what torch's interface
// costs.
#include "forward_call.h"

namespace octavo::ops {
namespace {

enum Wanted : int64_t { kDx = 1, kDw = 2, kDb = 4 };

// flags of backward: OCTAVO_BACKWARD_... in bits 0 to 7, bit 8: part of a compiled graph, in which
// no code of the host can note that a gradient slot was added to.
constexpr int64_t kOfGraph = 256;

// (int run, int linear, int flags, int version, Tensor x, Tensor? weight, Tensor? bias) ->
// (Tensor y, Tensor saved). version: Coupling::settle's.
void linear_forward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2);
  const View x = stack.tensor(4), weight = stack.optional_tensor(5),
             bias = stack.optional_tensor(6);

  const auto e = find(stack.integer(0));
  ForwardCall f(*e, linear, flags, weight, stack.integer(3));
  check_operand(*e, x, f.shape.k, "x", linear);
  const Dense x_dense(x);
  const octavo_tensor xm = matrix(x_dense.view(), f.shape.k);
  const octavo_tensor bm = optional_row(*e, bias, f.shape.n, "bias", linear);
  Owned y = empty_with_last(*e, x, f.shape.n);
  octavo_tensor ym = matrix(y, f.shape.n);
  Owned saved = make_saved(*e, f.plan, xm.rows, flags);
  Workspace workspace(
      *e, octavo_extent_bytes(&f.plan.forward_workspace, static_cast<uint64_t>(xm.rows)));
  f.take(&xm, &ym, bias ? &bm : nullptr, saved, workspace.data());
  check(e->backend->linear_forward(e->session, &f.call), "linear_forward", *e, OCTAVO_OWNER_LINEAR,
        linear);
  f.ran(*e);
  stack.give(0, std::move(y));
  stack.give(1, std::move(saved));
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
Owned make_db(const Entry &e, const LinearShape &shape, int64_t flags) {
  Owned db = empty(e, {shape.n}, shape.gradient_dtype);
  if (!(flags & OCTAVO_BACKWARD_OVERWRITE)) TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(db.handle()));
  return db;
}

// (int run, int linear, int flags, int wanted, Tensor dy, Tensor? x, Tensor saved, Tensor? weight,
// Tensor(a!)? token) -> (Tensor dx, Tensor dw, Tensor db). token: stands for the gradient slot in a
// graph, whose compiler would drop a call that writes to nothing, and would copy the slot itself.
void linear_backward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2), wanted = stack.integer(3);
  const View dy = stack.tensor(4), x = stack.optional_tensor(5), saved = stack.tensor(6),
             weight = stack.optional_tensor(7);
  stack.optional_tensor(8);

  const auto e = find(stack.integer(0));
  const List &list = list_of(*e, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear);
  const LinearShape &shape = e->shapes[static_cast<size_t>(linear)];
  const octavo_linear_plan &plan = e->plans[static_cast<size_t>(linear)];
  Pointers pointers(list, true);
  const WeightMatrix weight_matrix(*e, shape.parameter, list, weight, &pointers);
  check_operand(*e, dy, shape.n, "dy", linear);
  const Dense dy_dense(dy);
  const octavo_tensor dym = matrix(dy_dense.view(), shape.n);
  const auto rows = static_cast<uint64_t>(dym.rows);
  check_saved(*e, saved, plan, rows, linear);
  std::optional<Dense> x_dense;
  octavo_tensor xm = {}, dxm = {}, dwm = {}, dbm = {};
  if (plan.flags & OCTAVO_LINEAR_NEEDS_X) {
    if (!x)
      raise(OCTAVO_INVALID,
            e->name(OCTAVO_OWNER_LINEAR, linear) + ": x: expected a tensor, found none");
    check_operand(*e, x, shape.k, "x", linear);
    x_dense.emplace(x);
    xm = matrix(x_dense->view(), shape.k);
  }

  const bool own_dw = (wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_TENSOR;
  Owned dx = (wanted & kDx) ? empty_with_last(*e, dy, shape.k) : empty_bytes(*e, 0);
  Owned dw = own_dw ? empty(*e, {shape.n, shape.k}, shape.gradient_dtype) : empty_bytes(*e, 0);
  Owned db = (wanted & kDb) ? make_db(*e, shape, flags) : empty_bytes(*e, 0);
  if (wanted & kDx) dxm = matrix(dx, shape.k);
  if (own_dw) dwm = matrix(dw, shape.k);
  if (wanted & kDb) dbm = row(db);

  Workspace workspace(*e, octavo_extent_bytes(&plan.backward_workspace, rows));
  octavo_backward_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_BACKWARD_CALL;
  call.linear = static_cast<uint32_t>(linear);
  call.flags = static_cast<uint32_t>(flags & 0xFF);
  if (!(wanted & kDw)) call.flags |= OCTAVO_BACKWARD_SKIP_WEIGHT;
  call.dy = &dym;
  call.x = x_dense ? &xm : nullptr;
  call.dx = (wanted & kDx) ? &dxm : nullptr;
  call.dw = own_dw ? &dwm : nullptr;
  call.db = (wanted & kDb) ? &dbm : nullptr;
  call.slots = pointers.data();
  call.saved = saved.data();
  call.workspace = workspace.data();
  check(e->backend->linear_backward(e->session, &call), "linear_backward", *e, OCTAVO_OWNER_LINEAR,
        linear);
  e->calls[OCTAVO_VERB_BACKWARD].fetch_add(1, std::memory_order_relaxed);
  e->coupling.ran_backward();
  if ((flags & kOfGraph) && (wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_SLOT)
    e->coupling.added_to_gradient(shape.parameter);
  stack.give(0, std::move(dx));
  stack.give(1, std::move(dw));
  stack.give(2, std::move(db));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def(
      "linear_forward(int run, int linear, int flags, int version, Tensor x, Tensor? weight, "
      "Tensor? bias) -> (Tensor y, Tensor saved)");
  m.def(
      "linear_backward(int run, int linear, int flags, int wanted, Tensor dy, Tensor? x, Tensor "
      "saved, Tensor? weight, Tensor(a!)? token) -> (Tensor dx, Tensor dw, Tensor db)");
}

STABLE_TORCH_LIBRARY_IMPL(octavo, CPU, m) {
  m.impl("linear_forward", linear_forward);
  m.impl("linear_backward", linear_backward);
}

}  // namespace octavo::ops
