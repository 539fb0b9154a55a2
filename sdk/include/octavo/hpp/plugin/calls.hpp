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
namespace author {

// The addresses of one object's list. A handle that this object has no slot for gives null data.
class Addresses {
 public:
  Addresses(const std::vector<Place> &places, void *const *slots)
      : places_(places), slots_(slots) {}

  octavo_tensor operator[](MatrixSlot slot) const { return matrix(slot.rule); }
  float *operator[](FloatSlot slot) const { return static_cast<float *>(at(slot.rule)); }
  float *operator[](PoolSlot slot) const { return static_cast<float *>(at(slot.rule)); }
  Codes operator[](CodesSlot slot) const {
    Codes codes;
    if (slot.rows != OCTAVO_NONE) codes.rows = matrix(slot.rows);
    if (slot.columns != OCTAVO_NONE) codes.columns = matrix(slot.columns);
    codes.scale_inv = {at(slot.scale_inv), 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
    return codes;
  }

 private:
  octavo_tensor matrix(uint32_t rule) const {
    const Place &p = places_[rule];
    return {at(rule), p.rows, p.cols, p.cols, p.dtype, 0};
  }
  void *at(uint32_t rule) const {
    const uint32_t position = places_[rule].position;
    return position == OCTAVO_NONE || slots_ == nullptr ? nullptr : slots_[position];
  }

  const std::vector<Place> &places_;
  void *const *slots_;
};

// quantize_weight
class WeightCall : public Addresses {
 public:
  WeightCall(const Parameter &p, void *const *slots) : Addresses(p.places, slots), parameter(p) {}
  const Parameter &parameter;
};

// linear_forward: y = x w^T + bias.
class ForwardCall : public Addresses {
 public:
  ForwardCall(const Linear &l, const Parameter &w, const octavo_forward_call &c, bool measuring)
      : Addresses(l.places, c.slots), linear(l), weight(w), raw(c), measuring_(measuring) {}

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
  bool keeps() const { return !weight.is_frozen() && (measuring_ || raw.saved != nullptr); }

 private:
  bool measuring_;
};

// linear_backward: dx = dy w, dw += dy^T x, db += column sums of dy.
class BackwardCall : public Addresses {
 public:
  // `reads_x` is set when the verb asks for x, which is how a plan learns OCTAVO_LINEAR_NEEDS_X.
  BackwardCall(const Linear &l, const Parameter &w, const octavo_backward_call &c,
               bool has_gradient_slot, bool *reads_x)
      : Addresses(l.places, c.slots),
        linear(l),
        weight(w),
        raw(c),
        has_gradient_slot_(has_gradient_slot),
        reads_x_(reads_x) {}

  const Linear &linear;
  const Parameter &weight;
  const octavo_backward_call &raw;

  const octavo_tensor &dy() const { return *raw.dy; }
  const octavo_tensor &x() const {
    if (reads_x_ != nullptr) *reads_x_ = true;
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
  };
  // Calls body(i, pool) for the pool of the i-th seal that had one; pools of equal i belong
  // together.
  template <typename Body>
  void each_pool(PoolSlot slot, Body body) const {
    size_t i = 0;
    for (size_t at = 0; at < objects_.session.size(); ++at)
      if (const SessionEntry &e = objects_.session[at]; e.rule == slot.rule)
        body(i++, Pool{static_cast<float *>(raw.slots[at]), static_cast<uint64_t>(e.cols),
                       static_cast<uint64_t>(e.rows)});
  }
  // The pool of the i-th seal; it exists.
  Pool pool(PoolSlot slot, size_t i) const {
    Pool found{};
    each_pool(slot, [&](size_t at, const Pool &p) {
      if (at == i) found = p;
    });
    return found;
  }

 private:
  const Objects &objects_;

 public:
  const octavo_step_call &raw;
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
