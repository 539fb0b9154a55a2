// The strict configuration: each wrong input with its exact message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/src/config.h"
#include "sdk/src/failure.h"
#include "tests/support/environment.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::Environment;
using test::Request;
using test::TempDir;

std::string failure_of(const Request &r) {
  try {
    load_config(r.desc());
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_STREQ(f.domain(), "octavo.config");
    return f.text();
  }
  return "(accepted)";
}

testing::Matcher<const std::string &> malformed_in_line(int line) {
  return testing::MatchesRegex("octavo\\.toml:" + std::to_string(line) +
                               ":[0-9]+: not valid TOML: .+");
}

class ConfigErrors : public testing::Test {
 protected:
  static void expect(const std::string &toml, const std::string &message) {
    EXPECT_EQ(failure_of(Request().text(toml)), message) << toml;
  }
  static constexpr const char *kKnown =
      "known keys: schema, mixed_precision, fp8.backend, fp8.preference, fp8.fallback, "
      "layers.skip, layers.min_gain, device.kind, plugins.path and plugins.trust; a backend's "
      "options stand in "
      "[fp8.<backend>]";
  Environment environment;
};

TEST_F(ConfigErrors, misspelt_key) {
  expect("mixed_precison = \"fp8\"",
         "octavo.toml:1:1: unknown key \"mixed_precison\"; did you mean \"mixed_precision\"?");
  expect("[fp8]\nbackends = \"te\"",
         "octavo.toml:2:1: unknown key \"fp8.backends\"; did you mean \"fp8.backend\"?");
  expect("[layer]\nskip = []",
         "octavo.toml:2:1: unknown key \"layer.skip\"; did you mean \"layers.skip\"?");
}

TEST_F(ConfigErrors, unknown_key) {
  expect("optimizer_kind = 3",
         std::string("octavo.toml:1:1: unknown key \"optimizer_kind\"; ") + kKnown);
  expect("[fp8.te.deep]\nx = 1",
         std::string("octavo.toml:2:1: unknown key \"fp8.te.deep.x\"; ") + kKnown);
  expect("[wholly_unknown_table]",
         std::string("octavo.toml:1:1: unknown key \"wholly_unknown_table\"; ") + kKnown);
}

TEST_F(ConfigErrors, quoted_key_with_dots_is_another_key) {
  expect("\"fp8.backend\" = \"te\"",
         "octavo.toml:1:1: unknown key \"\"fp8.backend\"\"; did you mean \"fp8.backend\"?");
}

TEST_F(ConfigErrors, wrong_type) {
  expect("mixed_precision = 8",
         "octavo.toml:1:1: mixed_precision: expected a text, found an integer (8)");
  expect("fp8.backend = true",
         "octavo.toml:1:5: fp8.backend: expected a text, found a boolean "
         "(true)");
  expect("fp8.preference = 1.5",
         "octavo.toml:1:5: fp8.preference: expected a list of texts, found a real number (1.5)");
  expect("device.kind = [\"cpu\"]",
         "octavo.toml:1:8: device.kind: expected a text, found a list of texts ([\"cpu\"])");
  expect("schema = \"1\"", "octavo.toml:1:1: schema: expected an integer, found a text (\"1\")");
  expect("plugins.trust = 2024-01-01",
         "octavo.toml:1:9: plugins.trust: expected a text, found a date or time");
  expect("[mixed_precision]", "octavo.toml:1:1: mixed_precision: expected a text, found a table");
}

TEST_F(ConfigErrors, bad_choice) {
  expect("mixed_precision = \"fp9\"",
         "octavo.toml:1:1: mixed_precision: expected \"no\", \"fp16\", \"bf16\" or \"fp8\", found "
         "\"fp9\"; did you mean \"fp8\"?");
  expect("device.kind = \"quantum\"",
         "octavo.toml:1:8: device.kind: expected \"auto\", \"cpu\" or \"cuda\", found "
         "\"quantum\"");
  expect("plugins.trust = \"everyone\"",
         "octavo.toml:1:9: plugins.trust: expected \"owner\" or \"dev\", found \"everyone\"");
}

TEST_F(ConfigErrors, schema_of_the_future) {
  expect("schema = 2",
         "octavo.toml:1:1: schema: expected 1, the only one that this version reads, found 2");
}

TEST_F(ConfigErrors, array_mixes) {
  const std::string message =
      ": expected a list of texts, found a list with something other than "
      "text";
  expect("layers.skip = [\"a\", 1]", "octavo.toml:1:8: layers.skip" + message);
  expect("layers.skip = [1, 2]", "octavo.toml:1:8: layers.skip" + message);
  expect("fp8.fallback = [\"bf16\", [\"no\"]]", "octavo.toml:1:5: fp8.fallback" + message);
  EXPECT_NE(failure_of(Request().text("layers.skip = [\"a\", { b = 1 }]")), "(accepted)");
  EXPECT_NE(failure_of(Request().text("plugin = [{ manifest = \"/m\" }, \"x\"]")), "(accepted)");
}

TEST_F(ConfigErrors, malformed_manifest_entry) {
  expect("[[plugin]]\nmanifest = 3",
         "octavo.toml:2:1: plugin.manifest: expected a text, found an integer");
  EXPECT_THAT(failure_of(Request().text("[[plugin]]\npath = \"/x\"")),
              testing::StartsWith("octavo.toml:2:1: unknown key \"plugin.0.path\""));
}

TEST_F(ConfigErrors, duplicate_key) {
  EXPECT_THAT(failure_of(Request().text("schema = 1\nschema = 1")), malformed_in_line(2));
  EXPECT_THAT(failure_of(Request().text("[fp8]\nbackend = \"te\"\n[fp8]\nfallback = []")),
              malformed_in_line(3));
}

TEST_F(ConfigErrors, no_toml_at_all) {
  EXPECT_THAT(failure_of(Request().text("schema = \n")), malformed_in_line(1));
  EXPECT_THAT(failure_of(Request().text("{ \"schema\": 1 }")), malformed_in_line(1));
}

TEST_F(ConfigErrors, bytes_that_are_no_text) {
  EXPECT_THAT(failure_of(Request().text(std::string("fp8.backend = \"t\0e\"", 19))),
              malformed_in_line(1));
  EXPECT_THAT(failure_of(Request().text("fp8.backend = \"\xff\"")), malformed_in_line(1));
}

TEST_F(ConfigErrors, too_large) {
  expect(std::string((1 << 20) + 1, '\n'),
         "octavo.toml: expected at most 1 MiB of TOML, found 1048577 bytes");
}

TEST_F(ConfigErrors, auto_without_any_preference) {
  expect("fp8.preference = []",
         "octavo.toml:1:5: fp8.preference: expected at least one backend while fp8.backend is "
         "\"auto\", found none");
}

TEST_F(ConfigErrors, missing_file_and_directory) {
  const TempDir dir;
  EXPECT_EQ(failure_of(Request().path(dir / "none.toml")),
            (dir / "none.toml") +
                ": cannot be read: No such file or directory; check the path "
                "and its permissions");
  EXPECT_EQ(failure_of(Request().path(dir.path())),
            dir.path() + ": expected a file, found a directory");
}

TEST_F(ConfigErrors, environment_and_overrides_are_named) {
  EXPECT_EQ(failure_of(Request().set("plugins.trust", 3)),
            "override plugins.trust: plugins.trust: expected a text, found an integer (3)");
  EXPECT_THAT(failure_of(Request().set("plugins.trusty", "dev")),
              "override plugins.trusty: unknown key \"plugins.trusty\"; did you mean "
              "\"plugins.trust\"?");
  octavo_value v{};
  v.type = 9;
  EXPECT_EQ(failure_of(Request().set_value("schema", v)),
            "override schema: expected a value type of 1 to 4, found 9");
  EXPECT_THAT(failure_of(Request().set("", 1)), testing::StartsWith("override : unknown key"));
  environment.set("OCTAVO_MIXED_PRECISION", "fp9");
  EXPECT_EQ(failure_of(Request()),
            "environment variable OCTAVO_MIXED_PRECISION: mixed_precision: expected \"no\", "
            "\"fp16\", \"bf16\" or \"fp8\", found \"fp9\"; did you mean \"fp8\"?");
}

}  // namespace
}  // namespace octavo
