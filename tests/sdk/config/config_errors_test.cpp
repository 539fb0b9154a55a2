// The strict configuration: each wrong input with its exact message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sdk/src/base/failure.h"
#include "sdk/src/config/config.h"
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
      "fp8.require.native, fp8.require.deterministic, fp8.require.graph_capture, "
      "fp8.require.speed, fp8.require.encodings, fp8.require.scaling, fp8.require.recipes, "
      "layers.skip, layers.min_gain, device.kind, device.kernels, device.layers, plugins.path, "
      "plugins.trust, "
      "plugins.pins, "
      "plugins.keys, plugins.locked, plugins.probe, plugins.probe_timeout_ms, "
      "distributed.engine, distributed.timeout_s, checkpoint.run_id, checkpoint.hash, "
      "trace.directory, trace.first_step and trace.steps; a backend's options are "
      "set in [fp8.<backend>]";
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
  expect("layers.min_gain = \"quantum\"",
         "octavo.toml:1:8: layers.min_gain: expected \"auto\", \"torchao\" or \"off\", found "
         "\"quantum\"");
  expect("plugins.probe = \"sometimes\"",
         "octavo.toml:1:9: plugins.probe: expected \"auto\", \"always\" or \"never\", found "
         "\"sometimes\"");
  for (const char *ms : {"0", "600001"})
    expect(std::string("plugins.probe_timeout_ms = ") + ms,
           std::string("octavo.toml:1:9: plugins.probe_timeout_ms: expected 1 to 600000, found ") +
               ms);
  for (const char *s : {"0", "86401"})
    expect(std::string("distributed.timeout_s = ") + s,
           std::string("octavo.toml:1:13: distributed.timeout_s: expected 1 to 86400, found ") + s);
  expect("distributed.engine = \"gloo\"",
         "octavo.toml:1:13: distributed.engine: expected \"threads\", \"mpi\" or \"nccl\", found "
         "\"gloo\"");
  expect("plugins.trust = \"everyone\"",
         "octavo.toml:1:9: plugins.trust: expected \"owner\", \"pinned\", \"signed\" or \"dev\", "
         "found \"everyone\"");
}

TEST_F(ConfigErrors, requirements) {
  expect("[fp8.require]\nnativ = true",
         "octavo.toml:2:1: unknown key \"fp8.require.nativ\"; did you mean "
         "\"fp8.require.native\"?");
  expect("fp8.require.native = \"yes\"",
         "octavo.toml:1:13: fp8.require.native: expected a boolean, found a text (\"yes\")");
  expect("fp8.require.encodings = [\"float8_e4m3fn\", \"fp4\"]",
         "octavo.toml:1:13: fp8.require.encodings: expected \"float8_e4m3fn\", \"float8_e5m2\" or "
         "\"float8_e8m0fnu\", found \"fp4\"");
  expect("fp8.require.speed = \"nativ\"",
         "octavo.toml:1:13: fp8.require.speed: expected \"any\", \"vector\" or \"native\", found "
         "\"nativ\"; did you mean \"native\"?");
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
         "octavo.toml: expected at most 1 MiB of TOML, found more");
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
            dir.path() + ": expected a regular file, found a directory");
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
  EXPECT_THAT(failure_of(Request().set("mixed_precision", "[")), testing::HasSubstr("found \"[\""));
  environment.set("OCTAVO_MIXED_PRECISION", "fp9");
  EXPECT_EQ(failure_of(Request()),
            "environment variable OCTAVO_MIXED_PRECISION: mixed_precision: expected \"no\", "
            "\"fp16\", \"bf16\" or \"fp8\", found \"fp9\"; did you mean \"fp8\"?");
}

TEST_F(ConfigErrors, overrides_without_an_address) {
  octavo_open_desc desc = Request().desc();
  desc.overrides = nullptr;
  desc.override_count = 2;
  try {
    load_config(desc);
    ADD_FAILURE() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_EQ(f.text(),
              "overrides: expected the address of 2 values, found null; pass override_count 0 for "
              "no overrides");
  }
}

TEST_F(ConfigErrors, keys_of_every_depth) {
  EXPECT_THAT(failure_of(Request().set("plugins.a.b.c", 1)),
              testing::StartsWith("override plugins.a.b.c: unknown key \"plugins.a.b.c\""));
  EXPECT_EQ(failure_of(Request().set("fp8.a.b.c.d", 1)), "(accepted)");  // of the backend "a.b.c"
  EXPECT_THAT(failure_of(Request().text("[[plugin]]\nother = 1")),
              testing::StartsWith("octavo.toml:2:1: unknown key \"plugin.0.other\""));
  EXPECT_THAT(failure_of(Request().text("[other.deep]\nmanifest = \"x\"")),
              testing::StartsWith("octavo.toml:2:1: unknown key \"other.deep.manifest\""));
  EXPECT_THAT(failure_of(Request().text("[fp8.require]\nunknown_thing = 1")),
              testing::StartsWith("octavo.toml:2:1: unknown key \"fp8.require.unknown_thing\""));
  for (const std::string table : {"layers.deep", "fp8.te.deep", "fp8.require.deep"})
    EXPECT_THAT(failure_of(Request().text("[" + table + "]")),
                testing::HasSubstr("unknown key \"" + table + "\""));
}

TEST_F(ConfigErrors, choice_that_is_near_nothing) {
  expect("[fp8.require]\nencodings = [\"zzzz\", \"float8_e5m2\"]",
         "octavo.toml:2:1: fp8.require.encodings: expected \"float8_e4m3fn\", \"float8_e5m2\" or "
         "\"float8_e8m0fnu\", found \"zzzz\"");
}

// fnmatch would take what is left open as plain characters.
TEST_F(ConfigErrors, patterns_that_match_another_text) {
  const std::string open = "\"[\" without \"]\", which would be one character of a name";
  for (const auto &[pattern, problem] : {std::pair<std::string, std::string>{"[a", open},
                                         {"a.[]", open},
                                         {"a.[!]", open},
                                         {"a\\\\", "a backslash at its end"}}) {
    expect("layers.skip = [\"b\", \"" + pattern + "\"]",
           "octavo.toml:1:8: layers.skip: expected patterns of layer names, found \"" +
               (pattern[1] == '\\' ? "a\\" : pattern) + "\" with " + problem);
    EXPECT_THAT(failure_of(Request().text("[[layers.rule]]\nmatch = \"" + pattern +
                                          "\"\nplace = \"host\"\n")),
                testing::EndsWith(problem));
  }
  for (const char *pattern : {"*", "a?", "[]]", "[!]a]", "[a-c]*", "a]", "x[0-9][0-9]"})
    EXPECT_EQ(failure_of(Request().text("layers.skip = \"" + std::string(pattern) + "\"")),
              "(accepted)");
}

TEST_F(ConfigErrors, limits_of_the_timeout) {
  for (const int ms : {0, kMaxProbeTimeout + 1})
    EXPECT_EQ(failure_of(Request().set("plugins.probe_timeout_ms", ms)),
              "override plugins.probe_timeout_ms: plugins.probe_timeout_ms: expected 1 to " +
                  std::to_string(kMaxProbeTimeout) + ", found " + std::to_string(ms));
  for (const int ms : {1, kMaxProbeTimeout})
    EXPECT_EQ(failure_of(Request().set("plugins.probe_timeout_ms", ms)), "(accepted)");
}

TEST_F(ConfigErrors, file_that_this_user_cannot_read) {
  const TempDir dir;
  const std::string path = dir.write("octavo.toml", "", 0);
  chmod(dir.path().c_str(), 0755);
  // Root reads everything, so somebody else asks.
  const bool is_root = geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(seteuid(12345), 0);
  }
  std::string text, command;
  try {
    read_file(path, "octavo.config");
  } catch (const Failure &f) {
    text = f.text();
    command = f.fix().command;
  }
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(text, path + ": cannot be read: Permission denied; check the path and its permissions");
  EXPECT_EQ(command, "chmod u+r " + path);
}

TEST_F(ConfigErrors, only_core_keys_are_found_by_name) {
  const Config config;
  EXPECT_EQ(config.find("fp8.backend")->origin, "default");
  EXPECT_EQ(config.find("fp8.te.margin"), nullptr);
  EXPECT_EQ(config.find("fp8"), nullptr);
}

TEST_F(ConfigErrors, element_that_is_nearly_a_choice) {
  expect("[fp8.require]\nencodings = [\"float8_e5m3\", \"float8_e4m3fn\"]",
         "octavo.toml:2:1: fp8.require.encodings: expected \"float8_e4m3fn\", \"float8_e5m2\" or "
         "\"float8_e8m0fnu\", found \"float8_e5m3\"; did you mean \"float8_e5m2\"?");
}

}  // namespace
}  // namespace octavo
