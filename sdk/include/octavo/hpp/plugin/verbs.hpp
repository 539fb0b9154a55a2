// octavo/hpp/plugin/verbs.hpp: the verbs of a sealed session, and their sizes.
//
// Included by backend.hpp. A verb allocates nothing unless it fails.
#ifndef OCTAVO_HPP_PLUGIN_VERBS_HPP
#define OCTAVO_HPP_PLUGIN_VERBS_HPP

#include <cstring>
#include <string>

#include "octavo/hpp/plugin/backend.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// Whether a call's x or dy is there and has a number of rows that sizes can be computed from: with
// 2^40 rows every size stays far below 2^63.
inline bool has_rows(const octavo_tensor *t) {
  return t != nullptr && t->rows >= 0 && t->rows <= int64_t{1} << 40;
}

// One matrix of a call, or null. x, y, dy and dx may be declined by the plan, others are not.
[[gnu::noinline]] inline void check_matrix(const Linear &l, const char *name,
                                           const octavo_tensor *t, int64_t rows, int64_t cols,
                                           uint32_t declined = 0) {
  if (t == nullptr) return;
  if (t->rows != rows || t->cols != cols || (t->data != nullptr && t->stride < cols))
    throw Error(OCTAVO_INVALID,
                about(l.name) + "expected " + name + " of [" + std::to_string(rows) + ", " +
                    std::to_string(cols) + "] with a stride of " + std::to_string(cols) +
                    " or more, found [" + std::to_string(t->rows) + ", " + std::to_string(t->cols) +
                    "] with stride " + std::to_string(t->stride));
  if (!is_plain_dtype(t->dtype) || (declined_flag(t->dtype) & declined) != 0 || t->reserved != 0)
    throw Error(OCTAVO_UNSUPPORTED,
                about(l.name) + "expected " + name +
                    " in float32, bfloat16 or float16, but no dtype that the plan declines by "
                    "OCTAVO_LINEAR_DECLINES_..., and reserved 0; convert before the call");
}

template <typename Self, typename OptionsType>
const Linear &Backend<Self, OptionsType>::checked(const octavo_forward_call &c) const {
  if (c.linear >= objects_.sealed_linears) throw Error(OCTAVO_INVALID, "expected a sealed linear");
  if (!has_rows(c.x) || c.y == nullptr)
    throw Error(OCTAVO_INVALID,
                "expected x [M, K] and y [M, N] with M from 0 to 2^40, found null or another M");
  const Linear &l = objects_.linears[c.linear];
  const Parameter &w = objects_.parameters[l.weight];
  if (w.needs_cast && !w.cast.get())
    throw Error(OCTAVO_WRONG_STATE,
                about(l.name) + "expected quantize_weight of \"" + w.name +
                    "\" before the first forward, found none in this session; call it once the "
                    "weight has its values, and after each change");
  if ((c.flags & OCTAVO_FORWARD_EVALUATION) != 0 && c.saved != nullptr)
    throw Error(OCTAVO_INVALID,
                "expected saved null with OCTAVO_FORWARD_EVALUATION, found an address; drop the "
                "flag where a backward follows");
  const uint32_t declined = self_of(l).not_taken(w);
  check_matrix(l, "x", c.x, c.x->rows, w.cols, declined);
  check_matrix(l, "y", c.y, c.x->rows, w.rows, declined);
  check_matrix(l, "bias", c.bias, 1, w.rows);
  return l;
}

template <typename Self, typename OptionsType>
const Linear &Backend<Self, OptionsType>::checked(const octavo_backward_call &c) const {
  if (c.linear >= objects_.sealed_linears) throw Error(OCTAVO_INVALID, "expected a sealed linear");
  if (!has_rows(c.dy))
    throw Error(OCTAVO_INVALID,
                "expected dy [M, N] with M from 0 to 2^40, found null or another M");
  const Linear &l = objects_.linears[c.linear];
  const Parameter &w = objects_.parameters[l.weight];
  if (w.has_gradient && c.dw != nullptr)
    throw Error(OCTAVO_INVALID,
                "expected dw null, since the plan's gradient is OCTAVO_GRADIENT_SLOT, found a "
                "tensor");
  const bool takes_dw = !w.is_frozen() && !(c.flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  const uint32_t declined = self_of(l).not_taken(w);
  check_matrix(l, "dy", c.dy, c.dy->rows, w.rows, declined);
  check_matrix(l, "dx", c.dx, c.dy->rows, w.cols, declined);
  // Without rows x has nothing to say, whatever it is.
  if (l.needs_x && c.dy->rows != 0) check_matrix(l, "x", c.x, c.dy->rows, w.cols, declined);
  if (takes_dw) check_matrix(l, "dw", c.dw, w.rows, w.cols);
  check_matrix(l, "db", c.db, 1, w.rows);
  return l;
}

template <typename Self, typename OptionsType>
Pass Backend<Self, OptionsType>::measure_forward(const Linear &l, const Parameter &w, int64_t m,
                                                 Before next, bool fused, uint32_t dtype) const {
  octavo_tensor x{nullptr, m, w.cols, w.cols, dtype, 0};
  octavo_tensor y{nullptr, m, w.rows, w.rows, dtype, 0};
  octavo_tensor bias{nullptr, 1, w.rows, w.rows, OCTAVO_F32, 0};
  octavo_forward_call c{};
  c.x = &x, c.y = &y, c.bias = &bias, c.saved = next == Before::kBackward ? &c : nullptr;
  if (next == Before::kEvaluation) c.flags = OCTAVO_FORWARD_EVALUATION;
  Pass p(device_, true, m, nullptr, nullptr, nullptr);
  if (fused) p.fuse(x, nullptr);
  self_of(l).forward(p, ForwardCall(l, w, c, true));
  return p;
}

template <typename Self, typename OptionsType>
Pass Backend<Self, OptionsType>::measure_backward(const Linear &l, const Parameter &w, int64_t m,
                                                  bool *reads_x, uint32_t dtype,
                                                  uint32_t sums) const {
  octavo_tensor x{nullptr, m, w.cols, w.cols, dtype, 0};
  octavo_tensor dy{nullptr, m, w.rows, w.rows, dtype, 0};
  octavo_tensor dw{nullptr, w.rows, w.cols, w.cols, sums, 0};
  octavo_tensor db{nullptr, 1, w.rows, w.rows, sums, 0};
  octavo_backward_call c{};
  c.dy = &dy, c.x = &x, c.dx = &x, c.dw = w.has_gradient ? nullptr : &dw, c.db = &db;
  Pass p(device_, true, m, nullptr, nullptr, nullptr, true);
  self_of(l).backward(p, BackwardCall(l, w, c, w.has_gradient, reads_x));
  return p;
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_plan(uint32_t linear,
                                                      octavo_linear_plan *out) const {
  const Linear &l = sealed_linear(linear);
  const Parameter &w = objects_.parameters[l.weight];
  octavo_linear_plan plan{};
  plan.size = out->size;
  plan.kind = out->kind;
  octavo_status status = OCTAVO_OK;
  const auto measured = [&](const Pass &p) -> const Pass & {
    if (status == OCTAVO_OK) status = p.status();
    return p;
  };
  plan.forward_workspace = largest_extent([&](int64_t m, Before next) {
    return measured(measure_forward(l, w, m, next)).workspace_bytes();
  });
  plan.saved = l.saved;
  bool reads_x = false;
  plan.backward_workspace = extent_of(
      [&](int64_t m) { return measured(measure_backward(l, w, m, &reads_x)).workspace_bytes(); });
  Pass p(device_, true, 0, nullptr, nullptr, nullptr);
  self_of(w).cast_weight(p, WeightCall(w, nullptr, true));
  plan.weight_workspace = measured(p).workspace_bytes();
  if (l.needs_x) plan.flags |= OCTAVO_LINEAR_NEEDS_X;
  if (self_of(l).evaluates_in_host_) plan.flags |= OCTAVO_LINEAR_EVALUATES_IN_HOST;
  plan.flags |= self_of(l).not_taken(w);
  plan.gradient = w.is_frozen()    ? OCTAVO_GRADIENT_NONE
                  : w.has_gradient ? OCTAVO_GRADIENT_SLOT
                                   : OCTAVO_GRADIENT_TENSOR;
  if (status != OCTAVO_OK) return status;  // reported by the kernels
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
  const WeightCall call(w, c->slots, false);
  p.watch(call[self_of(w).flag()]);
  self_of(w).cast_weight(p, call);
  if (p.status() == OCTAVO_OK) w.cast.set();
  return p.status();
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_forward(const octavo_forward_call *c) const {
  const Linear &l = checked(*c);
  Pass p(device_, false, c->x->rows, c->stream, c->workspace, c->saved);
  const ForwardCall call(l, objects_.parameters[l.weight], *c, false);
  p.watch(call[self_of(l).flag()]);
  self_of(l).forward(p, call);
  return p.status();
}

template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::linear_backward(const octavo_backward_call *c) const {
  const Linear &l = checked(*c);
  const Parameter &w = objects_.parameters[l.weight];
  // `saved` is only read: the const that is cast away is the tensor struct's, which serves both.
  Pass p(device_, false, c->dy->rows, c->stream, c->workspace, const_cast<void *>(c->saved), true);
  const BackwardCall call(l, w, *c, w.has_gradient, nullptr);
  p.watch(call[self_of(l).flag()]);
  self_of(l).backward(p, call);
  return p.status();
}

// Clears what is stated as written here, after the backend has derived what follows from it. Before
// the first seal the session has no slots, so there is nothing to do.
template <typename Self, typename OptionsType>
octavo_status Backend<Self, OptionsType>::end_step(const octavo_step_call *c) const {
  if (objects_.session_places.empty() && !rules_.empty()) return OCTAVO_OK;
  Pass p(device_, false, 0, c->stream, nullptr, nullptr);
  finish(p, *c);
  return p.status();
}

template <typename Self, typename OptionsType>
void Backend<Self, OptionsType>::finish(Pass &p, const octavo_step_call &c) const {
  const StepCall call(objects_, c);
  for (uint32_t v = 0; v < objects_.sealed_variants; ++v) variant(v).finish_step(p, call);
  for (const Place &place : objects_.cleared)
    if (float *data = call.entry(place.position); p.measures_or(data != nullptr))
      p.clear(data, static_cast<uint64_t>(place.rows * place.cols) * sizeof(float));
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#include "octavo/hpp/plugin/grouped.hpp"

#endif
