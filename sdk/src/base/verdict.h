// Verdict: one answer to "can this run here?", kept with its texts for the report.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/host.h"
#include "sdk/src/base/failure.h"

namespace octavo {

// Where a verdict was given: while the configuration was read, or at one of the stages that a
// backend passes in this order. kNone: as the verdict's level says.
enum class Stage : uint8_t {
  kNone,
  kConfig,
  kDiscovery,
  kManifest,
  kTrust,
  kElf,
  kProbe,
  kLoad,
  kPlugin,
  kDevice,
  kSession
};

struct Verdict {
  uint32_t level = 0;     // OCTAVO_LEVEL_...
  uint32_t decision = 0;  // OCTAVO_DECLINE, ...
  uint32_t reason = 0;    // OCTAVO_REASON_...
  std::string text;
  std::string evidence;
  Remedy remedy;
  Stage stage = Stage::kNone;
};

// Copies the verdict of a plugin or a kernels table; fields that an older struct lacks stay empty.
// A decision that is none declines.
Verdict copy_verdict(const octavo_verdict &v);

// Borrows the texts of `from`, which must outlive what `to` is used for. `to` may be null.
void lend_verdict(const Verdict &from, octavo_verdict *to);

bool declined(const std::vector<Verdict> &verdicts);

// "elf"; empty for kNone.
const char *stage_name(Stage stage);
// The stage of a name; nothing for any other text.
std::optional<Stage> stage_of(std::string_view name);

const char *level_name(uint32_t level);
const char *decision_name(uint32_t decision);
const char *reason_name(uint32_t reason);

// The page about a reason, "docs/reasons.md#trust"; empty for OCTAVO_REASON_NONE and unknown ones.
std::string reason_page(uint32_t reason);

// A sink that appends to `out`, which must outlive it. Nothing leaves it into the plugin that calls
// it: `check`, after the call, throws std::bad_alloc when a verdict was lost.
class VerdictSink {
 public:
  explicit VerdictSink(std::vector<Verdict> &out);
  VerdictSink(const VerdictSink &) = delete;
  VerdictSink &operator=(const VerdictSink &) = delete;
  const octavo_verdict_sink *get() const { return &table_; }
  void check() const;

 private:
  std::vector<Verdict> &out_;
  bool lost_ = false;
  octavo_verdict_sink table_;
};

}  // namespace octavo
