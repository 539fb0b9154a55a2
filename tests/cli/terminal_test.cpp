// Colour is for terminals only, and NO_COLOR turns it off there, too.
#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliTerminal : public Cli {
 protected:
  // A command that writes one error to stderr.
  Finished error(bool terminal) { return octavo({"explain", "--set", "schema=2"}, terminal); }
  static constexpr const char *kMessage =
      ": override schema: schema: expected 1, the only one that this version reads, found 2";
  static std::string shown(const char *word) {
    std::string text = word;
    text.append(kMessage).append("\r\n");
    return text;
  }
};

TEST_F(CliTerminal, colour_on_a_terminal) {
  const Finished f = error(true);
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err, shown("\033[1;31merror\033[0m"));
}

TEST_F(CliTerminal, no_color_is_respected) {
  environment.set("NO_COLOR", "1");
  EXPECT_EQ(error(true).err, shown("error"));
}

TEST_F(CliTerminal, empty_no_color_says_nothing) {
  environment.set("NO_COLOR", "");
  EXPECT_THAT(error(true).err, HasSubstr("\033[1;31m"));
}

TEST_F(CliTerminal, no_escape_codes_without_a_terminal) {
  EXPECT_EQ(error(false).err, std::string("error") + kMessage + "\n");
  for (const char *format : {"--tree", "--json"})
    EXPECT_THAT(with_fake({"explain", format}).out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace octavo::test
