// octavo/hpp/plugin/calls.hpp: the calls of the hot verbs, with slots by handle.
//
// Measuring, every address is null and everything optional is wanted, so that sizes cover each
// call.
#ifndef OCTAVO_HPP_PLUGIN_CALLS_HPP
#define OCTAVO_HPP_PLUGIN_CALLS_HPP

#include "octavo/hpp/plugin/pass.hpp"
#include "octavo/hpp/plugin/seal.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The addresses of one object's list. A handle that this object has no slot for gives null data.
class Addresses {
 public:
  Addresses(const std::vector<Place> &places, void *const *slots, bool measuring = false)
      : places_(places.data()), slots_(slots), measuring_(measuring) {}

  octavo_tensor operator[](MatrixSlot slot) const { return tensor(place(slot.rule)); }
  float *operator[](FloatSlot slot) const { return floats(slot.rule); }
  float *operator[](PoolSlot slot) const { return floats(slot.rule); }
  // A direction that this object has no codes in has dtype 0.
  Codes operator[](const CodesSlot &slot) const {
    const Place &rows = place(slot.rows), &columns = place(slot.columns);
    const bool per_tensor = slot.granularity == OCTAVO_PER_TENSOR || slot.columns == OCTAVO_NONE;
    const octavo_tensor by_rows = codes(rows, slot), by_columns = codes(columns, slot);
    return {
        by_rows, by_columns,
        scale_of(slot.granularity, by_rows.cols, at(place(slot.scale_inv)), floats(slot.second)),
        per_tensor ? octavo_scale{}
                   : scale_of(slot.granularity, by_columns.cols, at(place(slot.columns_scale_inv)),
                              floats(slot.columns_second)),
        rows.layout};
  }
  Observation operator[](const ObservedSlot &slot) const {
    Observation o;
    o.amax = floats(slot.amax.rule);
    o.scale = floats(slot.scale.rule);
    o.counter = floats(slot.counter.rule);
    if (slot.statistics[0].rule == OCTAVO_NONE) return o;
    o.statistics.wanted = measuring_;
    for (size_t i = 0; i < kStatisticCount; ++i) {
      o.statistics.sums[i] = floats(slot.statistics[i].rule);
      o.statistics.wanted |= o.statistics.sums[i] != nullptr;
    }
    return o;
  }

 protected:
  bool measuring() const { return measuring_; }
  void *const *slots() const { return slots_; }

 private:
  const Place &place(uint32_t rule) const {
    static constexpr Place kNone;
    return rule == OCTAVO_NONE ? kNone : places_[rule];
  }
  octavo_tensor tensor(const Place &p) const { return {at(p), p.rows, p.cols, p.cols, p.dtype, 0}; }
  // Codes of four bits are bytes to the host, two codes each.
  octavo_tensor codes(const Place &p, const CodesSlot &slot) const {
    octavo_tensor t = tensor(p);
    if (has_second(slot.granularity) && t.dtype == OCTAVO_U8)
      t.dtype = OCTAVO_E2M1, t.cols *= 2, t.stride *= 2;
    return t;
  }
  float *floats(uint32_t rule) const { return static_cast<float *>(at(place(rule))); }
  void *at(const Place &p) const {
    return slots_ != nullptr && p.position != OCTAVO_NONE ? slots_[p.position] : nullptr;
  }

  const Place *places_;
  void *const *slots_;
  bool measuring_;
};

// quantize_weight
class WeightCall : public Addresses {
 public:
  WeightCall(const Parameter &p, void *const *slots, bool measuring)
      : Addresses(p.places, slots, measuring), parameter(p) {}
  const Parameter &parameter;
  int64_t n() const { return parameter.rows; }
  int64_t k() const { return parameter.cols; }
};

// linear_forward: y = x w^T + bias.
class ForwardCall : public Addresses {
 public:
  ForwardCall(const Linear &l, const Parameter &w, const octavo_forward_call &c, bool measuring)
      : Addresses(l.places, c.slots, measuring), linear(l), weight(w), raw(c) {}

  const Linear &linear;
  const Parameter &weight;
  const octavo_forward_call &raw;

  const octavo_tensor &x() const { return *raw.x; }
  octavo_tensor &y() const { return *raw.y; }
  const octavo_tensor *bias() const { return raw.bias; }
  int64_t m() const { return raw.x->rows; }
  int64_t n() const { return weight.rows; }
  int64_t k() const { return weight.cols; }
  bool is_evaluation() const { return (raw.flags & OCTAVO_FORWARD_EVALUATION) != 0; }
  // Whether wgrad will follow, so that what it needs belongs into `saved`.
  bool keeps() const { return !weight.is_frozen() && raw.saved != nullptr; }
};

// linear_backward: dx = dy w, dw += dy^T x, db += column sums of dy.
class BackwardCall : public Addresses {
 public:
  // `reads_x`, null unless measuring, is set when the verb asks for x, which is how a plan learns
  // OCTAVO_LINEAR_NEEDS_X.
  BackwardCall(const Linear &l, const Parameter &w, const octavo_backward_call &c,
               bool has_gradient_slot, bool *reads_x)
      : Addresses(l.places, c.slots, reads_x != nullptr),
        linear(l),
        weight(w),
        raw(c),
        has_gradient_slot_(has_gradient_slot),
        reads_x_(reads_x),
        no_rows_{nullptr, 0, w.cols, w.cols, c.dy->dtype, 0} {}

  const Linear &linear;
  const Parameter &weight;
  const octavo_backward_call &raw;

  const octavo_tensor &dy() const { return *raw.dy; }
  // Of a call without rows, no rows, whatever the host gave.
  const octavo_tensor &x() const {
    if (reads_x_ != nullptr) *reads_x_ = true;
    if (m() == 0) return no_rows_;
    if (raw.x == nullptr)
      throw Error(OCTAVO_INVALID,
                  "expected x [M, K] of the forward call, since the plan says "
                  "OCTAVO_LINEAR_NEEDS_X");
    return *raw.x;
  }
  octavo_tensor &dx() const { return *raw.dx; }
  octavo_tensor &dw() const { return *raw.dw; }
  octavo_tensor &db() const { return *raw.db; }
  bool wants_dx() const { return raw.dx != nullptr; }
  bool wants_dw() const {
    return !weight.is_frozen() && !(raw.flags & OCTAVO_BACKWARD_SKIP_WEIGHT) &&
           (has_gradient_slot_ || raw.dw != nullptr);
  }
  bool wants_db() const { return raw.db != nullptr; }
  // Of dw and db.
  bool accumulates() const { return !(raw.flags & OCTAVO_BACKWARD_OVERWRITE); }
  int64_t m() const { return raw.dy->rows; }
  int64_t n() const { return weight.rows; }
  int64_t k() const { return weight.cols; }

 private:
  bool has_gradient_slot_;
  bool *reads_x_;
  octavo_tensor no_rows_;
};

// end_step: the slots of the session, and its pools seal by seal.
class StepCall : public Addresses {
 public:
  StepCall(const Objects &o, const octavo_step_call &c)
      : Addresses(o.session_places, c.slots), objects_(o), raw(c) {}

  struct Pool {
    float *data;
    uint64_t columns;
    uint64_t rows;
    size_t at;  // position in the session's list
  };
  // Calls body(i, pool) for the pool of the i-th seal that had one; pools of equal i belong
  // together.
  template <typename Body>
  void each_pool(PoolSlot slot, Body &&body) const {
    if (slot.rule == OCTAVO_NONE) return;
    size_t i = 0;
    for (const Place &p : objects_.session_pools[slot.rule]) body(i++, pool(p));
  }
  // The address at a position of the session's list.
  float *entry(size_t at) const {
    return slots() == nullptr ? nullptr : static_cast<float *>(slots()[at]);
  }
  // The pool of the i-th seal; it exists.
  Pool pool(PoolSlot slot, size_t i) const { return pool(objects_.session_pools[slot.rule][i]); }

 private:
  Pool pool(const Place &p) const {
    return {entry(p.position), static_cast<uint64_t>(p.cols), static_cast<uint64_t>(p.rows),
            p.position};
  }
  const Objects &objects_;

 public:
  const octavo_step_call &raw;
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
