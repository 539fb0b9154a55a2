// octavo/hpp/plugin/device.hpp: what a session runs on, and the verdicts on whether it can.
#ifndef OCTAVO_HPP_PLUGIN_DEVICE_HPP
#define OCTAVO_HPP_PLUGIN_DEVICE_HPP

#include <initializer_list>
#include <mutex>
#include <set>
#include <string>

#include "octavo/hpp/plugin/barrier.hpp"
#include "octavo/hpp/plugin/scales.hpp"
#include "octavo/kernels.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace author {

inline bool is_plain_dtype(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

// Copied from the session's description; the options, which are valid during open only, are not.
class Device {
 public:
  Device() = default;
  explicit Device(const octavo_session_desc &desc)
      : host_(desc.host), kernels_(desc.kernels), caps_(desc.caps), ctx_(desc.kernels_ctx) {
    if (caps_->alignment > 1) alignment_ = static_cast<int64_t>(caps_->alignment);
  }

  const octavo_host *host() const { return host_; }
  const octavo_kernels &kernels() const { return *kernels_; }
  void *ctx() const { return ctx_; }
  bool has(uint64_t caps_flag) const { return (caps_->flags & caps_flag) != 0; }
  bool has_dtype(uint32_t dtype) const { return (caps_->dtypes & OCTAVO_DTYPE_BIT(dtype)) != 0; }
  bool has_granularity(uint32_t g) const { return (caps_->granularities >> g & 1) != 0; }

  // A power of two: a session on other kernels is refused.
  int64_t alignment() const { return alignment_; }
  // A size as FP8 GEMMs need it; the difference is padding of zeros.
  int64_t aligned(int64_t n) const { return round_up(n, alignment()); }
  // Rows of a panel of weights that `pack` writes; 0: the kernels have no such order.
  int64_t pack_rows() const {
    return OCTAVO_HAS(caps_, octavo_kernels_caps, pack_rows)
               ? static_cast<int64_t>(caps_->pack_rows)
               : 0;
  }

 private:
  const octavo_host *host_ = nullptr;
  const octavo_kernels *kernels_ = nullptr;
  const octavo_kernels_caps *caps_ = nullptr;
  void *ctx_ = nullptr;
  int64_t alignment_ = 1;
};

// A text that outlives every session of the plugin: each different one is kept once.
inline octavo_str kept_text(const std::string &text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  if (text.empty()) return {};
  const std::lock_guard<std::mutex> lock(mutex);
  return borrow(*texts.insert(text).first);
}

// One answer. Text and remedy are literals, or live as long as the session.
struct Verdict {
  uint32_t decision = OCTAVO_DECLINE;
  uint32_t reason = OCTAVO_REASON_NONE;
  const char *text = "";
  const char *remedy = "";
  std::string evidence{};  // what was found

  void fill(octavo_verdict *v, uint32_t level) const {
    if (v == nullptr) return;
    v->level = level;
    v->decision = decision;
    v->reason = reason;
    v->text = borrow(text);
    v->remedy = borrow(remedy);
    v->evidence = kept_text(evidence);
  }
};
inline Verdict accept(const char *text = "") {
  return {OCTAVO_ACCEPT, OCTAVO_REASON_NONE, text};
}
inline Verdict decline(uint32_t reason, const char *text, const char *remedy = "",
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
  }
  void decline(uint32_t reason, const char *text, const char *remedy = "",
               std::string evidence = {}) {
    add(author::decline(reason, text, remedy, std::move(evidence)));
  }
  // The last word: nothing after a refusal, and "emulated" where the hardware has no FP8.
  void accept(const char *text) {
    if (declined()) return;
    Verdict v = author::accept(text);
    if (device_.has(OCTAVO_CAPS_EMULATED)) v.decision = OCTAVO_ACCEPT_EMULATED;
    add(v);
  }
  void need_dtypes(std::initializer_list<uint32_t> dtypes) {
    for (const uint32_t dtype : dtypes) {
      if (device_.has_dtype(dtype)) continue;
      decline(OCTAVO_REASON_DTYPE, dtype == OCTAVO_E4M3FN ? "the kernels lack float8_e4m3fn"
                                   : dtype == OCTAVO_E5M2
                                       ? "the kernels lack float8_e5m2"
                                       : "the kernels lack a dtype that this backend casts to");
    }
  }
  void need_granularities(std::initializer_list<uint32_t> granularities) {
    for (const uint32_t granularity : granularities)
      if (!device_.has_granularity(granularity))
        decline(OCTAVO_REASON_KERNEL, "the kernels of this device lack the scales of the recipe",
                "choose another backend or device",
                std::string("no ") + describe_scales(granularity));
  }
  bool declined() const { return refusal_.decision == OCTAVO_DECLINE; }
  // The first one: what was expected, what was found, what to do.
  std::string refusal() const {
    std::string all = refusal_.text;
    if (!refusal_.evidence.empty()) all += "; found " + refusal_.evidence;
    if (*refusal_.remedy != 0) all += std::string("; ") + refusal_.remedy;
    return all;
  }

 private:
  const Device &device_;
  const octavo_verdict_sink *sink_;
  Verdict refusal_ = author::accept();
};

}  // namespace author
}  // namespace octavo
#pragma GCC visibility pop

#endif
