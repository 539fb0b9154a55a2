// "Did you mean", lists for people, and glob matching.
#include "sdk/src/base/text.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Text, trimmed_has_no_marks_at_its_ends) {
  EXPECT_EQ(trimmed(" \ta b\t ", " \t"), "a b");
  EXPECT_EQ(trimmed("a\r", " \t"), "a\r");
  EXPECT_EQ(trimmed(" \t", " \t"), "");
  EXPECT_EQ(trimmed("", " \t"), "");
}

TEST(Text, nearest_finds_a_misspelling) {
  const std::vector<std::string> keys = {"margin", "recipe", "amax_history_len", "fp8_format"};
  EXPECT_EQ(nearest("margn", keys), "margin");    // one letter lost
  EXPECT_EQ(nearest("maargin", keys), "margin");  // one too many
  EXPECT_EQ(nearest("recipi", keys), "recipe");   // one replaced
  EXPECT_EQ(nearest("mragin", keys), "margin");   // neighbours swapped
  EXPECT_EQ(nearest("amax_hist_len", keys), "amax_history_len");
}

TEST(Text, nearest_is_silent_when_nothing_is_near) {
  const std::vector<std::string> keys = {"margin", "te"};
  EXPECT_EQ(nearest("granularity", keys), "");
  EXPECT_EQ(nearest("xy", keys), "");  // two edits of two letters: another word
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest("margin", {}), "");
}

TEST(Text, nearest_allows_an_edit_in_three_letters) {
  EXPECT_EQ(nearest("abcdefghi", {"abcdefghixyz"}), "abcdefghixyz");  // three too few of nine
  EXPECT_EQ(nearest("abcdefghi", {"abcdefghiwxyz"}), "");
  EXPECT_EQ(nearest("abcdefghi", {"xbcdyfghz"}), "xbcdyfghz");  // three replaced
  EXPECT_EQ(nearest("abcdefghi", {"xycdefgzw"}), "");
  EXPECT_EQ(nearest("abcdefghi", {"badcefgih"}), "badcefgih");  // three swaps
  EXPECT_EQ(nearest("abcdefghi", {"badcfegih"}), "");
  EXPECT_EQ(nearest("abcdef", {"", "a", "fedcba"}), "");
}

TEST(Text, nearest_takes_the_first_of_equals_and_the_nearest_of_several) {
  EXPECT_EQ(nearest("scale", {"scald", "scalp"}), "scald");
  EXPECT_EQ(nearest("scale", {"scalpel", "scales"}), "scales");
}

TEST(Text, nearest_gives_up_on_long_words) {
  const std::string word(65, 'a');
  EXPECT_EQ(nearest(word, {word + "b"}), "");
  EXPECT_EQ(nearest(word.substr(1), {word}), word);
}

TEST(Text, enumerate_reads_like_a_sentence) {
  EXPECT_EQ(enumerate({}), "nothing");
  EXPECT_EQ(enumerate({"a"}), "a");
  EXPECT_EQ(enumerate({"a", "b"}), "a and b");
  EXPECT_EQ(enumerate({"a", "b", "c"}, "or"), "a, b or c");
}

TEST(Text, matches_like_a_shell) {
  EXPECT_TRUE(matches("*lm_head*", "model.lm_head.weight"));
  EXPECT_TRUE(matches("blocks.[01].*", "blocks.1.mlp.fc1"));
  EXPECT_TRUE(matches("h.?", "h.7"));
  EXPECT_FALSE(matches("h.?", "h.77"));
  EXPECT_FALSE(matches("LM_head", "lm_head"));
  EXPECT_FALSE(matches("head", "lm_head"));
}

TEST(Text, view_of_null_is_empty) {
  EXPECT_EQ(view({nullptr, 0}), "");
  EXPECT_EQ(view({nullptr, 7}), "");
  EXPECT_EQ(view(borrow("abc")), "abc");
}

}  // namespace
}  // namespace octavo
