// Record: u32 length of what follows, u32 type, body. Numbers are little-endian, texts are u32
// length and bytes.
#include "sdk/src/probe/probe_wire.h"

#include <iterator>

#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

enum Type : uint32_t {
  kHello = 1,
  kStage = 2,
  kVerdict = 3,
  kWarning = 4,
  kNote = 5,
  kEnd = 6,
  kCall = 7
};
constexpr std::string_view kGreeting = "octavo-probe 1";

void put(std::string &to, uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) to += static_cast<char>((number >> shift) & 255);
}

void put(std::string &to, std::string_view text) {
  const std::string clean = plain_text(text, kMaxProbeText);
  put(to, static_cast<uint32_t>(clean.size()));
  to += clean;
}

// Bytes without their length.
struct Raw {
  std::string_view bytes;
};
void put(std::string &to, Raw raw) {
  to += raw.bytes;
}

template <typename... Part>
std::string record(Type type, const Part &...parts) {
  std::string body;
  (put(body, parts), ...);
  std::string whole;
  put(whole, static_cast<uint32_t>(body.size() + 4));
  put(whole, static_cast<uint32_t>(type));
  return whole + body;
}

// Reads from the front of `from`; false when it is too short.
bool get(std::string_view &from, uint32_t &number) {
  if (from.size() < 4) return false;
  number = 0;
  for (int i = 3; i >= 0; --i)
    number = number << 8 | static_cast<unsigned char>(from[static_cast<size_t>(i)]);
  from.remove_prefix(4);
  return true;
}

bool get(std::string_view &from, std::string &text) {
  uint32_t size = 0;
  if (!get(from, size) || size > kMaxProbeText || size > from.size()) return false;
  text = from.substr(0, size);
  from.remove_prefix(size);
  return plain_text(text, kMaxProbeText) == text;
}

}  // namespace

const char *stage_name(ProbeStage stage) {
  static const char *const names[] = {"start", "policy",    "elf",      "manifest",  "dlopen",
                                      "entry", "negotiate", "describe", "self-test", "exit"};
  const auto index = static_cast<size_t>(stage);
  return index < std::size(names) ? names[index] : "unknown";
}

std::string hello_record() {
  return record(kHello, Raw{kGreeting});
}

std::string stage_record(ProbeStage stage) {
  return record(kStage, static_cast<uint32_t>(stage));
}

std::string verdict_record(const Verdict &verdict) {
  return record(kVerdict, verdict.level, verdict.decision, verdict.reason, verdict.text,
                verdict.evidence, verdict.remedy.text, verdict.remedy.fix.key,
                verdict.remedy.fix.value, verdict.remedy.fix.command, stage_name(verdict.stage));
}

std::string warning_record(std::string_view text) {
  return record(kWarning, text);
}

std::string note_record(std::string_view text) {
  return record(kNote, text);
}

std::string call_record(std::string_view text) {
  return record(kCall, text);
}

std::string end_record() {
  return record(kEnd);
}

bool ProbeReader::feed(std::string_view bytes) {
  if (!problem_.empty()) return false;
  total_ += bytes.size();
  if (total_ > kMaxProbeBytes)
    return rubbish("expected at most ", kMaxProbeBytes, " bytes, found more");
  waiting_ += bytes;
  std::string_view rest = waiting_;
  while (rest.size() >= 4) {
    std::string_view record = rest;
    uint32_t length = 0;
    get(record, length);
    if (length < 4 || length > kMaxProbeRecord)
      return rubbish("expected a record of 4 to ", kMaxProbeRecord, " bytes, found one of ",
                     length);
    if (record.size() < length) break;
    if (!take(record.substr(0, length))) return false;
    rest.remove_prefix(4 + size_t{length});
  }
  waiting_.erase(0, waiting_.size() - rest.size());
  return true;
}

bool ProbeReader::take(std::string_view body) {
  uint32_t type = 0;
  uint32_t stage = 0;
  get(body, type);
  if (answer_.complete) return rubbish("expected nothing after the last record, found type ", type);
  if (!greeted_) {
    greeted_ = type == kHello && body == kGreeting;
    if (greeted_) return true;
    return rubbish("expected the greeting \"", kGreeting, "\" first, found type ", type);
  }
  switch (type) {
    case kStage:
      if (!get(body, stage) || !body.empty() || stage > static_cast<uint32_t>(ProbeStage::kExit) ||
          stage <= static_cast<uint32_t>(answer_.stage))
        return rubbish("expected a stage after \"", stage_name(answer_.stage), "\", found ", stage);
      answer_.stage = static_cast<ProbeStage>(stage);
      return true;
    case kVerdict: return take_verdict(body);
    case kWarning: return take_text(body, answer_.warnings, "warning");
    case kNote: return take_text(body, answer_.notes, "note");
    case kCall:
      if (get(body, answer_.call) && body.empty()) return true;
      return rubbish("expected a call of UTF-8 text, found another record");
    case kEnd:
      answer_.complete = body.empty();
      if (answer_.complete) return true;
      return rubbish("expected an empty last record, found ", body.size(), " bytes");
    default: return rubbish("expected a record type of 2 to 7, found ", type);
  }
}

bool ProbeReader::take_verdict(std::string_view body) {
  Verdict v;
  std::string stage;
  if (!get(body, v.level) || !get(body, v.decision) || !get(body, v.reason) || !get(body, v.text) ||
      !get(body, v.evidence) || !get(body, v.remedy.text) || !get(body, v.remedy.fix.key) ||
      !get(body, v.remedy.fix.value) || !get(body, v.remedy.fix.command) || !get(body, stage) ||
      !body.empty())
    return rubbish("expected a verdict, found a record of another shape");
  if (v.level < OCTAVO_LEVEL_MANIFEST || v.level > OCTAVO_LEVEL_LAYER ||
      v.decision > OCTAVO_ACCEPT_EMULATED)
    return rubbish("expected a verdict, found level ", v.level, ", decision ", v.decision);
  const std::optional<Stage> known = stage_of(stage);
  if (!known) return rubbish("expected a verdict, found the stage \"", stage, "\"");
  v.stage = *known;
  if (answer_.verdicts.size() == kMaxProbeTexts) return rubbish("found too many verdicts");
  answer_.verdicts.push_back(std::move(v));
  return true;
}

bool ProbeReader::take_text(std::string_view body, std::vector<std::string> &to, const char *what) {
  std::string text;
  if (!get(body, text) || !body.empty() || to.size() == kMaxProbeTexts)
    return rubbish("expected at most ", kMaxProbeTexts, " ", what,
                   "s of UTF-8 text, found another record");
  to.push_back(std::move(text));
  return true;
}

}  // namespace octavo
