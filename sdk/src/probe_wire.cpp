// Record: u32 length of what follows, u32 type, body. Numbers are little-endian, texts are u32
// length and bytes.
#include "probe_wire.h"

#include <iterator>

#include "utf8.h"

namespace octavo {
namespace {

enum Type : uint32_t { kHello = 1, kStage = 2, kVerdict = 3, kWarning = 4, kNote = 5, kEnd = 6 };
constexpr std::string_view kGreeting = "octavo-probe 1";

void put(std::string &to, uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) to += static_cast<char>((number >> shift) & 255);
}

void put(std::string &to, std::string_view text) {
  const std::string clean = clean_utf8(text, kMaxProbeText);
  put(to, static_cast<uint32_t>(clean.size()));
  to += clean;
}

std::string record(Type type, const std::string &body) {
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
  return is_utf8(text);
}

}  // namespace

const char *stage_name(ProbeStage stage) {
  static const char *const names[] = {"start", "policy",    "elf",      "manifest",  "dlopen",
                                      "entry", "negotiate", "describe", "self-test", "exit"};
  const auto index = static_cast<size_t>(stage);
  return index < std::size(names) ? names[index] : "unknown";
}

std::string hello_record() {
  return record(kHello, std::string(kGreeting));
}

std::string stage_record(ProbeStage stage) {
  std::string body;
  put(body, static_cast<uint32_t>(stage));
  return record(kStage, body);
}

std::string verdict_record(const Verdict &verdict) {
  std::string body;
  put(body, verdict.level);
  put(body, verdict.decision);
  put(body, verdict.reason);
  put(body, verdict.text);
  put(body, verdict.evidence);
  put(body, verdict.remedy);
  put(body, verdict.stage);
  return record(kVerdict, body);
}

std::string warning_record(std::string_view text) {
  std::string body;
  put(body, text);
  return record(kWarning, body);
}

std::string note_record(std::string_view text) {
  std::string body;
  put(body, text);
  return record(kNote, body);
}

std::string end_record() {
  return record(kEnd, {});
}

bool ProbeReader::rubbish(const std::string &text) {
  problem_ = text;
  return false;
}

bool ProbeReader::feed(std::string_view bytes) {
  if (!problem_.empty()) return false;
  total_ += bytes.size();
  if (total_ > kMaxProbeBytes)
    return rubbish("expected at most " + std::to_string(kMaxProbeBytes) + " bytes, found more");
  waiting_ += bytes;
  std::string_view rest = waiting_;
  while (rest.size() >= 4) {
    std::string_view record = rest;
    uint32_t length = 0;
    get(record, length);
    if (length < 4 || length > kMaxProbeRecord)
      return rubbish("expected a record of 4 to " + std::to_string(kMaxProbeRecord) +
                     " bytes, found one of " + std::to_string(length));
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
  if (answer_.complete)
    return rubbish("expected nothing after the last record, found type " + std::to_string(type));
  if (!greeted_) {
    greeted_ = type == kHello && body == kGreeting;
    if (greeted_) return true;
    return rubbish("expected the greeting \"" + std::string(kGreeting) + "\" first, found type " +
                   std::to_string(type));
  }
  switch (type) {
    case kStage:
      if (!get(body, stage) || !body.empty() || stage > static_cast<uint32_t>(ProbeStage::kExit) ||
          stage <= static_cast<uint32_t>(answer_.stage))
        return rubbish("expected a stage after \"" + std::string(stage_name(answer_.stage)) +
                       "\", found " + std::to_string(stage));
      answer_.stage = static_cast<ProbeStage>(stage);
      return true;
    case kVerdict: return take_verdict(body);
    case kWarning: return take_text(body, answer_.warnings, "warning");
    case kNote: return take_text(body, answer_.notes, "note");
    case kEnd:
      answer_.complete = body.empty();
      if (answer_.complete) return true;
      return rubbish("expected an empty last record, found " + std::to_string(body.size()) +
                     " bytes");
    default: return rubbish("expected a record type of 2 to 6, found " + std::to_string(type));
  }
}

bool ProbeReader::take_verdict(std::string_view body) {
  Verdict v;
  if (!get(body, v.level) || !get(body, v.decision) || !get(body, v.reason) || !get(body, v.text) ||
      !get(body, v.evidence) || !get(body, v.remedy) || !get(body, v.stage) || !body.empty())
    return rubbish("expected a verdict, found a record of another shape");
  if (v.level < OCTAVO_LEVEL_MANIFEST || v.level > OCTAVO_LEVEL_LAYER ||
      v.decision > OCTAVO_ACCEPT_EMULATED)
    return rubbish("expected a verdict, found level " + std::to_string(v.level) + ", decision " +
                   std::to_string(v.decision));
  if (answer_.verdicts.size() == kMaxProbeTexts) return rubbish("found too many verdicts");
  answer_.verdicts.push_back(std::move(v));
  return true;
}

bool ProbeReader::take_text(std::string_view body, std::vector<std::string> &to, const char *what) {
  std::string text;
  if (!get(body, text) || !body.empty() || to.size() == kMaxProbeTexts)
    return rubbish("expected at most " + std::to_string(kMaxProbeTexts) + " " + what +
                   "s of UTF-8 text, found a record that is none");
  to.push_back(std::move(text));
  return true;
}

}  // namespace octavo
