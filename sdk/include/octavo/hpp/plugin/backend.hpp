// octavo/hpp/plugin/backend.hpp: the base class of a backend; it does all that is not the method.
//
// class Mine : public octavo::author::Backend<Mine, Options> states its slots in declare() and
// computes in cast_weight(), forward() and backward(). The rest has defaults that a member of the
// same name replaces: check(), take_parameter(), take_linear(), finish_step().
#ifndef OCTAVO_HPP_PLUGIN_BACKEND_HPP
#define OCTAVO_HPP_PLUGIN_BACKEND_HPP

#include "octavo/hpp/plugin/calls.hpp"
#include "octavo/hpp/plugin/options.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

inline bool is_plain_dtype(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

template <typename Self, typename OptionsType = NoOptions>
class Backend {
 public:
  using Options = OptionsType;

  // ---- What a backend replaces. ----

  static void check(const Device &, const Options &, Verdicts &verdicts) {
    verdicts.need_dtypes({OCTAVO_E4M3FN, OCTAVO_E5M2});
    verdicts.accept("the kernels have float8_e4m3fn and float8_e5m2");
  }
  // Whether it runs in FP8; a refusal leaves it with the host.
  Verdict take_parameter(const Parameter &) const { return accept(); }
  Verdict take_linear(const Linear &, const Parameter &) const { return accept(); }
  void cast_weight(Pass &, const WeightCall &) const {}
  void finish_step(Pass &, const StepCall &) const {}

  const Device &device() const { return device_; }
  const Options &options() const { return options_; }
  const Objects &objects() const { return objects_; }

  // ---- The verbs of octavo.backend/1. ----

  static octavo_status list_options(const octavo_option_sink *sink) {
    return OptionList<Options>().emit(sink);
  }
  static octavo_status check_session(const octavo_session_desc *desc,
                                     const octavo_verdict_sink *sink) {
    const Device device(*desc);
    Verdicts verdicts(device, sink);
    const int64_t a = device.alignment();
    if (kMeasuredRows % a != 0)
      verdicts.decline(OCTAVO_REASON_KERNEL,
                       "the kernels want sizes of a multiple that does not divide 256");
    Self::check(device, parse(*desc), verdicts);
    return OCTAVO_OK;
  }
  void open(const octavo_session_desc &desc) {
    device_ = Device(desc);
    options_ = parse(desc);
    Slots slots(device_);
    self().declare(slots);
    rules_ = slots.rules();
  }

  octavo_status add_parameter(const octavo_parameter_desc *d, octavo_verdict *verdict,
                              uint32_t *id) {
    constexpr uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
    const std::string where = "\"" + text(d->name) + "\": expected ";
    if (d->reserved != 0 || (d->flags & ~known) != 0)
      throw Error(OCTAVO_INVALID, where + "reserved 0 and known flags, found " +
                                      std::to_string(d->reserved) + " and " +
                                      std::to_string(d->flags));
    if (d->rows < 1 || d->cols < 1 || d->rows > (INT64_MAX >> 16) / d->cols)
      throw Error(OCTAVO_INVALID, where + "rows and cols from 1 on, found [" +
                                      std::to_string(d->rows) + ", " + std::to_string(d->cols) +
                                      "]");
    for (const Parameter &other : objects_.parameters)
      if (other.name == view(d->name))
        throw Error(OCTAVO_INVALID, where + "a name that no other parameter has");
    Parameter p;
    p.id = static_cast<uint32_t>(objects_.parameters.size());
    p.name = text(d->name);
    p.rows = d->rows, p.cols = d->cols;
    p.dtype = d->dtype, p.gradient_dtype = d->gradient_dtype;
    p.flags = d->flags;
    Verdict answer = decline(OCTAVO_REASON_DTYPE,
                             "expected a parameter and a gradient of float32, "
                             "bfloat16 or float16");
    if (is_plain_dtype(p.dtype) && (p.is_frozen() || is_plain_dtype(p.gradient_dtype)))
      answer = self().take_parameter(p);
    return keep(std::move(p), &objects_.parameters, answer, verdict, id);
  }

  octavo_status add_linear(const octavo_linear_desc *d, octavo_verdict *verdict, uint32_t *id) {
    const std::string where = "\"" + text(d->name) + "\": expected ";
    if (d->flags != 0)
      throw Error(OCTAVO_INVALID, where + "flags 0, found " + std::to_string(d->flags));
    if (d->weight >= objects_.parameters.size() ||
        !objects_.parameters[d->weight].is_linear_weight())
      throw Error(OCTAVO_INVALID, where + "the id of a parameter added as LINEAR_WEIGHT, found " +
                                      std::to_string(d->weight));
    for (const Linear &other : objects_.linears)
      if (other.name == view(d->name))
        throw Error(OCTAVO_INVALID, where + "a name that no other linear has");
    Linear l;
    l.id = static_cast<uint32_t>(objects_.linears.size());
    l.name = text(d->name);
    l.weight = d->weight;
    const Verdict answer = self().take_linear(l, objects_.parameters[l.weight]);
    return keep(std::move(l), &objects_.linears, answer, verdict, id);
  }

  octavo_status seal(const octavo_slot_sink *sink) {
    return Sealer(rules_, objects_, sink).run(&objects_);
  }

  octavo_status linear_plan(uint32_t linear, octavo_linear_plan *out) const;
  octavo_status quantize_weight(const octavo_weight_call *c) const;
  octavo_status linear_forward(const octavo_forward_call *c) const;
  octavo_status linear_backward(const octavo_backward_call *c) const;
  octavo_status end_step(const octavo_step_call *c) const;

 protected:
  ~Backend() = default;

 private:
  Self &self() { return static_cast<Self &>(*this); }
  const Self &self() const { return static_cast<const Self &>(*this); }

  static Options parse(const octavo_session_desc &desc) {
    return OptionList<Options>().parse(desc.options, desc.option_count);
  }
  template <typename Object>
  static octavo_status keep(Object object, std::vector<Object> *objects, const Verdict &answer,
                            octavo_verdict *verdict, uint32_t *id) {
    if (answer.decision != OCTAVO_DECLINE) {
      const auto next = static_cast<uint32_t>(objects->size());
      objects->push_back(std::move(object));
      *id = next;
    }
    answer.fill(verdict, OCTAVO_LEVEL_LAYER);
    return OCTAVO_OK;
  }
  const Linear &sealed_linear(uint32_t id) const {
    if (id >= objects_.sealed_linears)
      throw Error(OCTAVO_INVALID, "expected a sealed linear below " +
                                      std::to_string(objects_.sealed_linears) + ", found " +
                                      std::to_string(id));
    return objects_.linears[id];
  }
  bool has_gradient_slot(const Parameter &p) const {
    for (size_t r = 0; r < rules_.size(); ++r)
      if (rules_[r].role == OCTAVO_ROLE_GRADIENT && p.places[r].slot != OCTAVO_NONE &&
          !(rules_[r].flags & OCTAVO_SLOT_NATIVE))
        return true;
    return false;
  }

  Device device_;
  Options options_{};
  std::vector<SlotRule> rules_;
  Objects objects_;
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#include "octavo/hpp/plugin/verbs.hpp"

#endif
