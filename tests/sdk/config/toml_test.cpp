// TOML as entries with positions, and what is refused before a single key is looked at.
#include "sdk/src/config/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

std::vector<TomlEntry> parse(std::string_view text) {
  std::vector<TomlEntry> entries = parse_toml(text, "f.toml", "octavo.config");
  std::sort(entries.begin(), entries.end(), [](const TomlEntry &a, const TomlEntry &b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return entries;
}

// The failure's text; the test fails when there is none.
std::string failure_of(std::string_view text) {
  try {
    parse_toml(text, "f.toml", "octavo.config");
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_STREQ(f.domain(), "octavo.config");
    return f.text();
  }
  ADD_FAILURE() << "expected a refusal of " << text.substr(0, 80);
  return {};
}

// The parser's column and words differ between its versions; the line is what counts.
testing::Matcher<const std::string &> malformed_in_line(int line) {
  return testing::MatchesRegex("f\\.toml:" + std::to_string(line) + ":[0-9]+: not valid TOML: .+");
}

TEST(Toml, values_with_positions) {
  const auto e = parse("i = -3\nr = 0.5\nb = true\n[t]\n  s = \"x\"\n  l = [\"a\", 'b']\n");
  ASSERT_EQ(e.size(), 5u);
  EXPECT_EQ(std::get<int64_t>(e[0].value), -3);
  EXPECT_EQ(std::get<double>(e[1].value), 0.5);
  EXPECT_TRUE(std::get<bool>(e[2].value));
  EXPECT_EQ(std::get<std::string>(e[3].value), "x");
  EXPECT_EQ(std::get<std::vector<std::string>>(e[4].value), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(dotted(e[3].path), "t.s");
  EXPECT_EQ(e[3].line, 5u);
  EXPECT_EQ(e[3].column, 3u);
}

TEST(Toml, what_is_wrong_and_has_no_likely_correction) {
  for (const char *text : {"x = te!\n", "x = hello, world!\n", "x = [\n", "x = [\n\n\n"}) {
    const std::string words = failure_of(text);
    EXPECT_THAT(words, testing::HasSubstr("not valid TOML: "));
    EXPECT_THAT(words, testing::Not(testing::HasSubstr("did you mean")));
  }
}

TEST(Toml, empty_document_and_empty_table) {
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("# only a comment\n").empty());
  const auto e = parse("[t]\n");
  ASSERT_EQ(e.size(), 1u);
  EXPECT_EQ(kind_of(e[0].value), "table");
}

TEST(Toml, array_of_tables_is_numbered) {
  const auto e = parse("[[plugin]]\nmanifest = \"a\"\n[[plugin]]\nmanifest = \"b\"\n");
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(dotted(e[0].path), "plugin.0.manifest");
  EXPECT_EQ(dotted(e[1].path), "plugin.1.manifest");
}

TEST(Toml, mixed_arrays_keep_their_kind) {
  for (const char *text : {"l = [\"a\", 1]", "l = [1, \"a\"]", "l = [1, 2]", "l = [[\"a\"]]",
                           "l = [\"a\", { b = 1 }]", "l = [{ b = 1 }, \"a\"]"}) {
    const auto e = parse(text);
    const auto found = std::find_if(e.begin(), e.end(),
                                    [](const TomlEntry &one) { return dotted(one.path) == "l"; });
    ASSERT_NE(found, e.end()) << text;
    EXPECT_EQ(kind_of(found->value), "a list with something other than text") << text;
  }
}

TEST(Toml, dates_are_named) {
  EXPECT_EQ(kind_of(parse("d = 2024-01-01")[0].value), "a date or time");
}

TEST(Toml, malformed_text_is_placed) {
  EXPECT_THAT(failure_of("a = 1\nb = \n"), malformed_in_line(2));
  EXPECT_THAT(failure_of("a = 1\na = 2\n"), malformed_in_line(2));
  EXPECT_THAT(failure_of("[t]\nx = 1\n[t]\n"), malformed_in_line(3));
}

TEST(Toml, bytes_that_are_no_text) {
  EXPECT_THAT(failure_of(std::string_view("a = \"x\0y\"\n", 10)), malformed_in_line(1));
  EXPECT_THAT(failure_of("a = 1\nb = \"\xff\xfe\"\n"), malformed_in_line(2));
}

TEST(Toml, more_than_a_mebibyte) {
  const std::string fits(1 << 20, '#');
  EXPECT_TRUE(parse(fits).empty());
  EXPECT_EQ(failure_of(fits + "#"), "f.toml: expected at most 1 MiB of TOML, found more");
}

TEST(Toml, too_many_levels) {
  EXPECT_EQ(parse("[a.b.c.d.e.f.g.h]\nx = 1\n").size(), 1u);
  EXPECT_EQ(failure_of("[a.b.c.d.e.f.g.h.i]\nx = 1\n"),
            "f.toml:1:1: expected at most 8 levels of tables, found more");
}

TEST(Toml, show_writes_what_a_file_would_hold) {
  EXPECT_EQ(show(int64_t{-3}), "-3");
  EXPECT_EQ(show(2.0), "2.0");
  EXPECT_EQ(show(0.5), "0.5");
  EXPECT_EQ(show(1e30), "1e+30");
  EXPECT_EQ(show(true), "true");
  EXPECT_EQ(show(std::string("x")), "\"x\"");
  EXPECT_EQ(show(std::vector<std::string>{"a", "b"}), "[\"a\", \"b\"]");
  EXPECT_EQ(show(std::vector<std::string>{}), "[]");
}

TEST(Toml, dotted_quotes_parts_that_hold_dots) {
  EXPECT_EQ(dotted({"fp8", "te", "margin"}), "fp8.te.margin");
  EXPECT_EQ(dotted({"fp8.te"}), "\"fp8.te\"");
  EXPECT_EQ(dotted({}), "");
}

TEST(Toml, show_of_odd_values) {
  EXPECT_EQ(show(TomlValue(std::string("\x7f\x01\"\\"))), "\"\\u007F\\u0001\\\"\\\\\"");
  EXPECT_EQ(show(TomlValue(std::numeric_limits<double>::infinity())), "inf");
  EXPECT_EQ(show(TomlValue(1e300)), "1e+300");
  EXPECT_EQ(show(TomlValue(OtherToml{"a date or time"})), "a date or time");
  EXPECT_EQ(show(TomlValue(std::vector<std::string>{})), "[]");
  EXPECT_EQ(show(TomlValue(false)), "false");
}

TEST(Toml, first_character_behind_a_bracket) {
  for (const char c : {'=', ',', '.', ':', '}'})
    EXPECT_EQ(failure_of(std::string("a = [") + c + "1]"),
              std::string("f.toml:1:6: not valid TOML: expected a value or a name after \"[\", "
                          "found '") +
                  c + "'");
  EXPECT_EQ(parse("a = [ # comment\n \"x\" ]").size(), 1u);
  EXPECT_EQ(parse("a = [\t\r\n ]").size(), 1u);
}

TEST(Toml, texts_at_the_end_of_the_file) {
  for (const char *text : {"a = \"\\", "a = \"x\\\n\"", "a = '", "a = \"\"\"x", "]", "}"})
    EXPECT_NE(failure_of(text), "") << text;
  for (const char *text :
       {"a = \"\"\"x\"\"\"\"\"", "a = '''x'''''", "a = 'b\\'", "a = \"\"\"b\\\n c\"\"\""})
    EXPECT_EQ(parse(text).size(), 1u) << text;
}

TEST(Toml, quotes_inside_of_words) {
  for (const char *text : {"a = 1\"x\"", "a = x'y'", "a = _\"", "a = -\"", "a = +\"", "a = .\"",
                           "a = :\"", "a = [1\"x\"]", "a = {b = 1\"x\"}"})
    EXPECT_THAT(failure_of(text), testing::EndsWith("after a value, found a quote")) << text;
  for (const char *text : {"a = [1, \"x\"]", "a = { b = 1, \"c\" = 2 }", "a = [\n1,\n\"x\"\n]",
                           "a = 1 # \"comment\"\n\"b\" = 2", "a = [1 # \"\n]"})
    EXPECT_FALSE(parse(text).empty()) << text;
}

TEST(Toml, what_follows_a_backslash) {
  EXPECT_EQ(parse("a = \"\"\"b\\ \t\r\n  c\"\"\"").size(), 1u);
  EXPECT_THAT(failure_of("a = \"\"\"b\\ \n \xC3\xA4\"\"\""),
              testing::HasSubstr("after a backslash and white space, found the byte 195"));
  EXPECT_THAT(failure_of("a = \"b\\\xC3\xA4\""),
              testing::HasSubstr("after a backslash, found the byte 195"));
  EXPECT_NE(failure_of("a = \"b\\\n\""), "");
  EXPECT_NE(failure_of("a = \"\"\"b\\"), "");
}

}  // namespace
}  // namespace octavo
