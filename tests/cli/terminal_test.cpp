// Colour is for terminals only, and NO_COLOR turns it off there, too.
#include <cstring>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliTerminal : public Cli {
 protected:
  // A command that writes one error to stderr.
  Finished error(bool terminal) {
    return octavo({"config", "show", "--set", "schema=2"}, terminal);
  }
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
  for (const char *format : {"--locked", "--json"})
    EXPECT_THAT(with_fake({"check", format}).out, Not(HasSubstr("\033")));
}

TEST_F(CliTerminal, verdicts_have_colours_where_they_are_asked_for) {
  EXPECT_THAT(octavo({"check", "--color", "always"}).out,
              HasSubstr("runs       \033[1;32mfp8\033[0m\n"));
  EXPECT_THAT(octavo({"--color=always", "doctor"}).out, HasSubstr("\n\033[1mfix first\033[0m  "));
  EXPECT_THAT(octavo({"config", "show", "--color", "always", "--set", "schema=2"}).err,
              HasSubstr("\033[1;31merror\033[0m: "));
  EXPECT_THAT(octavo({"config", "show", "--color=never", "--set", "schema=2"}, true).err,
              Not(HasSubstr("\033")));
  EXPECT_EQ(octavo({"check", "--color", "red"}).err,
            "error: --color: expected auto, always or never, found \"red\"\n");
}

// Escape, a C1 control, a delete, and characters that turn the direction of writing: as they are in
// UTF-8, and as TOML writes them.
const std::string kRaw = "\x1b[31m\xc2\x9b\x7f\xe2\x80\xae\xe2\x81\xa6\xd8\x9c\xe2\x80\x8f";
constexpr const char *kToml = "\\u001b[31m\\u009b\\u007f\\u202e\\u2066\\u061c\\u200f";

bool commands_a_terminal(const std::string &text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) return true;
    for (const char *one : {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xd8\x9c", "\xe2\x80\x8f"})
      if (text.compare(i, std::strlen(one), one) == 0) return true;
  }
  return false;
}

// A place of a foreign file where a text may stand.
class EachText : public CliTerminal, public testing::WithParamInterface<const char *> {};

TEST_P(EachText, reaches_no_terminal_raw) {
  std::string toml = GetParam();
  for (size_t at = 0; (at = toml.find('@', at)) != std::string::npos;) toml.replace(at, 1, kToml);
  const std::string file = dir.write("octavo.toml", toml);
  for (const std::vector<std::string> &command :
       std::vector<std::vector<std::string>>{{"check", file},
                                             {"check", file, "--json"},
                                             {"config", "show", file},
                                             {"doctor", file},
                                             {"doctor", file, "--json"},
                                             {"plugin", "list", file},
                                             {"plugin", "list", file, "--json"},
                                             {"doctor", file, "--anonymous"},
                                             {"plugin", "lock", file},
                                             {"plugin", "allow", file}}) {
    const Finished f = with_fake(command);
    EXPECT_FALSE(commands_a_terminal(f.out + f.err))
        << testing::PrintToString(command) << f.out << f.err;
    EXPECT_GE(f.exit_code, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EachText,
    testing::Values("\"@\" = 1\n", "[fp8]\n\"@\" = 1\n", "[fp8.fake]\n\"@\" = 1\n",
                    "[fp8.\"@\"]\na = 1\n", "[[layers.rule]]\n\"@\" = 1\n",
                    "[fp8]\nbackend = \"@\"\n", "[fp8]\nbackend = \"fake\"\nfallback = [\"@\"]\n",
                    "[fp8]\npreference = [\"@\"]\n", "[layers]\nskip = [\"@\", \"[@\"]\n",
                    "[plugins]\npath = [\"@\", \"/@\"]\n", "[[plugin]]\nmanifest = \"@\"\n",
                    "[fp8.fake]\nnote = \"@\"\nmode = \"@\"\n",
                    "[fp8.require]\nrecipes = [\"@\"]\n", "[trace]\ndirectory = \"@\"\n",
                    "[fp8]\nbackend = \"fake\"\n[[layers.rule]]\nmatch = \"@\"\nplace = \"@\"\n"));

// What a shell passes, and files of other programs.
TEST_F(CliTerminal, arguments_and_names_are_shown_as_escapes) {
  const std::string named = dir.write(kRaw, "{\"" + kRaw + "\": 1}");
  for (const std::vector<std::string> &command :
       std::vector<std::vector<std::string>>{{kRaw},
                                             {"check", named},
                                             {"check", dir / (kRaw + "none")},
                                             {"check", "--" + kRaw},
                                             {"check", "--set", kRaw + "=1"},
                                             {"check", "\xff\xfe"},
                                             {"init", "--from", named},
                                             {"init", "--from", dir / (kRaw + "none")},
                                             {"init", "--dry-run", "--kwargs", kRaw + "=1"},
                                             {"report", named},
                                             {"report", "\xff"},
                                             {"estimate", named},
                                             {"estimate", "\xff"},
                                             {"doctor", kRaw},
                                             {"plugin", "manifest", kRaw},
                                             {"plugin", "new", kRaw},
                                             {"plugin", "verify", kRaw},
                                             {"plugin", "try", kRaw},
                                             {"checkpoint", "show", named},
                                             {"plugin", "lock", named},
                                             {"plugin", "allow", named},
                                             {"init", "--output", named}}) {
    const Finished f = octavo(command);
    EXPECT_FALSE(commands_a_terminal(f.out + f.err))
        << testing::PrintToString(command) << f.out << f.err;
    EXPECT_GT(f.exit_code, 0) << testing::PrintToString(command);
  }
}

// One sentence that can be read, whatever its length was.
TEST_F(CliTerminal, names_of_a_mebibyte_are_cut) {
  const std::string name(100000, 'n');
  for (const std::vector<std::string> &command : std::vector<std::vector<std::string>>{
           {"check", dir.write("octavo.toml", "[fp8]\n" + name + " = 1\n")},
           {"check", dir.write("other.toml", "[fp8]\nbackend = \"" + name + "\"\n")},
           {"check", "/" + name},
           {"config", "show", "/" + name},
           {"check", "--set", name + "=1"}}) {
    const Finished f = octavo(command);
    EXPECT_GT(f.exit_code, 0);
    EXPECT_LT(f.err.size(), 20000u) << command[0];
  }
}

}  // namespace
}  // namespace octavo::test
