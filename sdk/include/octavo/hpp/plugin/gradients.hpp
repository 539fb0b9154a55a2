// octavo/hpp/plugin/gradients.hpp: octavo.gradients/1 as one function of a backend.
//
//   class Mine : public Backend<Mine>, public Optimizer<Mine>, public Gradients<Mine> {
//    public:
//     void reduce(Reduction &r) const {
//       float *scale = r.floats();
//       r.stage({OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, r.count(), r.count()},
//               [&](Pass &p) { ... });  // r.send() from the gradients; then the host exchanges
//       r.stage({}, [&](Pass &p) { ... });  // the gradients from r.recv()
//     }
//   };
//
// reduce() states all stages of one bucket, always the same for equal buckets. Planning, each is
// measured and its exchange is stated to the host; running, the body of one stage runs. What a body
// needs from an earlier stage is in the gradient slots, in recv, or in floats(). It allocates
// nothing.
#ifndef OCTAVO_HPP_PLUGIN_GRADIENTS_HPP
#define OCTAVO_HPP_PLUGIN_GRADIENTS_HPP

#include <algorithm>

#include "octavo/draft/gradients.h"
#include "octavo/hpp/plugin/stored.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// What the host does after a stage, from send to recv.
struct Exchange {
  uint32_t collective = OCTAVO_COLLECTIVE_NONE;
  uint32_t dtype = OCTAVO_U8;
  uint64_t send = 0;  // elements
  uint64_t recv = 0;
};

// One bucket of gradients over some ranks.
class Reduction {
 public:
  Reduction(const Device &device, const Objects &objects, const std::vector<SlotRule> &rules,
            octavo_gradient_plan *plan)
      : device_(device), objects_(objects), rules_(rules), plan_(plan), state_(nullptr) {}
  Reduction(const Device &device, const Objects &objects, const std::vector<SlotRule> &rules,
            const octavo_gradient_call *call)
      : device_(device), objects_(objects), rules_(rules), call_(call), state_(call->state) {}

  uint32_t world() const { return planning() ? plan_->world : call_->world; }
  uint64_t count() const { return planning() ? plan_->count : call_->count; }
  ParameterCall operator[](uint64_t i) const {
    const uint32_t id = planning() ? plan_->parameters[i] : call_->items[i].parameter;
    return {objects_.parameters[id], rules_, planning() ? nullptr : call_->items[i].slots,
            planning()};
  }
  uint64_t elements() const {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count(); ++i) sum += static_cast<uint64_t>((*this)[i].elements());
    return sum;
  }

  // f32 [count], which all stages of the bucket share. Before the first stage.
  float *floats() {
    return static_cast<float *>(state_.tensor(1, static_cast<int64_t>(count()), OCTAVO_F32).data);
  }
  // As long as the longest exchange; what a stage does not send of `send` is scratch. Null while
  // planning.
  void *send() const { return planning() ? nullptr : call_->send; }
  const void *recv() const { return planning() ? nullptr : call_->recv; }

  template <typename Body>
  void stage(const Exchange &e, Body body) {
    const uint32_t index = stages_++;
    if (status_ != OCTAVO_OK || (!planning() && index != call_->stage)) return;
    Pass p(device_, planning(), 0, planning() ? nullptr : call_->stream, state_.take(0), nullptr);
    body(p);
    status_ = p.status();
    scratch_ = std::max(scratch_, p.workspace_bytes());
    if (!planning() || status_ != OCTAVO_OK) return;
    auto stated = make<octavo_gradient_stage>(OCTAVO_KIND_GRADIENT_STAGE);
    stated.collective = e.collective;
    stated.dtype = e.dtype;
    stated.send_count = e.send;
    stated.recv_count = e.recv;
    status_ = plan_->stage(plan_->ctx, &stated);
  }

  uint32_t stages() const { return stages_; }
  octavo_status status() const { return status_; }
  uint64_t state_bytes() const { return state_.used() + scratch_; }

 private:
  bool planning() const { return plan_ != nullptr; }

  const Device &device_;
  const Objects &objects_;
  const std::vector<SlotRule> &rules_;
  octavo_gradient_plan *plan_ = nullptr;
  const octavo_gradient_call *call_ = nullptr;
  Carver state_;
  uint64_t scratch_ = 0;
  uint32_t stages_ = 0;
  octavo_status status_ = OCTAVO_OK;
};

template <typename Self>
class Gradients {
 public:
  // ---- The verbs of octavo.gradients/1. ----

  octavo_status plan_reduction(octavo_gradient_plan *plan) const {
    check_world(plan->world);
    for (uint64_t i = 0; i < plan->count; ++i) check_parameter(plan->parameters[i]);
    Reduction r(self().device(), self().objects(), self().rules(), plan);
    plan->state_bytes = 0;
    reduce_all(r);
    if (r.stages() > 0) plan->state_bytes = r.state_bytes();
    return r.status();
  }

  octavo_status run_stage(const octavo_gradient_call *c) const {
    check_world(c->world);
    for (uint64_t i = 0; i < c->count; ++i) {
      const Parameter &p = check_parameter(c->items[i].parameter);
      const ParameterCall call(p, self().rules(), c->items[i].slots);
      if (call.data(OCTAVO_ROLE_GRADIENT) == nullptr)
        throw Error(OCTAVO_INVALID, about(p.name) + "expected its gradient slot, found null");
    }
    Reduction r(self().device(), self().objects(), self().rules(), c);
    reduce_all(r);
    if (c->stage >= r.stages())
      throw Error(OCTAVO_INVALID, "expected a stage below " + std::to_string(r.stages()) +
                                      ", which plan_reduction stated for this bucket, found " +
                                      std::to_string(c->stage));
    return r.status();
  }

 protected:
  ~Gradients() = default;

 private:
  const Self &self() const { return static_cast<const Self &>(*this); }

  // Alone, or without a parameter, there is nothing to add to anything.
  void reduce_all(Reduction &r) const {
    if (r.world() > 1 && r.count() > 0) self().reduce(r);
  }

  static void check_world(uint32_t world) {
    if (world < 1 || world > 65536)
      throw Error(OCTAVO_INVALID, "expected 1 to 65536 ranks, found " + std::to_string(world));
  }
  const Parameter &check_parameter(uint32_t id) const {
    const Objects &o = self().objects();
    if (id >= o.sealed_parameters)
      throw Error(OCTAVO_INVALID, "expected a sealed parameter below " +
                                      std::to_string(o.sealed_parameters) + ", found " +
                                      std::to_string(id));
    const Parameter &p = o.parameters[id];
    const SlotRule *gradient = ParameterCall(p, self().rules(), nullptr).rule(OCTAVO_ROLE_GRADIENT);
    if (gradient == nullptr || (gradient->flags & OCTAVO_SLOT_NATIVE) != 0)
      throw Error(OCTAVO_INVALID,
                  about(p.name) + "expected a parameter with a gradient slot, found " +
                      (p.is_frozen() ? "a frozen one"
                                     : "one whose gradient is the host's: reduce it there"));
    return p;
  }
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
