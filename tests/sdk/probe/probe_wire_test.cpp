// The helper's records: what is written is read, in pieces of any size, and nothing else is.
#include "sdk/src/probe/probe_wire.h"

#include <gtest/gtest.h>

#include <random>

#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

const Verdict kVerdict{
    OCTAVO_LEVEL_PLUGIN,        OCTAVO_DECLINE, OCTAVO_REASON_PROBE, "text", "found",
    set_key("a.b", "1", " now")};

std::string whole() {
  return hello_record() + stage_record(ProbeStage::kDlopen) + warning_record("w\xC3\xA4rning") +
         stage_record(ProbeStage::kEntry) + note_record("note") + verdict_record(kVerdict) +
         stage_record(ProbeStage::kExit) + end_record();
}

std::string number(uint32_t n) {
  return {static_cast<char>(n & 255), static_cast<char>(n >> 8 & 255),
          static_cast<char>(n >> 16 & 255), static_cast<char>(n >> 24)};
}
std::string raw(uint32_t type, const std::string &body) {
  return number(static_cast<uint32_t>(body.size()) + 4) + number(type) + body;
}

std::string problem_of(const std::string &bytes) {
  ProbeReader reader;
  EXPECT_FALSE(reader.feed(bytes));
  EXPECT_FALSE(reader.feed(""));
  return reader.problem();
}

TEST(ProbeWire, pieces_of_every_size) {
  const std::string bytes = whole();
  for (size_t size = 1; size <= bytes.size(); ++size) {
    ProbeReader reader;
    for (size_t at = 0; at < bytes.size(); at += size)
      ASSERT_TRUE(reader.feed(std::string_view(bytes).substr(at, size))) << reader.problem();
    const ProbeAnswer &a = reader.answer();
    ASSERT_TRUE(a.complete);
    EXPECT_TRUE(reader.at_border());
    EXPECT_EQ(a.stage, ProbeStage::kExit);
    EXPECT_EQ(a.warnings, std::vector<std::string>{"w\xC3\xA4rning"});
    EXPECT_EQ(a.notes, std::vector<std::string>{"note"});
    ASSERT_EQ(a.verdicts.size(), 1u);
    EXPECT_EQ(a.verdicts[0].reason, kVerdict.reason);
    EXPECT_EQ(a.verdicts[0].text, "text");
    EXPECT_EQ(a.verdicts[0].evidence, "found");
    EXPECT_EQ(a.verdicts[0].remedy.text, "set a.b = 1 now");
    EXPECT_EQ(a.verdicts[0].remedy.fix.key, "a.b");
    EXPECT_EQ(a.verdicts[0].remedy.fix.value, "1");
  }
}

TEST(ProbeWire, every_truncation_is_incomplete) {
  const std::string bytes = whole();
  for (size_t size = 0; size < bytes.size(); ++size) {
    ProbeReader reader;
    ASSERT_TRUE(reader.feed(std::string_view(bytes).substr(0, size)));
    EXPECT_FALSE(reader.answer().complete) << size;
  }
}

TEST(ProbeWire, order) {
  EXPECT_EQ(problem_of(stage_record(ProbeStage::kEntry)),
            "expected the greeting \"octavo-probe 1\" first, found type 2");
  EXPECT_EQ(problem_of(raw(1, "octavo-probe 2")),
            "expected the greeting \"octavo-probe 1\" first, found type 1");
  EXPECT_EQ(problem_of(hello_record() + stage_record(ProbeStage::kEntry) +
                       stage_record(ProbeStage::kEntry)),
            "expected a stage after \"entry\", found 5");
  EXPECT_EQ(problem_of(hello_record() + raw(2, number(99))),
            "expected a stage after \"start\", found 99");
  EXPECT_EQ(problem_of(hello_record() + hello_record()),
            "expected a record type of 2 to 7, found 1");
  EXPECT_EQ(problem_of(whole() + note_record("more")),
            "expected nothing after the last record, found type 5");
  EXPECT_EQ(problem_of(hello_record() + raw(6, "x")),
            "expected an empty last record, found 1 bytes");
}

TEST(ProbeWire, lengths) {
  EXPECT_EQ(problem_of(number(3)), "expected a record of 4 to 65536 bytes, found one of 3");
  EXPECT_EQ(problem_of(number(65537)), "expected a record of 4 to 65536 bytes, found one of 65537");
  EXPECT_EQ(problem_of("Loading"),
            "expected a record of 4 to 65536 bytes, found one of 1684107084");
  EXPECT_EQ(problem_of(std::string(kMaxProbeBytes + 1, 'x')),
            "expected at most 1048576 bytes, found more");
}

TEST(ProbeWire, texts) {
  EXPECT_NE(problem_of(hello_record() + raw(4, number(5) + "four")), "");
  EXPECT_NE(problem_of(hello_record() + raw(4, number(1) + "two")), "");
  EXPECT_NE(problem_of(hello_record() + raw(4, number(1) + "\xFF")), "");
  std::string long_text = number(5000);
  long_text.append(5000, 'x');
  EXPECT_NE(problem_of(hello_record() + raw(4, long_text)), "");
  EXPECT_NE(problem_of(hello_record() + raw(3, number(2))), "");
  EXPECT_NE(problem_of(hello_record() + call_record("open_session") + raw(7, number(1) + "two")),
            "");
  // A level, and a decision, that do not exist.
  std::string rest;  // a reason, and six empty texts before the stage
  for (int i = 0; i < 7; ++i) rest += number(0);
  EXPECT_NE(problem_of(hello_record() + raw(3, number(0) + number(0) + rest)), "");
  EXPECT_NE(problem_of(hello_record() + raw(3, number(2) + number(3) + rest)), "");
  ProbeReader reader;
  EXPECT_TRUE(
      reader.feed(hello_record() + raw(3, number(2) + number(0) + rest + number(4) + "load")));
  EXPECT_EQ(reader.answer().verdicts.at(0).stage, Stage::kLoad);
  EXPECT_EQ(problem_of(hello_record() + raw(3, number(2) + number(0) + rest + number(4) + "lord")),
            "expected a verdict, found the stage \"lord\"");
  std::string many = hello_record();
  for (size_t i = 0; i <= kMaxProbeTexts; ++i) many += note_record("x");
  EXPECT_EQ(problem_of(many).substr(0, 28), "expected at most 64 notes of");
  many = hello_record();
  for (size_t i = 0; i <= kMaxProbeTexts; ++i) many += verdict_record(kVerdict);
  EXPECT_EQ(problem_of(many), "found too many verdicts");
}

TEST(ProbeWire, writer_cleans_texts) {
  ProbeReader reader;
  std::string long_text(kMaxProbeText - 1, 'x');
  long_text.append("\xC3\xA4");  // ends on the first byte of a character
  ASSERT_TRUE(reader.feed(hello_record() + note_record("a\xFF\xC3") +
                          note_record(std::string(5000, 'x')) + note_record(long_text)));
  EXPECT_EQ(reader.answer().notes[0], "a\\xff\\xc3");
  EXPECT_EQ(reader.answer().notes[1].size(), kMaxProbeText);
  EXPECT_EQ(reader.answer().notes[2].size(), kMaxProbeText - 1);
}

TEST(ProbeWire, utf8) {
  for (const char *good : {"", "a", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xF0\x90\x80\x80",
                           "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char *bad : {"\x80", "\xC1\xBF", "\xC3", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                          "\xC3"
                          "a"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

// Seeded noise around a good answer: no read past an end (under the sanitizers), no wrong
// "complete".
TEST(ProbeWire, noise) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = whole();
    for (unsigned n = random() % 4 + 1; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    ProbeReader reader;
    if (!reader.feed(bytes)) {
      EXPECT_NE(reader.problem(), "");
    }
    for (const std::string &text : reader.answer().notes) EXPECT_TRUE(is_utf8(text));
  }
}

TEST(ProbeWire, numbers_out_of_range) {
  EXPECT_STREQ(stage_name(static_cast<ProbeStage>(99)), "unknown");
  for (const auto &[level, decision] :
       {std::pair(0u, 0u),
        {uint32_t{OCTAVO_LEVEL_LAYER} + 1, 0u},
        {uint32_t{OCTAVO_LEVEL_LAYER}, uint32_t{OCTAVO_ACCEPT_EMULATED} + 1}}) {
    ProbeReader reader;
    EXPECT_FALSE(reader.feed(hello_record() + verdict_record({level, decision, 0, "", "", ""})));
    EXPECT_EQ(reader.problem(), "expected a verdict, found level " + std::to_string(level) +
                                    ", decision " + std::to_string(decision));
  }
}

}  // namespace
}  // namespace octavo
