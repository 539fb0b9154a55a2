// Forward and backward of linear layers. Ops are functions of their tensor arguments and of a run's
// number: nothing is remembered, so a compiler may call them again, or earlier, or not at all.
//
// These run at each layer, so they are boxed by hand: an argument costs what torch's interface
// costs.
#include <atomic>
#include <cstring>

#include "arguments.h"
#include "error.h"
#include "forward_call.h"

namespace octavo::ops {
namespace {

enum Wanted : int64_t { kDx = 1, kDw = 2, kDb = 4 };

// flags of backward: OCTAVO_BACKWARD_... in bits 0 to 7, bit 8: part of a compiled graph, in which
// no code of the host can note that a gradient slot was added to.
constexpr int64_t kOfGraph = 256;

// (int run, int linear, int flags, Tensor x, Tensor? bias, Tensor[] read, Tensor(a!)[] accumulate)
// -> (Tensor y, Tensor saved)
void linear_forward(StableIValue *values, uint64_t, uint64_t) {
  const char *what = "linear_forward of linear";
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2);
  const View x = stack.tensor(3), bias = stack.optional_tensor(4);
  const Slots slots = {stack.tensors(5), stack.tensors(6), {}};

  const auto e = find(stack.integer(0));
  const auto list = list_of(*e, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear, slots, what);
  const LinearShape &shape = e->shapes[static_cast<size_t>(linear)];
  const octavo_linear_plan &plan = e->plans[static_cast<size_t>(linear)];
  check_operand(x, shape.k, "x", what, linear);
  const Dense x_dense(x);
  const octavo_tensor xm = matrix(x_dense.view(), shape.k);
  const octavo_tensor bm = optional_row(bias, shape.n, "bias", what, linear);
  Owned y = empty_with_last(x, shape.n);
  octavo_tensor ym = matrix(y, shape.n);
  Owned saved = make_saved(plan, xm.rows, flags);
  Workspace workspace(octavo_extent_bytes(&plan.forward_workspace, static_cast<uint64_t>(xm.rows)));
  const octavo_forward_call call =
      forward_call(linear, flags, &xm, &ym, bias ? &bm : nullptr, list, saved, workspace.data());
  check(e->backend->linear_forward(e->session, &call), "linear_forward", "linear", linear);
  count(*e, OCTAVO_VERB_FORWARD);
  stack.give(0, std::move(y));
  stack.give(1, std::move(saved));
}

void check_saved(View saved, const octavo_linear_plan &plan, uint64_t rows, const char *what,
                 int64_t linear) {
  check_dense(saved, "saved");
  const auto expected = static_cast<int64_t>(octavo_extent_bytes(&plan.saved, rows));
  if (saved.numel() == expected) return;
  raise(OCTAVO_INVALID, std::string(what) + " " + std::to_string(linear) + ": saved: expected " +
                            std::to_string(expected) + " bytes, found " +
                            std::to_string(saved.numel()) + ". The call");
}

// With a gradient slot the backend adds, also to db, which starts here.
Owned make_db(const LinearShape &shape, int64_t flags) {
  Owned db = empty({shape.n}, shape.gradient_dtype);
  if (!(flags & OCTAVO_BACKWARD_OVERWRITE))
    std::memset(db.mutable_data(), 0, static_cast<size_t>(shape.n * db.element_bits() / 8));
  return db;
}

// (int run, int linear, int flags, int wanted, Tensor dy, Tensor? x, Tensor saved, Tensor[] read,
// Tensor(a!)[] accumulate, Tensor(b!)[] update) -> (Tensor dx, Tensor dw, Tensor db)
void linear_backward(StableIValue *values, uint64_t, uint64_t) {
  const char *what = "linear_backward of linear";
  Stack stack(values);
  const int64_t linear = stack.integer(1), flags = stack.integer(2), wanted = stack.integer(3);
  const View dy = stack.tensor(4), x = stack.optional_tensor(5), saved = stack.tensor(6);
  const Slots slots = {stack.tensors(7), stack.tensors(8), stack.tensors(9)};

  const auto e = find(stack.integer(0));
  const auto list = list_of(*e, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear, slots, what);
  const LinearShape &shape = e->shapes[static_cast<size_t>(linear)];
  const octavo_linear_plan &plan = e->plans[static_cast<size_t>(linear)];
  check_operand(dy, shape.n, "dy", what, linear);
  const Dense dy_dense(dy);
  const octavo_tensor dym = matrix(dy_dense.view(), shape.n);
  const auto rows = static_cast<uint64_t>(dym.rows);
  check_saved(saved, plan, rows, what, linear);
  std::optional<Dense> x_dense;
  octavo_tensor xm = {}, dxm = {}, dwm = {}, dbm = {};
  if (plan.flags & OCTAVO_LINEAR_NEEDS_X) {
    if (!x)
      raise(OCTAVO_INVALID, std::string(what) + ": x: expected a tensor, found none. The call");
    check_operand(x, shape.k, "x", what, linear);
    x_dense.emplace(x);
    xm = matrix(x_dense->view(), shape.k);
  }

  const bool own_dw = (wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_TENSOR;
  Owned dx = (wanted & kDx) ? empty_with_last(dy, shape.k) : empty_bytes(0);
  Owned dw = own_dw ? empty({shape.n, shape.k}, shape.gradient_dtype) : empty_bytes(0);
  Owned db = (wanted & kDb) ? make_db(shape, flags) : empty_bytes(0);
  if (wanted & kDx) dxm = matrix(dx, shape.k);
  if (own_dw) dwm = matrix(dw, shape.k);
  if (wanted & kDb) dbm = row(db);

  Workspace workspace(octavo_extent_bytes(&plan.backward_workspace, rows));
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
  call.slots = list.data();
  call.saved = saved.data();
  call.workspace = workspace.data();
  check(e->backend->linear_backward(e->session, &call), "linear_backward", "linear", linear);
  count(*e, OCTAVO_VERB_BACKWARD);
  if ((flags & kOfGraph) && (wanted & kDw) && plan.gradient == OCTAVO_GRADIENT_SLOT)
    std::atomic_ref<uint8_t>(e->graph_gradients[shape.parameter]).store(1);
  stack.give(0, std::move(dx));
  stack.give(1, std::move(dw));
  stack.give(2, std::move(db));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def(
      "linear_forward(int run, int linear, int flags, Tensor x, Tensor? bias, Tensor[] read, "
      "Tensor(a!)[] accumulate) -> (Tensor y, Tensor saved)");
  m.def(
      "linear_backward(int run, int linear, int flags, int wanted, Tensor dy, Tensor? x, Tensor "
      "saved, Tensor[] read, Tensor(a!)[] accumulate, Tensor(b!)[] update) -> (Tensor dx, Tensor "
      "dw, Tensor db)");
}

STABLE_TORCH_LIBRARY_IMPL(octavo, CPU, m) {
  m.impl("linear_forward", linear_forward);
  m.impl("linear_backward", linear_backward);
}

}  // namespace octavo::ops
