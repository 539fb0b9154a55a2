// Texts of plugins: nothing of them reaches a terminal but characters that it shows.
#include "sdk/src/base/utf8.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace octavo {
namespace {

octavo_str of(std::string_view text) {
  return {text.data(), text.size()};
}

TEST(PlainText, what_can_be_shown_stays) {
  for (const char *text :
       {"", "te 1.0", "\\x1b in letters", "M\u00fcnchen \u00b5s", "\u6f22\U0001f600"})
    EXPECT_EQ(plain_text(text, 100), text);
}

TEST(PlainText, commands_to_a_terminal_are_spelled_out) {
  EXPECT_EQ(plain_text("\x1b[2Jred\x7f", 100), "\\x1b[2Jred\\x7f");
  EXPECT_EQ(plain_text("a\nb\tc\r", 100), "a\\nb\\tc\\x0d");
  EXPECT_EQ(plain_text("\u009b31m", 100), "\\xc2\\x9b31m");       // CSI in one character
  EXPECT_EQ(plain_text("\u202egpj", 100), "\\xe2\\x80\\xaegpj");  // from right to left
  EXPECT_EQ(plain_text("\u2066x\u2069", 100), "\\xe2\\x81\\xa6x\\xe2\\x81\\xa9");
  EXPECT_EQ(plain_text(std::string_view("\0", 1), 100), "\\x00");
}

TEST(PlainText, bytes_that_are_no_character_differ) {
  EXPECT_EQ(plain_text("a\xff", 100), "a\\xff");
  EXPECT_EQ(plain_text("a\xfe", 100), "a\\xfe");
}

TEST(PlainText, is_cut_between_characters) {
  EXPECT_EQ(plain_text("ab\u00fc", 3), "ab");
  EXPECT_EQ(plain_text("ab\x1b", 5), "ab");
  EXPECT_EQ(plain_text("ab\x1b", 6), "ab\\x1b");
}

// The text ends where memory ends, so one byte too many ends the test.
TEST(TakeText, reads_what_is_stated_and_no_more) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char *const two = static_cast<char *>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(mprotect(two + page, page, PROT_NONE), 0);
  std::memset(two, 'x', page);
  EXPECT_EQ(take_text({two + page - 5, 5}), "xxxxx");
  EXPECT_EQ(take_text({two + page - 5, uint64_t{1} << 40}),
            "(a text of 1099511627776 bytes, which is more than 4096)");
  EXPECT_EQ(take_text({two + page, 4097}), "(a text of 4097 bytes, which is more than 4096)");
  EXPECT_FALSE(take_name({two + page, UINT64_MAX}));
  munmap(two, 2 * page);
}

TEST(TakeText, at_no_address) {
  EXPECT_EQ(take_text({nullptr, 0}), "");
  EXPECT_EQ(take_text({nullptr, 7}), "(a text of 7 bytes at no address)");
  EXPECT_EQ(take_name({nullptr, 0}), "");
  EXPECT_FALSE(take_name({nullptr, 7}));
}

TEST(TakeName, is_as_it_is_or_none) {
  EXPECT_EQ(take_name(of("x/amax_history")), "x/amax_history");
  EXPECT_FALSE(take_name(of("x\n")));
  EXPECT_FALSE(take_name(of("x\xff")));
  EXPECT_EQ(take_name(of(std::string(kMaxPluginText, 'n'))), std::string(kMaxPluginText, 'n'));
  EXPECT_FALSE(take_name(of(std::string(kMaxPluginText + 1, 'n'))));
}

TEST(TakeWords, of_an_exception) {
  EXPECT_EQ(take_words(nullptr), "");
  EXPECT_EQ(take_words("no \x1b[1mluck"), "no \\x1b[1mluck");
  EXPECT_EQ(take_words(std::string(100000, 'x').c_str()).size(), kMaxPluginText);
}

}  // namespace
}  // namespace octavo
