// octavo/hpp/plugin/verbs.hpp: the verbs of a sealed session, and their sizes.
//
// Included by backend.hpp. A verb allocates nothing unless it fails.
#ifndef OCTAVO_HPP_PLUGIN_VERBS_HPP
#define OCTAVO_HPP_PLUGIN_VERBS_HPP

#include <cstring>

#include "octavo/hpp/plugin/backend.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_plan(uint32_t linear,
                                                      octavo_linear_plan *out) const {
  const Linear &l = sealed_linear(linear);
  const Parameter &w = objects_.parameters[l.weight];
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  octavo_status status = OCTAVO_OK;
  bool reads_x = false;
  const bool own_gradient = has_gradient_slot(w);
  const auto forward_pass = [&](int64_t m) {
    octavo_tensor x{nullptr, m, w.cols, w.cols, OCTAVO_F32, 0};
    octavo_tensor y{nullptr, m, w.rows, w.rows, OCTAVO_F32, 0};
    octavo_tensor bias{nullptr, 1, w.rows, w.rows, OCTAVO_F32, 0};
    octavo_forward_call c{};
    c.x = &x, c.y = &y, c.bias = &bias;
    Pass p(device_, true, m, nullptr, nullptr, nullptr);
    self().forward(p, ForwardCall(l, w, c, true));
    if (status == OCTAVO_OK) status = p.status();
    return p;
  };
  const auto backward_bytes = [&](int64_t m) {
    octavo_tensor x{nullptr, m, w.cols, w.cols, OCTAVO_F32, 0};
    octavo_tensor dy{nullptr, m, w.rows, w.rows, OCTAVO_F32, 0};
    octavo_tensor dw{nullptr, w.rows, w.cols, w.cols, OCTAVO_F32, 0};
    octavo_tensor db{nullptr, 1, w.rows, w.rows, OCTAVO_F32, 0};
    octavo_backward_call c{};
    c.dy = &dy, c.x = &x, c.dx = &x, c.dw = own_gradient ? nullptr : &dw, c.db = &db;
    Pass p(device_, true, m, nullptr, nullptr, nullptr);
    self().backward(p, BackwardCall(l, w, c, own_gradient, &reads_x));
    if (status == OCTAVO_OK) status = p.status();
    return p.workspace_bytes();
  };
  plan.forward_workspace = extent_of([&](int64_t m) { return forward_pass(m).workspace_bytes(); });
  plan.saved = extent_of([&](int64_t m) { return forward_pass(m).saved_bytes(); },
                         forward_pass(0).saved_rows());
  if (plan.saved.bytes_per_row == 0) plan.saved.row_multiple = 1;
  plan.backward_workspace = extent_of(backward_bytes);
  Pass p(device_, true, 0, nullptr, nullptr, nullptr);
  self().cast_weight(p, WeightCall(w, nullptr));
  plan.weight_workspace = p.workspace_bytes();
  if (status == OCTAVO_OK) status = p.status();
  if (device_.has(OCTAVO_CAPS_CAPTURE_SAFE)) plan.flags |= OCTAVO_LINEAR_CAPTURE_SAFE;
  if (reads_x) plan.flags |= OCTAVO_LINEAR_NEEDS_X;
  plan.gradient = w.is_frozen()  ? OCTAVO_GRADIENT_NONE
                  : own_gradient ? OCTAVO_GRADIENT_SLOT
                                 : OCTAVO_GRADIENT_TENSOR;
  if (status != OCTAVO_OK)
    throw Error(status, "the kernels cannot state the workspace of a call of this linear");
  std::memcpy(out, &plan, std::min<size_t>(out->size, sizeof plan));
  return status;
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::quantize_weight(const octavo_weight_call *c) const {
  if (c->parameter >= objects_.sealed_parameters)
    throw Error(OCTAVO_INVALID, "expected a sealed parameter");
  const Parameter &w = objects_.parameters[c->parameter];
  if (!w.is_linear_weight()) return OCTAVO_OK;
  Pass p(device_, false, 0, c->stream, c->workspace, nullptr);
  self().cast_weight(p, WeightCall(w, c->slots));
  return p.status();
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_forward(const octavo_forward_call *c) const {
  const Linear &l = sealed_linear(c->linear);
  const Parameter &w = objects_.parameters[l.weight];
  if (c->x->cols != w.cols || c->y->cols != w.rows || c->y->rows != c->x->rows)
    throw Error(OCTAVO_INVALID, "expected x [M, K] and y [M, N] with the weight's K and N");
  if ((c->flags & OCTAVO_FORWARD_EVALUATION) != 0 && c->saved != nullptr)
    throw Error(OCTAVO_INVALID,
                "expected saved null with OCTAVO_FORWARD_EVALUATION, found an address; drop the "
                "flag where a backward follows");
  Pass p(device_, false, c->x->rows, c->stream, c->workspace, c->saved);
  self().forward(p, ForwardCall(l, w, *c, false));
  return p.status();
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_backward(const octavo_backward_call *c) const {
  const Linear &l = sealed_linear(c->linear);
  const Parameter &w = objects_.parameters[l.weight];
  if (c->dy->cols != w.rows ||
      (c->dx != nullptr && (c->dx->cols != w.cols || c->dx->rows != c->dy->rows)))
    throw Error(OCTAVO_INVALID, "expected dy [M, N] and dx [M, K] with the weight's N and K");
  // `saved` is only read: the const that is cast away is the tensor struct's, which serves both.
  Pass p(device_, false, c->dy->rows, c->stream, c->workspace, const_cast<void *>(c->saved));
  self().backward(p, BackwardCall(l, w, *c, has_gradient_slot(w), nullptr));
  return p.status();
}

// Clears what is stated as written here, after the backend has derived what follows from it.
template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::end_step(const octavo_step_call *c) const {
  Pass p(device_, false, 0, c->stream, nullptr, nullptr);
  self().finish_step(p, StepCall(objects_, *c));
  for (size_t i = 0; i < objects_.session.size(); ++i) {
    const SessionEntry &e = objects_.session[i];
    if (e.access == OCTAVO_ACCESS_WRITE)
      p.clear(c->slots[i], static_cast<uint64_t>(e.rows * e.cols) * sizeof(float));
  }
  return p.status();
}

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
