// The calls of a linear as torch ops.
#include "host_adapters/torch/core/linear.h"

#include "host_adapters/torch/core/arguments.h"
#include "registry.h"
#include "stack.h"

namespace octavo::ops {
namespace {

// A result of an op cannot be none.
Owned some(const core::Entry &e, Owned &&t) {
  return t ? std::move(t) : core::empty_bytes(e, 0);
}

void linear_forward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const View x = stack.tensor(4), weight = stack.optional_tensor(5),
             bias = stack.optional_tensor(6);
  const auto e = find(stack.integer(0));
  core::Forwarded out = core::linear_forward(
      *e, {stack.integer(1), stack.integer(2), stack.integer(3), weight, bias}, x);
  stack.give(0, std::move(out.y));
  stack.give(1, some(*e, std::move(out.saved)));
}

void fused_forward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const core::PrologueInput prologue = {stack.integer(3), stack.real(4), stack.optional_tensor(7),
                                        stack.optional_tensor(8)};
  const View x = stack.tensor(6), weight = stack.optional_tensor(9),
             bias = stack.optional_tensor(10);
  const auto e = find(stack.integer(0));
  core::Fused out = core::fused_forward(
      *e, {stack.integer(1), stack.integer(2), stack.integer(5), weight, bias}, prologue, x);
  stack.give(0, std::move(out.y));
  stack.give(1, some(*e, std::move(out.saved)));
  const auto floats = [&e](Owned &&t) {
    return t ? std::move(t) : core::empty(*e, {0}, OCTAVO_F32);
  };
  stack.give(2, floats(std::move(out.mean)));
  stack.give(3, floats(std::move(out.rstd)));
}

// token: stands for the gradient slot in a graph, whose compiler would drop a call that writes to
// nothing, and would copy the slot itself.
void linear_backward(StableIValue *values, uint64_t, uint64_t) {
  Stack stack(values);
  const View dy = stack.tensor(4), x = stack.optional_tensor(5), saved = stack.tensor(6),
             weight = stack.optional_tensor(7);
  stack.optional_tensor(8);
  const auto e = find(stack.integer(0));
  core::Gradients out = core::linear_backward(
      *e, {stack.integer(1), stack.integer(2), stack.integer(3), x, saved, weight}, dy);
  stack.give(0, some(*e, std::move(out.dx)));
  stack.give(1, some(*e, std::move(out.dw)));
  stack.give(2, some(*e, std::move(out.db)));
}

}  // namespace

// flags, wanted, version: core/linear.h.
STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def(
      "linear_forward(int run, int linear, int flags, int version, Tensor x, Tensor? weight, "
      "Tensor? bias) -> (Tensor y, Tensor saved)");
  m.def(
      "fused_forward(int run, int linear, int flags, int op, float eps, int version, Tensor x, "
      "Tensor? gamma, Tensor? beta, Tensor? weight, Tensor? bias) -> (Tensor y, Tensor saved, "
      "Tensor mean, Tensor rstd)");
  m.def(
      "linear_backward(int run, int linear, int flags, int wanted, Tensor dy, Tensor? x, Tensor "
      "saved, Tensor? weight, Tensor(a!)? token) -> (Tensor dx, Tensor dw, Tensor db)");
}

namespace {

void implement(torch::stable::detail::StableLibrary &m) {
  m.impl("linear_forward", linear_forward);
  m.impl("fused_forward", fused_forward);
  m.impl("linear_backward", linear_backward);
}

}  // namespace

OCTAVO_ON_EVERY_DEVICE(implement)

}  // namespace octavo::ops
