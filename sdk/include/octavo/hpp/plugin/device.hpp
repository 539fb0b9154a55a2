// octavo/hpp/plugin/device.hpp: what a session runs on, and the verdicts on whether it can.
#ifndef OCTAVO_HPP_PLUGIN_DEVICE_HPP
#define OCTAVO_HPP_PLUGIN_DEVICE_HPP

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/hpp/plugin/abilities.hpp"
#include "octavo/hpp/plugin/barrier.hpp"
#include "octavo/hpp/plugin/scales.hpp"
#include "octavo/kernels.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

inline bool is_plain_dtype(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

// Codes, and how many of them share a scale.
struct CodeFormat {
  uint32_t dtype = OCTAVO_E4M3FN;
  uint32_t granularity = OCTAVO_PER_TENSOR;
};
inline std::string describe(CodeFormat f) {
  return std::string(describe_dtype(f.dtype)) + " with " + describe_scales(f.granularity);
}

// A call of kernels besides casts and products, by the kind of its struct.
struct KernelCall {
  uint32_t kind;
  const char *name;    // of the function, for refusals
  uint32_t dtype = 0;  // of octavo_ability
  uint32_t b_dtype = 0;
};

// Copied from the session's description; the options, which are valid during open only, are not.
class Device {
 public:
  Device() = default;
  explicit Device(const octavo_session_desc &desc)
      : host_(desc.host),
        kernels_(desc.kernels),
        tables_(desc.kernels, desc.kernels_ctx),
        caps_(desc.caps),
        ctx_(desc.kernels_ctx),
        where_(desc.device) {
    if (caps_->alignment > 1) alignment_ = static_cast<int64_t>(caps_->alignment);
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16})
      has_amax_ = has_amax_ && executes(OCTAVO_KIND_COMPUTE_AMAX, dtype);
  }

  // Whether the kernels have compute_amax of every plain dtype; a cast without codes does the same.
  bool has_amax() const { return has_amax_; }

  const octavo_host *host() const { return host_; }
  const octavo_kernels &kernels() const { return *kernels_; }
  // octavo_kernels, or a table of octavo/draft; null where the kernels have none.
  template <typename Table>
  const Table *table() const {
    return tables_.get<Table>();
  }
  void *ctx() const { return ctx_; }
  // For a backend that declines a kind of device, or kernels by their id.
  octavo_device where() const { return where_; }
  std::string_view kernels_id() const { return view(caps_->id); }
  bool has(uint64_t caps_flag) const { return (caps_->flags & caps_flag) != 0; }
  // The kernels' answer about one call; `question` has the call and its formats.
  octavo_ability ask(octavo_ability question) const {
    question.size = sizeof(question);
    question.kind = OCTAVO_KIND_ABILITY;
    if (kernels_->ability(ctx_, &question) != OCTAVO_OK) question.decision = OCTAVO_DECLINE;
    return question;
  }
  octavo_ability ask_cast(CodeFormat out) const {
    return ask(question(OCTAVO_KIND_QUANTIZE, out.dtype, out.granularity));
  }
  octavo_ability ask_product(CodeFormat a, CodeFormat b, uint32_t layout = 0) const {
    octavo_ability q = question(OCTAVO_KIND_GEMM, a.dtype, a.granularity);
    q.flags = layout;
    q.b_dtype = b.dtype;
    q.b_granularity = b.granularity;
    return ask(q);
  }
  // From now on, each call that is measured is asked about.
  void set_questions(Questions *questions) { questions_ = questions; }
  bool has_questions() const { return questions_ != nullptr; }
  template <typename Call>
  void ask_about(const Call &call) const {
    if (questions_ != nullptr) questions_->ask(*kernels_, ctx_, question_of(call));
  }
  // Whether a session should rely on what was answered: emulation is for devices that have nothing
  // else.
  bool serves(const octavo_ability &answer) const {
    return answer.decision == OCTAVO_ACCEPT ||
           (answer.decision == OCTAVO_ACCEPT_EMULATED && has(OCTAVO_CAPS_EMULATED));
  }
  // Whether the kernels execute a call; dtype: of octavo_ability, 0 for one without formats.
  bool executes(uint32_t call, uint32_t dtype = 0) const {
    return ask(question(call, dtype)).decision != OCTAVO_DECLINE;
  }
  bool casts_to(CodeFormat out) const { return serves(ask_cast(out)); }
  bool multiplies(CodeFormat a, CodeFormat b) const { return serves(ask_product(a, b)); }

  // A power of two: a session on other kernels is refused.
  int64_t alignment() const { return alignment_; }
  // A size as products of these codes need it; the difference is padding of zeros. Codes of four
  // bits come in whole blocks of 16.
  int64_t aligned(int64_t n, uint32_t dtype = OCTAVO_E4M3FN) const {
    return round_up(n, dtype == OCTAVO_E2M1 ? std::max(alignment_, int64_t{16}) : alignment_);
  }
  // Rows of a panel of weights that `pack` writes; 0: the kernels have no such order.
  int64_t pack_rows() const {
    return OCTAVO_HAS(caps_, octavo_kernels_caps, pack_rows)
               ? static_cast<int64_t>(caps_->pack_rows)
               : 0;
  }

 private:
  const octavo_host *host_ = nullptr;
  const octavo_kernels *kernels_ = nullptr;
  KernelsTables tables_;
  const octavo_kernels_caps *caps_ = nullptr;
  void *ctx_ = nullptr;
  octavo_device where_{};
  int64_t alignment_ = 1;
  bool has_amax_ = true;
  Questions *questions_ = nullptr;
};

// A text that outlives every session of the plugin: each different one is kept once.
inline octavo_str interned(const std::string &text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  if (text.empty()) return {};
  const std::lock_guard<std::mutex> lock(mutex);
  return borrow(*texts.insert(text).first);
}

// What to do, in words or as a change of the configuration, which liboctavo shows as an exact edit.
// Literals, or texts that live as long as the session.
struct Remedy {
  constexpr Remedy() = default;
  constexpr Remedy(const char *words) : more(words) {}
  constexpr Remedy(const char *key_, const char *value_, const char *more_)
      : key(key_), value(value_), more(more_) {}
  // "set fp8.te.recipe = "mx", or ...". A key without a value is to be removed.
  std::string text() const {
    return *value == 0 ? more : std::string("set ") + key + " = " + value + more;
  }

  const char *key = "";
  const char *value = "";  // in TOML
  const char *more = "";   // what follows "set KEY = VALUE"; all of it without a value
};
constexpr Remedy set_key(const char *key, const char *value, const char *more = "") {
  return {key, value, more};
}

// One answer. The text is a literal, or lives as long as the session.
struct Verdict {
  uint32_t decision = OCTAVO_DECLINE;
  uint32_t reason = OCTAVO_REASON_NONE;
  const char *text = "";
  Remedy remedy{};
  std::string evidence{};  // what was found

  void fill(octavo_verdict *v, uint32_t level) const {
    if (v == nullptr) return;
    v->level = level;
    v->decision = decision;
    v->reason = reason;
    v->text = borrow(text);
    v->remedy = interned(remedy.text());
    v->remedy_key = borrow(remedy.key);
    v->remedy_value = borrow(remedy.value);
    v->evidence = interned(evidence);
  }
};
inline Verdict accept(const char *text = "") {
  return {OCTAVO_ACCEPT, OCTAVO_REASON_NONE, text};
}
inline Verdict decline(uint32_t reason, const char *text, Remedy remedy = {},
                       std::string evidence = {}) {
  return {OCTAVO_DECLINE, reason, text, remedy, std::move(evidence)};
}

// Receives the verdicts of check_session; open_session fails with the first refusal.
class Verdicts {
 public:
  // Without a sink only the refusal is kept.
  Verdicts(const Device &device, const octavo_verdict_sink *sink) : device_(device), sink_(sink) {}

  void add(const Verdict &verdict, uint32_t level = OCTAVO_LEVEL_SESSION) {
    if (sink_ != nullptr) {
      auto v = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
      verdict.fill(&v, level);
      sink_->verdict(sink_->ctx, &v);
    }
    if (verdict.decision == OCTAVO_DECLINE && !declined()) refusal_ = verdict;
    if (verdict.decision != OCTAVO_DECLINE && verdict.reason != OCTAVO_REASON_NONE)
      remark_ = verdict.text;
  }
  void decline(uint32_t reason, const char *text, Remedy remedy = {}, std::string evidence = {}) {
    add(plugin::decline(reason, text, remedy, std::move(evidence)));
  }
  // The last word: nothing after a refusal, and "emulated" where the hardware has no FP8.
  void accept(const char *text) {
    if (declined()) return;
    Verdict v = plugin::accept(text);
    if (device_.has(OCTAVO_CAPS_EMULATED)) v.decision = OCTAVO_ACCEPT_EMULATED;
    add(v);
  }
  // What the recipe does; each that the kernels do not do well is a refusal.
  void need_casts(std::initializer_list<CodeFormat> formats) {
    for (const CodeFormat f : formats)
      need(device_.ask_cast(f), OCTAVO_REASON_DTYPE, "the kernels lack a cast of the recipe",
           describe(f));
  }
  void need_product(CodeFormat a, CodeFormat b, Remedy remedy = kAnotherDevice,
                    uint32_t layout = 0) {
    need(device_.ask_product(a, b, layout), OCTAVO_REASON_KERNEL,
         "the kernels of this device lack a product of the recipe",
         describe(a) + " by " + describe(b), remedy);
  }
  void need_calls(std::initializer_list<KernelCall> calls) {
    for (const KernelCall &c : calls) {
      octavo_ability question{};
      question.call = c.kind;
      question.dtype = c.dtype;
      question.b_dtype = c.b_dtype;
      // Units are a question of casts and products.
      if (const octavo_ability answer = device_.ask(question); answer.decision == OCTAVO_DECLINE)
        lacks(answer, OCTAVO_REASON_KERNEL, "the kernels of this device lack a call of the backend",
              c.name, kAnotherDevice);
    }
  }
  const Verdict &first_refusal() const { return refusal_; }
  // What was said about options that are accepted; empty: nothing.
  const char *remark() const { return remark_; }
  bool declined() const { return refusal_.decision == OCTAVO_DECLINE; }
  // The first one: what was expected, what was found, what to do.
  std::string refusal() const {
    std::string all = refusal_.text;
    if (!refusal_.evidence.empty()) all += "; found " + refusal_.evidence;
    if (const std::string remedy = refusal_.remedy.text(); !remedy.empty()) all += "; " + remedy;
    return all;
  }

 private:
  void need(const octavo_ability &answer, uint32_t reason, const char *text, std::string what,
            Remedy remedy = kAnotherDevice) {
    if (!device_.serves(answer)) lacks(answer, reason, text, std::move(what), remedy);
  }
  void lacks(const octavo_ability &answer, uint32_t reason, const char *text, std::string what,
             Remedy remedy) {
    if (answer.evidence.size > 0)
      what += ": " + std::string(answer.evidence.data, answer.evidence.size);
    decline(reason, text, remedy, std::move(what));
  }

  static constexpr Remedy kAnotherDevice = "choose another backend or device";
  const Device &device_;
  const octavo_verdict_sink *sink_;
  Verdict refusal_ = plugin::accept();
  const char *remark_ = "";
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
