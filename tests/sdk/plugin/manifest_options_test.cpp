// [options] of a manifest: what it may state, what is refused, and how it differs from a plugin.
#include "sdk/src/plugin/manifest_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/src/plugin/manifest.h"
#include "tests/support/fake_plugin.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class ManifestOptionsTest : public testing::Test {
 protected:
  ManifestOptionsTest() { dir.write("fake.so", "not looked at here"); }

  std::optional<Manifest> read(const std::string &options) {
    verdicts.clear();
    path = dir.write("fake.octavo-plugin.toml", test::fake_manifest() + options);
    return read_manifest(path, verdicts);
  }
  std::vector<DeclaredOption> stated(const std::string &options) {
    const auto manifest = read(options);
    EXPECT_TRUE(manifest && manifest->options) << options;
    return manifest && manifest->options ? *manifest->options : std::vector<DeclaredOption>();
  }
  // After "<path>:<line>:<column>: options.".
  std::string refusal(const std::string &options) {
    if (read(options)) return "(accepted)";
    const std::string text = verdicts.at(0).text;
    EXPECT_THAT(text, StartsWith(path + ":"));
    const size_t at = text.find(": options");
    return at == std::string::npos ? text : text.substr(at + 2);
  }

  test::TempDir dir;
  std::string path;
  std::vector<Verdict> verdicts;
};

TEST_F(ManifestOptionsTest, every_type_in_the_order_of_the_file) {
  const std::vector<DeclaredOption> o = stated(test::fake_options());
  ASSERT_EQ(o.size(), 5u);
  EXPECT_EQ(o[0].name, "count");
  EXPECT_EQ(std::get<int64_t>(o[0].initial), 4);
  EXPECT_EQ(std::get<int64_t>(o[0].low), 1);
  EXPECT_FALSE(is_value(o[0].high));
  EXPECT_EQ(o[0].help, "an option");
  EXPECT_EQ(o[1].name, "ratio");
  EXPECT_EQ(std::get<double>(o[1].high), 1.0);
  EXPECT_EQ(std::get<bool>(o[2].initial), false);
  EXPECT_EQ(std::get<std::string>(o[3].initial), "exact");
  EXPECT_THAT(o[3].choices, ElementsAre("fast", "exact"));
  EXPECT_EQ(o[4].name, "note");
}

TEST_F(ManifestOptionsTest, none_is_not_the_same_as_not_stated) {
  EXPECT_TRUE(stated("[options]\n").empty());
  const auto silent = read("");
  ASSERT_TRUE(silent);
  EXPECT_FALSE(silent->options);
}

TEST_F(ManifestOptionsTest, what_is_printed_is_read_again) {
  std::vector<DeclaredOption> all = stated(test::fake_options());
  EXPECT_EQ(options_toml(all), test::fake_options());
  all[1].initial = 1.0 / 3;
  all[1].high = 1e300;
  all[3].name = "a b.c";
  all[3].help = "tab\\t \"quoted\" and \xc3\xbc";
  EXPECT_EQ(first_difference(stated(options_toml(all)), all), "");
  EXPECT_TRUE(stated(options_toml({})).empty());
}

TEST_F(ManifestOptionsTest, integers_as_bounds_of_a_real_option) {
  const auto o = stated("[options.ratio]\ndefault = 0.5\nlow = 0\nhigh = 1\n");
  EXPECT_EQ(std::get<double>(o.at(0).low), 0.0);
  EXPECT_EQ(std::get<double>(o.at(0).high), 1.0);
}

TEST_F(ManifestOptionsTest, option_that_is_no_table) {
  for (const char *value : {"1979-05-27", "4"}) {
    EXPECT_FALSE(read(std::string("[options]\ncount = ") + value + "\n"));
    EXPECT_THAT(verdicts.at(0).text, testing::HasSubstr("expected a table, [options.NAME]"));
  }
}

TEST_F(ManifestOptionsTest, unknown_keys_are_warnings) {
  const auto m = read("[options.count]\ndefault = 4\nlwo = 1\nunit.name = \"x\"\n");
  ASSERT_TRUE(m);
  EXPECT_THAT(m->warnings,
              testing::UnorderedElementsAre(
                  StartsWith("unknown key \"options.count.lwo\" in line 13; did you mean "
                             "\"options.count.low\"?"),
                  StartsWith("unknown key \"options.count.unit.name\" in line 14")));
  EXPECT_FALSE(is_value(m->options->at(0).low));
}

TEST_F(ManifestOptionsTest, refusals) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[[options]]\nname = \"count\"", "options.0: expected the key default, found none"},
      {"[options]\ncount = 4", "options.count: expected a table, [options.NAME], found an integer"},
      {"[options.count]", "options.count: expected the key default, found nothing"},
      {"[options.count]\nlow = 1", "options.count: expected the key default, found none"},
      {"[options.\"\"]\ndefault = 1", "options..default: expected the name of an option, found"},
      {"[options.\"a\\n\"]\ndefault = 1", "options.a\\n.default: expected at most 4096 bytes"},
      {"[options.a]\ndefault = [\"x\"]",
       "options.a.default: expected an integer, a real number, a boolean or a text, found a list"},
      {"[options.a]\ndefault = 1979-05-27", "options.a.default: expected an integer, a real "},
      {"[options.a]\ndefault = \"\\u0007\"", "options.a.default: expected at most 4096 bytes"},
      {"[options.a]\ndefault = 1\nlow = 0.5",
       "options.a.low: expected an integer, since the default is an integer, found a real number"},
      {"[options.a]\ndefault = \"x\"\nhigh = 1",
       "options.a.high: expected no bound, since the default is a text, found an integer"},
      {"[options.a]\ndefault = 5\nhigh = 4",
       "options.a.default: expected a value between low and high, found 5"},
      {"[options.a]\ndefault = -0.5\nlow = 0",
       "options.a.default: expected a value between low and high, found -0.5"},
      {"[options.a]\ndefault = 5\nchoices = [\"x\"]",
       "options.a.choices: expected a list of texts, and a text as default, found a list of texts"},
      {"[options.a]\ndefault = \"x\"\nchoices = \"x\"",
       "options.a.choices: expected a list of texts, and a text as default, found a text"},
      {"[options.a]\ndefault = \"x\"\nchoices = [\"y\"]",
       "options.a.choices: expected the default, \"x\", among them, found [\"y\"]"},
      {"[options.a]\ndefault = \"x\"\nchoices = [\"x\", \"\\t\"]",
       "options.a.choices: expected at most 4096 bytes without control characters, found"},
      {"[options.a]\ndefault = 1\nhelp = 2", "options.a.help: expected a text, found an integer"},
  };
  for (const auto &[options, message] : cases)
    EXPECT_THAT(refusal(options + "\n"), StartsWith(message)) << options;
  dir.write("fake.octavo-plugin.toml", "options = 3\n" + test::fake_manifest());
  EXPECT_FALSE(read_manifest(path, verdicts));
  EXPECT_THAT(verdicts.back().text,
              HasSubstr(":1:1: options: expected a table, [options.NAME], found an integer"));
}

TEST_F(ManifestOptionsTest, differences_name_the_option) {
  const std::vector<DeclaredOption> own = stated(test::fake_options());
  const auto after = [&](auto change) {
    std::vector<DeclaredOption> other = own;
    change(other);
    return first_difference(other, own);
  };
  EXPECT_EQ(after([](auto &) {}), "");
  EXPECT_EQ(after([](auto &o) { std::swap(o[0], o[4]); }), "");
  EXPECT_EQ(after([](auto &o) { o[1].initial = 0.25; }),
            "option ratio: expected default = 0.5, found 0.25");
  EXPECT_EQ(after([](auto &o) { o[0].low = OtherToml{"nothing"}; }),
            "option count: expected low = 1, found nothing");
  EXPECT_EQ(after([](auto &o) { o[3].choices = {"exact"}; }),
            "option mode: expected choices = [\"fast\", \"exact\"], found [\"exact\"]");
  EXPECT_EQ(after([](auto &o) { o[2].help = ""; }),
            "option verbose: expected help = \"an option\", found nothing");
  EXPECT_EQ(after([](auto &o) { o.pop_back(); }), "expected the option note, found none");
  EXPECT_EQ(after([](auto &o) { o[4].name = "notes"; }), "expected the option note, found none");
}

}  // namespace
}  // namespace octavo
