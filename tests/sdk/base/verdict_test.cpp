// Verdicts across the border, and the words for their numbers.
#include "sdk/src/base/verdict.h"

#include <gtest/gtest.h>

#include <set>

namespace octavo {
namespace {

TEST(VerdictNames, every_number_has_its_own) {
  std::set<std::string> levels, decisions, reasons;
  for (uint32_t i = OCTAVO_LEVEL_MANIFEST; i <= OCTAVO_LEVEL_LAYER; ++i)
    levels.insert(level_name(i));
  EXPECT_EQ(levels, (std::set<std::string>{"manifest", "plugin", "device", "session", "layer"}));
  EXPECT_STREQ(level_name(99), "other");
  for (const uint32_t d : {OCTAVO_ACCEPT, OCTAVO_ACCEPT_EMULATED, OCTAVO_DECLINE})
    decisions.insert(decision_name(d));
  EXPECT_EQ(decisions, (std::set<std::string>{"accept", "accept-emulated", "decline"}));
  for (uint32_t i = OCTAVO_REASON_NONE; i <= OCTAVO_REASON_RESOURCE; ++i)
    reasons.insert(reason_name(i));
  EXPECT_EQ(reasons.size(), size_t{OCTAVO_REASON_RESOURCE} + 1);
  EXPECT_EQ(reasons.count("other"), 0u);
  EXPECT_STREQ(reason_name(OCTAVO_REASON_RESOURCE + 1), "other");
}

TEST(VerdictNames, pages) {
  EXPECT_EQ(reason_page(OCTAVO_REASON_NONE), "");
  EXPECT_EQ(reason_page(OCTAVO_REASON_ABI), "docs/reasons.md#abi");
  EXPECT_EQ(reason_page(OCTAVO_REASON_RESOURCE + 1), "");
}

TEST(Verdict, null_in_a_sink_is_nothing) {
  std::vector<Verdict> found;
  const VerdictSink sink(found);
  sink.get()->verdict(sink.get()->ctx, nullptr);
  sink.check();
  EXPECT_TRUE(found.empty());
}

TEST(Verdict, lent_to_nobody) {
  lend_verdict(Verdict{}, nullptr);
}

TEST(Verdict, texts_that_are_too_long_or_none) {
  octavo_verdict v{};
  v.size = sizeof(v);
  const std::string text(100000, 'x');
  const std::string bytes = "a\xff";
  v.text = {text.data(), text.size()};
  v.evidence = {bytes.data(), bytes.size()};
  const Verdict own = copy_verdict(v);
  EXPECT_EQ(own.text, "(a text of 100000 bytes, which is more than 4096)");
  EXPECT_EQ(own.evidence, "a\\xff");
  EXPECT_EQ(own.remedy.text, "");
}

}  // namespace
}  // namespace octavo
