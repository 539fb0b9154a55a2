// octavo/hpp/plugin/backend.hpp: the base class of a backend; it handles everything but the method.
//
// class Mine : public octavo::plugin::Backend<Mine, Options> states its slots in declare() and
// computes in cast_weight(), forward() and backward(). The rest has defaults that a member of the
// same name replaces: check(), take_dtypes(), take_parameter(), take_linear(), finish_step().
// A replacement with another signature or under another name is a compile error of OCTAVO_PLUGIN
// (signatures.hpp, hooks.hpp).
#ifndef OCTAVO_HPP_PLUGIN_BACKEND_HPP
#define OCTAVO_HPP_PLUGIN_BACKEND_HPP

#include <memory>

#include "octavo/draft/grouped.h"
#include "octavo/hpp/plugin/calls.hpp"
#include "octavo/hpp/plugin/options.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

#define OCTAVO_AUTHOR_DETECT(Name, verb) \
  template <typename T, typename = void> \
  struct Name : std::false_type {};      \
  template <typename T>                  \
  struct Name<T, std::void_t<decltype(&T::verb)>> : std::true_type {}
OCTAVO_AUTHOR_DETECT(HasOptimizer, optimizer_step);
OCTAVO_AUTHOR_DETECT(HasGradients, run_stage);

template <typename Self, typename OptionsType = NoOptions>
class Backend {
 public:
  using Options = OptionsType;

  // ---- What a backend replaces. ----

  static void check(const Device &, const Options &, Verdicts &verdicts) {
    verdicts.need_casts({{OCTAVO_E4M3FN}, {OCTAVO_E5M2}});
    verdicts.accept("the kernels have float8_e4m3fn and float8_e5m2");
  }
  Verdict take_dtypes(const Parameter &p) const {
    if (is_plain_dtype(p.dtype) && (p.is_frozen() || is_plain_dtype(p.gradient_dtype)))
      return accept();
    return decline(OCTAVO_REASON_DTYPE,
                   "expected a parameter and a gradient of float32, "
                   "bfloat16 or float16");
  }
  // Whether it runs in FP8; a refusal leaves it with the host.
  Verdict take_parameter(const Parameter &) const { return accept(); }
  Verdict take_linear(const Linear &, const Parameter &) const { return accept(); }
  void cast_weight(Pass &, const WeightCall &) const {}
  void finish_step(Pass &, const StepCall &) const {}

  const Device &device() const { return device_; }
  const Options &options() const { return options_; }
  const Objects &objects() const { return session_ != nullptr ? session_->objects_ : objects_; }
  const std::vector<SlotRule> &rules() const {
    return session_ != nullptr ? session_->rules_ : rules_;
  }

  // What computes a linear, or casts a weight: this object, or one with the options of its own.
  const Self &self_of(const Linear &l) const { return variant(l.variant); }
  const Self &self_of(const Parameter &p) const { return variant(p.variant); }
  // nonfinite(), which casts set; no rule: the backend states none.
  FloatSlot flag() const { return flag_; }

  // ---- The verbs of octavo.backend/1. ----

  static octavo_status list_options(const octavo_option_sink *sink) {
    return OptionList<Options>().emit(sink);
  }
  static octavo_status check_session(const octavo_session_desc *desc,
                                     const octavo_verdict_sink *sink) {
    const Device device(*desc);
    Verdicts verdicts(device, sink);
    judge(device, parse(*desc), verdicts);
    return OCTAVO_OK;
  }
  void open(const octavo_session_desc &desc) {
    device_ = Device(desc);
    options_ = parse(desc);
    Verdicts verdicts(device_, nullptr);
    lacking_ = judge(device_, options_, verdicts);
    if (verdicts.declined()) throw Error(OCTAVO_UNSUPPORTED, verdicts.refusal());
    state_slots({}, 0);
  }

  octavo_status add_parameter(const octavo_parameter_desc *d, octavo_verdict *verdict,
                              uint32_t *id) {
    constexpr uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
    const std::string where = "\"" + text(d->name) + "\": expected ";
    if (d->reserved != 0 || (d->flags & ~known) != 0)
      throw Error(OCTAVO_INVALID, where + "reserved 0 and known flags, found reserved " +
                                      std::to_string(d->reserved) + ", flags " +
                                      std::to_string(d->flags));
    // Padding and the bytes of every slot stay far below 2^63 then.
    constexpr int64_t most = int64_t{1} << 40;
    const bool is_empty = d->rows < 1 || d->cols < 1;
    if (is_empty || d->rows > most || d->cols > most || d->rows > (most << 10) / d->cols)
      throw Error(OCTAVO_INVALID,
                  where +
                      (is_empty ? "at least one row and column, found ["
                                : "at most 2^40 rows and columns and 2^50 elements, found [") +
                      std::to_string(d->rows) + ", " + std::to_string(d->cols) + "]");
    Parameter p;
    p.id = static_cast<uint32_t>(objects_.parameters.size());
    p.name = text(d->name);
    p.rows = d->rows, p.cols = d->cols;
    p.dtype = d->dtype, p.gradient_dtype = d->gradient_dtype;
    p.flags = d->flags;
    Verdict answer = self().take_dtypes(p);
    if (answer.decision != OCTAVO_DECLINE) answer = self().take_parameter(p);
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
    Linear l;
    l.id = static_cast<uint32_t>(objects_.linears.size());
    l.name = text(d->name);
    l.weight = d->weight;
    Parameter &w = objects_.parameters[l.weight];
    std::unique_ptr<Self> fresh;
    Verdict answer = choose_variant(*d, &l.variant, &fresh);
    if (answer.decision != OCTAVO_DECLINE) answer = agree_on_weight(w, l.variant, answer);
    if (answer.decision != OCTAVO_DECLINE) {
      const std::string remark = std::move(answer.evidence);
      const Self &own = fresh ? *fresh : variant(l.variant);
      answer = own.take_linear(l, w);
      if (answer.evidence.empty()) answer.evidence = remark;
      if (answer.decision != OCTAVO_DECLINE && own.not_taken(w) == Lacking::kAll)
        answer = decline(OCTAVO_REASON_DTYPE,
                         "the kernels of this device lack a call for a weight of this dtype",
                         "choose another dtype, backend or device", own.lacking_.call);
    }
    variants_.reserve(variants_.size() + 1);
    const uint32_t variant = l.variant;
    const octavo_status status = keep(std::move(l), &objects_.linears, answer, verdict, id);
    if (answer.decision == OCTAVO_DECLINE) return status;
    w.variant = variant;
    if (fresh == nullptr) return status;
    rules_ = std::move(fresh->rules_);
    variants_.push_back(std::move(fresh));
    return status;
  }

  octavo_status seal(const octavo_slot_sink *sink) {
    Objects sealed;
    const octavo_status status = Sealer(rules_, objects_, sink).run(&sealed);
    if (status != OCTAVO_OK) return status;
    for (uint32_t i = objects_.sealed_linears; i < sealed.sealed_linears; ++i) {
      Linear &l = sealed.linears[i];
      measure_backward(l, sealed.parameters[l.weight], kMeasuredRows, &l.needs_x);
      l.saved = saved_extent(l, sealed.parameters[l.weight]);
    }
    objects_ = std::move(sealed);
    return status;
  }

  octavo_status linear_plan(uint32_t linear, octavo_linear_plan *out) const;
  octavo_status quantize_weight(const octavo_weight_call *c) const;
  octavo_status linear_forward(const octavo_forward_call *c) const;
  octavo_status linear_backward(const octavo_backward_call *c) const;
  octavo_status end_step(const octavo_step_call *c) const;

  // ---- The verbs of octavo.grouped/1. ----

  octavo_status grouped_plan(const uint32_t *linears, uint32_t count,
                             octavo_grouped_plan *out) const;
  octavo_status grouped_forward(const octavo_grouped_forward_call *c) const;
  octavo_status grouped_backward(const octavo_grouped_backward_call *c) const;

 protected:
  // In declare(): outside of training the host's own linear is to compute
  // (OCTAVO_LINEAR_EVALUATES_IN_HOST). forward() still gets such calls of hosts without one.
  void evaluate_in_host(bool is) { evaluates_in_host_ = is; }
  // In declare(): x, y, dy and dx of these dtypes (OCTAVO_F32, ...) are not taken. Calls with them
  // are answered OCTAVO_UNSUPPORTED before forward() or backward() is called.
  void decline_dtypes(std::initializer_list<uint32_t> dtypes) {
    for (const uint32_t dtype : dtypes) declined_ |= declined_flag(dtype);
  }

  ~Backend() = default;

  Self &self() { return static_cast<Self &>(*this); }
  const Self &self() const { return static_cast<const Self &>(*this); }

  const Linear &sealed_linear(uint32_t id) const {
    if (id >= objects_.sealed_linears)
      throw Error(OCTAVO_INVALID, "expected a sealed linear below " +
                                      std::to_string(objects_.sealed_linears) + ", found " +
                                      std::to_string(id));
    return objects_.linears[id];
  }
  // The linear of a well-formed call; verbs.hpp says what that is.
  const Linear &checked(const octavo_forward_call &c) const;
  const Linear &checked(const octavo_backward_call &c) const;
  // The verbs without memory: what they take, and whether backward asks for x. What forward writes
  // to `saved` before a backward, it may write to the workspace else.
  enum class Before { kBackward, kNothing, kEvaluation };
  // dtype: of x, y, dy and dx; sums: of dw and db.
  Pass measure_forward(const Linear &l, const Parameter &w, int64_t m, Before next, bool fused,
                       uint32_t dtype) const;
  Pass measure_forward(const Linear &l, const Parameter &w, int64_t m, Before next,
                       bool fused = false) const {
    return measure_forward(l, w, m, next, fused, taken_dtype(self_of(l).not_taken(w)));
  }
  // What is enough for each of these: bytes(m, next).
  template <typename Bytes>
  static octavo_extent largest_extent(Bytes bytes) {
    octavo_extent all = extent_of([&](int64_t m) { return bytes(m, Before::kBackward); });
    for (const Before next : {Before::kNothing, Before::kEvaluation}) {
      const octavo_extent one = extent_of([&](int64_t m) { return bytes(m, next); });
      all.bytes_per_row = std::max(all.bytes_per_row, one.bytes_per_row);
      all.fixed_bytes = std::max(all.fixed_bytes, one.fixed_bytes);
    }
    return all;
  }
  Pass measure_backward(const Linear &l, const Parameter &w, int64_t m, bool *reads_x,
                        uint32_t dtype, uint32_t sums) const;
  Pass measure_backward(const Linear &l, const Parameter &w, int64_t m, bool *reads_x) const {
    return measure_backward(l, w, m, reads_x, taken_dtype(self_of(l).not_taken(w)), OCTAVO_F32);
  }
  // OCTAVO_LINEAR_DECLINES_... of linears with this weight.
  uint32_t not_taken(const Parameter &w) const { return declined_ | lacking_.of(w.dtype); }

 private:
  const Self &variant(uint32_t number) const {
    return number == 0 ? self() : *variants_[number - 1];
  }
  // variants.hpp
  void state_slots(std::vector<SlotRule> before, uint32_t number);
  Verdict choose_variant(const octavo_linear_desc &d, uint32_t *number,
                         std::unique_ptr<Self> *fresh) const;
  Verdict agree_on_weight(const Parameter &w, uint32_t number, Verdict answer) const;
  // Whether the class has its own; a default is a member of Backend.
  static constexpr bool casts_weights() {
    return !std::is_same_v<decltype(&Self::cast_weight), decltype(&Backend::cast_weight)>;
  }
  static constexpr bool finishes_steps() {
    return !std::is_same_v<decltype(&Self::finish_step), decltype(&Backend::finish_step)>;
  }
  octavo_extent saved_extent(const Linear &l, const Parameter &w) const {
    return extent_of(
        [&](int64_t m) { return measure_forward(l, w, m, Before::kBackward).saved_bytes(); },
        measure_forward(l, w, 0, Before::kBackward).saved_rows());
  }
  void check_group(const uint32_t *linears, uint32_t count) const;
  static Options parse(const octavo_session_desc &desc) {
    if (const uint64_t known = OCTAVO_SESSION_DETERMINISTIC; (desc.flags & ~known) != 0)
      throw Error(OCTAVO_INVALID, "expected known flags of the session, at most " +
                                      std::to_string(known) + ", found " +
                                      std::to_string(desc.flags));
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
  static Lacking judge(const Device &device, const Options &options, Verdicts &verdicts) {
    if (kMeasuredRows % device.alignment() != 0)
      verdicts.decline(OCTAVO_REASON_KERNEL,
                       "the kernels want sizes of a multiple that does not divide 256");
    Verdicts first(device, nullptr);
    Self::check(device, options, first);
    Lacking lacking;
    if (!first.declined() && !verdicts.declined()) lacking = find_lacking(device, options);
    if (lacking.is_everything())
      verdicts.decline(OCTAVO_REASON_KERNEL,
                       "the kernels of this device lack a call of the backend",
                       "choose another backend or device", lacking.call);
    else
      Self::check(device, options, verdicts);
    return lacking;
  }
  // variants.hpp
  static Lacking find_lacking(const Device &device, const Options &options);
  void measure_all(uint32_t dtype) const;
  void finish(Pass &p, const octavo_step_call &c) const;

  Device device_;
  Options options_{};
  std::vector<SlotRule> rules_;  // of all variants
  FloatSlot flag_;
  Objects objects_;
  std::vector<std::unique_ptr<Self>> variants_;  // for options of linears, from 1 on
  const Backend *session_ = nullptr;             // of a variant
  bool evaluates_in_host_ = false;
  uint32_t declined_ = 0;  // OCTAVO_LINEAR_DECLINES_...
  Lacking lacking_;
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#include "octavo/hpp/plugin/variants.hpp"
#include "octavo/hpp/plugin/verbs.hpp"

#endif
