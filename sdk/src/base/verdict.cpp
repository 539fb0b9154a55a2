// Copies verdicts across the C boundary; both older and newer senders are accepted.
#include "sdk/src/base/verdict.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {

Verdict copy_verdict(const octavo_verdict &v) {
  const octavo_verdict own = copy_known_fields(v);
  if (own.decision > OCTAVO_ACCEPT_EMULATED)
    return {own.level,
            OCTAVO_DECLINE,
            OCTAVO_REASON_ABI,
            concat("the plugin answered decision ", own.decision,
                   "; expected 0 (decline), 1 (accept) or 2 (accept emulated)"),
            take_text(own.text),
            "install a corrected build of the plugin"};
  return {own.level,
          own.decision,
          own.reason,
          take_text(own.text),
          take_text(own.evidence),
          Remedy(take_text(own.remedy), {.key = take_text(own.remedy_key),
                                         .value = take_text(own.remedy_value),
                                         .command = take_text(own.remedy_command)})};
}

void lend_verdict(const Verdict &from, octavo_verdict *to) {
  if (to == nullptr) return;
  octavo_verdict v{};
  v.size = to->size;
  v.kind = to->kind;
  v.level = from.level;
  v.decision = from.decision;
  v.reason = from.reason;
  v.text = borrow(from.text);
  v.evidence = borrow(from.evidence);
  v.remedy = borrow(from.remedy.text);
  v.remedy_key = borrow(from.remedy.fix.key);
  v.remedy_value = borrow(from.remedy.fix.value);
  v.remedy_command = borrow(from.remedy.fix.command);
  std::memcpy(to, &v, std::min<size_t>(to->size, sizeof(v)));
}

bool declined(const std::vector<Verdict> &verdicts) {
  return std::any_of(verdicts.begin(), verdicts.end(),
                     [](const Verdict &v) { return v.decision == OCTAVO_DECLINE; });
}

namespace {

// In the order of Stage.
constexpr const char *kStageNames[] = {"",      "config", "discovery", "manifest", "trust",  "elf",
                                       "probe", "load",   "plugin",    "device",   "session"};

}  // namespace

const char *stage_name(Stage stage) {
  return kStageNames[static_cast<size_t>(stage)];
}

std::optional<Stage> stage_of(std::string_view name) {
  const auto found = std::find(std::begin(kStageNames), std::end(kStageNames), name);
  if (found == std::end(kStageNames)) return std::nullopt;
  return static_cast<Stage>(found - std::begin(kStageNames));
}

const char *level_name(uint32_t level) {
  switch (level) {
    case OCTAVO_LEVEL_MANIFEST: return "manifest";
    case OCTAVO_LEVEL_PLUGIN: return "plugin";
    case OCTAVO_LEVEL_DEVICE: return "device";
    case OCTAVO_LEVEL_SESSION: return "session";
    case OCTAVO_LEVEL_LAYER: return "layer";
    default: return "other";
  }
}

const char *decision_name(uint32_t decision) {
  switch (decision) {
    case OCTAVO_ACCEPT: return "accept";
    case OCTAVO_ACCEPT_EMULATED: return "accept-emulated";
    default: return "decline";
  }
}

const char *reason_name(uint32_t reason) {
  switch (reason) {
    case OCTAVO_REASON_NONE: return "none";
    case OCTAVO_REASON_ABI: return "abi";
    case OCTAVO_REASON_DEVICE: return "device";
    case OCTAVO_REASON_DRIVER: return "driver";
    case OCTAVO_REASON_KERNEL: return "kernel";
    case OCTAVO_REASON_DTYPE: return "dtype";
    case OCTAVO_REASON_SHAPE: return "shape";
    case OCTAVO_REASON_OPTION: return "option";
    case OCTAVO_REASON_POLICY: return "policy";
    case OCTAVO_REASON_TOO_SMALL: return "too-small";
    case OCTAVO_REASON_MANIFEST: return "manifest";
    case OCTAVO_REASON_TRUST: return "trust";
    case OCTAVO_REASON_LIBRARY: return "library";
    case OCTAVO_REASON_PROBE: return "probe";
    case OCTAVO_REASON_LOCK: return "lock";
    case OCTAVO_REASON_REQUIRE: return "require";
    case OCTAVO_REASON_CONFIG: return "config";
    case OCTAVO_REASON_RESOURCE: return "resource";
    default: return "other";
  }
}

std::string reason_page(uint32_t reason) {
  if (reason == OCTAVO_REASON_NONE || reason > OCTAVO_REASON_RESOURCE) return {};
  return std::string("docs/reasons.md#") + reason_name(reason);
}

VerdictSink::VerdictSink(std::vector<Verdict> &out)
    : out_(out), table_(make<octavo_verdict_sink>(OCTAVO_KIND_VERDICT_SINK)) {
  table_.ctx = this;
  table_.verdict = [](void *ctx, const octavo_verdict *v) {
    auto *sink = static_cast<VerdictSink *>(ctx);
    try {
      if (v != nullptr) sink->out_.push_back(copy_verdict(*v));
    } catch (const std::bad_alloc &) {
      sink->lost_ = true;
    }
  };
}

void VerdictSink::check() const {
  if (lost_) throw std::bad_alloc();  // GCOVR_EXCL_BR_LINE: octavo_out_of_memory_test
}

}  // namespace octavo
