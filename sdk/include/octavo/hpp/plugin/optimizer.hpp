// octavo/hpp/plugin/optimizer.hpp: octavo.optimizer/2 as two stages of a backend, and its name.
//
//   class Mine : public Backend<Mine>, public Optimizer<Mine> {
//    public:
//     plugin::Algorithm algorithm() const { return plugin::kAdamW; }
//     void step(Pass &p, const StepGroup &g) const;    // Adam on the formats of the slots
//     void write(Pass &p, const WriteCall &c) const;   // plain values to one of these formats
//   };
//
// The rest follows from declare(): a tensor is found by its role (stored.hpp), the step count is
// the i32 slot with the role COUNTER, and a step needs the address of every tensor that it finds.
// Every item is checked before the first one is stepped, so a refused call changes nothing. The
// stages run once without memory, to find the workspace; they allocate nothing.
#ifndef OCTAVO_HPP_PLUGIN_OPTIMIZER_HPP
#define OCTAVO_HPP_PLUGIN_OPTIMIZER_HPP

#include <algorithm>

#include "octavo/draft/optimizer.h"
#include "octavo/hpp/plugin/stored.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The rule of a step, and the names of the hyperparameters that it reads, by their index.
struct Algorithm {
  octavo_str name;
  octavo_str hyper[OCTAVO_HYPER_COUNT];
};
#define OCTAVO_AUTHOR_ADAM                                                         \
  {                                                                                \
    OCTAVO_STR("lr"), OCTAVO_STR("beta1"), OCTAVO_STR("beta2"), OCTAVO_STR("eps"), \
        OCTAVO_STR("weight_decay"), OCTAVO_STR("grad_scale"), {nullptr, 0}, {      \
      nullptr, 0                                                                   \
    }                                                                              \
  }
inline constexpr Algorithm kAdamW = {OCTAVO_STR("adamw"), OCTAVO_AUTHOR_ADAM};
inline constexpr Algorithm kAdam = {OCTAVO_STR("adam"), OCTAVO_AUTHOR_ADAM};
#undef OCTAVO_AUTHOR_ADAM

// Some parameters of one step, whose items are on the stack.
class StepGroup {
 public:
  static constexpr uint64_t kMost = 32;

  StepGroup(const Objects &objects, const std::vector<SlotRule> &rules,
            const octavo_parameter_item *items, uint64_t count, const float *skip, bool measuring)
      : objects_(objects),
        rules_(rules),
        items_(items),
        count_(count),
        skip_(skip),
        measuring_(measuring) {
    for (uint64_t i = 0; i < count; ++i) adam_[i] = adam_item((*this)[i], items[i].hyper);
  }

  uint64_t size() const { return count_; }
  ParameterCall operator[](uint64_t i) const {
    return {objects_.parameters[items_[i].parameter], rules_, items_[i].slots, measuring_};
  }
  // One Adam step of all of them, but for the method's own choices: rule, decay_mode,
  // state_granularity, flags. As long as the group.
  octavo_adam_step adam(const Pass &p) const {
    auto step = p.call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
    step.items = adam_;
    step.count = count_;
    step.skip = skip_;
    return step;
  }

 private:
  static octavo_adam_item adam_item(const ParameterCall &c, const float *hyper) {
    const uint32_t weight = c.stepped();
    return {c.tensor(weight),
            c.tensor(OCTAVO_ROLE_GRADIENT),
            c.tensor(OCTAVO_ROLE_EXP_AVG),
            c.tensor(OCTAVO_ROLE_EXP_AVG_SQ),
            c.scale_inv(weight),
            c.scale_inv(OCTAVO_ROLE_GRADIENT),
            c.scale_inv(OCTAVO_ROLE_EXP_AVG),
            c.scale_inv(OCTAVO_ROLE_EXP_AVG_SQ),
            static_cast<int32_t *>(c.data(OCTAVO_ROLE_COUNTER)),
            hyper};
  }

  const Objects &objects_;
  const std::vector<SlotRule> &rules_;
  const octavo_parameter_item *items_;
  uint64_t count_;
  const float *skip_;
  bool measuring_;
  octavo_adam_item adam_[kMost];
};

// write_parameter: the values of one role.
class WriteCall : public ParameterCall {
 public:
  WriteCall(const ParameterCall &c, uint32_t wanted, const octavo_tensor &values)
      : ParameterCall(c), role(wanted), plain(values) {}

  uint32_t role;  // WEIGHT also for MASTER_WEIGHT: a write to one of them means both
  const octavo_tensor &plain;
};

template <typename Self>
class Optimizer {
 public:
  // ---- The verbs of octavo.optimizer/2. ----

  octavo_status describe_optimizer(octavo_optimizer_desc *out) const;
  octavo_status optimizer_workspace(const uint32_t *parameters, uint64_t count,
                                    uint64_t *bytes) const;
  octavo_status optimizer_step(const octavo_optimizer_call *c) const;
  octavo_status sum_of_squares(const octavo_norm_call *c) const;
  octavo_status prepare_step(const octavo_prepare_call *c) const;
  octavo_status read_parameter(const octavo_parameter_call *c) const;
  octavo_status write_parameter(const octavo_parameter_call *c) const;

 protected:
  ~Optimizer() = default;

 private:
  const Self &self() const { return static_cast<const Self &>(*this); }
  const std::vector<Parameter> &parameters() const { return self().objects().parameters; }

  Pass pass(void *stream, void *workspace) const {
    return Pass(self().device(), false, 0, stream, workspace, nullptr);
  }
  ParameterCall parameter(uint32_t id, void *const *slots, bool measuring = false) const {
    return {parameters()[id], self().rules(), slots, measuring};
  }
  void check_sealed(uint32_t id) const {
    const uint32_t sealed = self().objects().sealed_parameters;
    if (id >= sealed)
      throw Error(OCTAVO_INVALID, "expected a sealed parameter below " + std::to_string(sealed) +
                                      ", found " + std::to_string(id));
  }
  ParameterCall trained(const octavo_parameter_item &item) const;
  void add_squares(Pass &p, const ParameterCall &c, float *out) const;
  void check_step(const octavo_parameter_item &item) const;
  ParameterCall copied(const octavo_parameter_call &c) const;
  void check_copy(const octavo_parameter_call &c, const ParameterCall &call, uint32_t role) const;
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#include "octavo/hpp/plugin/optimizer_verbs.hpp"

#endif
