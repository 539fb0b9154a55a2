// What octavo-probe writes into its pipe: length-prefixed records, read with limits on everything.
//
// A plugin runs in the process that writes, so the reader trusts no byte: a number, a length, an
// order or a text that is not as agreed makes the whole answer rubbish.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/text.h"
#include "sdk/src/base/verdict.h"

namespace octavo {

// The stages of a probe in order. The first three are the caller's, before any plugin code runs.
enum class ProbeStage : uint32_t {
  kNone = 0,
  kPolicy = 1,
  kElf = 2,
  kManifest = 3,
  kDlopen = 4,
  kEntry = 5,
  kNegotiate = 6,
  kDescribe = 7,
  kSelfTest = 8,
  kExit = 9
};
const char *stage_name(ProbeStage stage);

constexpr size_t kMaxProbeRecord = size_t{64} << 10;  // bytes, with its type
constexpr size_t kMaxProbeBytes = size_t{1} << 20;    // of all records
constexpr size_t kMaxProbeText = 4096;
constexpr size_t kMaxProbeTexts = 64;  // verdicts, and warnings, and notes

struct ProbeAnswer {
  ProbeStage stage = ProbeStage::kNone;  // the last one that began
  std::vector<Verdict> verdicts;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // for people who look closely
  std::string call;                // of the self-test, the last one that began
  bool complete = false;           // the last record arrived
};

// One record each. Texts become plain_text of at most kMaxProbeText bytes.
std::string hello_record();
std::string stage_record(ProbeStage stage);
std::string verdict_record(const Verdict &verdict);
std::string warning_record(std::string_view text);
std::string note_record(std::string_view text);
std::string call_record(std::string_view text);
std::string end_record();

class ProbeReader {
 public:
  // Takes the next bytes, in pieces of any size. False: they are rubbish, problem() has the reason,
  // and nothing more is taken.
  bool feed(std::string_view bytes);

  const std::string &problem() const { return problem_; }
  const ProbeAnswer &answer() const { return answer_; }
  // No bytes of an unfinished record are waiting.
  bool at_border() const { return waiting_.empty(); }

 private:
  template <typename... Part>
  bool rubbish(const Part &...text) {
    problem_ = concat(text...);
    return false;
  }
  bool take(std::string_view record);
  bool take_verdict(std::string_view body);
  bool take_text(std::string_view body, std::vector<std::string> &to, const char *what);

  std::string waiting_;
  std::string problem_;
  size_t total_ = 0;
  bool greeted_ = false;
  ProbeAnswer answer_;
};

}  // namespace octavo
