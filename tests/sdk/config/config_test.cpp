// Every core key from every source, with its value and its origin.
#include "sdk/src/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::Environment;
using test::Request;
using test::TempDir;

class ConfigTest : public testing::Test {
 protected:
  Config load(const Request &request) { return load_config(request.desc()); }
  static std::string value(const Config &c, const std::string &key) {
    const Setting *setting = c.find(key);
    return setting == nullptr ? "(no such key)" : show(setting->value);
  }
  Environment environment;
};

TEST_F(ConfigTest, defaults) {
  const Config c = load(Request());
  EXPECT_EQ(c.name, "(no file)");
  EXPECT_EQ(c.directory, "");
  EXPECT_EQ(value(c, "schema"), "1");
  EXPECT_EQ(value(c, "mixed_precision"), "\"fp8\"");
  EXPECT_EQ(value(c, "fp8.backend"), "\"auto\"");
  EXPECT_EQ(value(c, "fp8.preference"), "[\"te\"]");
  EXPECT_EQ(value(c, "fp8.fallback"), "[]");
  EXPECT_EQ(value(c, "fp8.require.native"), "false");
  EXPECT_EQ(value(c, "fp8.require.deterministic"), "false");
  EXPECT_EQ(value(c, "fp8.require.graph_capture"), "false");
  EXPECT_EQ(value(c, "fp8.require.speed"), "\"any\"");
  for (const char *list : {"encodings", "scaling", "recipes"})
    EXPECT_EQ(value(c, std::string("fp8.require.") + list), "[]");
  EXPECT_EQ(value(c, "layers.skip"), "[\"*head*\"]");
  EXPECT_EQ(value(c, "layers.min_gain"), "\"auto\"");
  EXPECT_EQ(value(c, "device.kind"), "\"auto\"");
  EXPECT_EQ(value(c, "device.layers"), "[]");
  EXPECT_EQ(value(c, "plugins.path"), "[]");
  EXPECT_EQ(value(c, "plugins.trust"), "\"owner\"");
  EXPECT_EQ(value(c, "plugins.pins"), "[]");
  EXPECT_EQ(value(c, "plugins.keys"), "[]");
  EXPECT_EQ(value(c, "plugins.locked"), "false");
  EXPECT_EQ(value(c, "plugins.probe"), "\"auto\"");
  EXPECT_EQ(value(c, "plugins.probe_timeout_ms"), "2000");
  EXPECT_EQ(value(c, "distributed.engine"), "\"threads\"");
  EXPECT_EQ(value(c, "distributed.timeout_s"), "600");
  EXPECT_EQ(value(c, "checkpoint.run_id"), "\"\"");
  EXPECT_EQ(value(c, "checkpoint.hash"), "\"xxh3\"");
  EXPECT_EQ(value(c, "trace.directory"), "\"\"");
  EXPECT_EQ(value(c, "trace.first_step"), "2");
  EXPECT_EQ(value(c, "trace.steps"), "1");
  EXPECT_EQ(c.settings.size(), 31u);
  for (const auto &[name, setting] : c.settings) EXPECT_EQ(setting.origin, "default") << name;
}

struct Case {
  const char *key;
  const char *line;  // of the file
  int column;        // of the key's last part
  const char *from_file;
  const char *override_text;
  const char *from_override;
};

const Case kCases[] = {
    {"mixed_precision", "mixed_precision = \"bf16\"", 1, "\"bf16\"", "no", "\"no\""},
    {"fp8.backend", "fp8.backend = \"reference\"", 5, "\"reference\"", "msamp", "\"msamp\""},
    {"fp8.preference", "fp8.preference = [\"a\", \"b\"]", 5, "[\"a\", \"b\"]", "c", "[\"c\"]"},
    {"fp8.fallback", "fp8.fallback = [\"bf16\"]", 5, "[\"bf16\"]", "fp16", "[\"fp16\"]"},
    {"fp8.require.speed", "fp8.require.speed = \"vector\"", 13, "\"vector\"", "native",
     "\"native\""},
    {"fp8.require.encodings", "fp8.require.encodings = [\"float8_e5m2\"]", 13, "[\"float8_e5m2\"]",
     "float8_e4m3fn", "[\"float8_e4m3fn\"]"},
    {"fp8.require.scaling", "fp8.require.scaling = [\"row\"]", 13, "[\"row\"]", "tensor",
     "[\"tensor\"]"},
    {"fp8.require.recipes", "fp8.require.recipes = [\"mx\"]", 13, "[\"mx\"]", "block",
     "[\"block\"]"},
    {"layers.skip", "layers.skip = [\"*head*\"]", 8, "[\"*head*\"]", "*embed*", "[\"*embed*\"]"},
    {"layers.min_gain", "layers.min_gain = \"off\"", 8, "\"off\"", "torchao", "\"torchao\""},
    {"device.kind", "device.kind = \"cpu\"", 8, "\"cpu\"", "cuda", "\"cuda\""},
    {"distributed.engine", "distributed.engine = \"mpi\"", 13, "\"mpi\"", "nccl", "\"nccl\""},
    {"plugins.path", "plugins.path = [\"p\", \"q\"]", 9, "[\"p\", \"q\"]", "r", "[\"r\"]"},
    {"plugins.trust", "plugins.trust = \"dev\"", 9, "\"dev\"", "owner", "\"owner\""},
    {"plugins.pins", "plugins.pins = [\"a:1\"]", 9, "[\"a:1\"]", "b:2", "[\"b:2\"]"},
    {"plugins.keys", "plugins.keys = [\"RW\"]", 9, "[\"RW\"]", "k", "[\"k\"]"},
};

TEST_F(ConfigTest, every_key_by_text) {
  for (const Case &one : kCases) {
    Request r;
    r.text(std::string("# first line\n") + one.line + "\n");
    const Config c = load(r);
    EXPECT_EQ(value(c, one.key), one.from_file);
    EXPECT_EQ(c.find(one.key)->origin, "octavo.toml:2:" + std::to_string(one.column)) << one.key;
  }
}

TEST_F(ConfigTest, every_key_by_override) {
  for (const Case &one : kCases) {
    Request r;
    r.text(one.line).set(one.key, one.override_text);
    const Config c = load(r);
    EXPECT_EQ(value(c, one.key), one.from_override);
    EXPECT_EQ(c.find(one.key)->origin, "override");
  }
}

TEST_F(ConfigTest, schema_by_every_source) {
  EXPECT_EQ(load(Request().text("schema = 1")).origin(key::kSchema), "octavo.toml:1:1");
  EXPECT_EQ(load(Request().set("schema", 1)).origin(key::kSchema), "override");
}

TEST_F(ConfigTest, file_gives_name_directory_and_positions) {
  const TempDir dir;
  const std::string path = dir.write("octavo.toml", "\n[fp8]\nbackend = \"te\"\n");
  Request r;
  r.path(path);
  const Config c = load(r);
  EXPECT_EQ(c[key::kBackend], "te");
  EXPECT_EQ(c.name, path);
  EXPECT_EQ(c.directory, dir.path());
  EXPECT_EQ(c.origin(key::kBackend), path + ":3:1");
  EXPECT_EQ(c.origin(key::kFallback), "default");
}

TEST_F(ConfigTest, text_with_a_path_is_not_read_from_the_file) {
  Request r;
  r.path("/nowhere/run.toml").text("fp8.backend = \"x\"");
  const Config c = load(r);
  EXPECT_EQ(c[key::kBackend], "x");
  EXPECT_EQ(c.directory, "/nowhere");
  EXPECT_EQ(c.origin(key::kBackend), "/nowhere/run.toml:1:5");
}

TEST_F(ConfigTest, environment_wins_over_the_file) {
  environment.set("OCTAVO_MIXED_PRECISION", "fp16");
  environment.set("OCTAVO_BACKEND", "reference");
  Request r;
  r.text("mixed_precision = \"no\"\nfp8.backend = \"te\"");
  const Config c = load(r);
  EXPECT_EQ(c[key::kMixedPrecision], "fp16");
  EXPECT_EQ(c[key::kBackend], "reference");
  EXPECT_EQ(c.origin(key::kMixedPrecision), "OCTAVO_MIXED_PRECISION");
  EXPECT_EQ(c.origin(key::kBackend), "OCTAVO_BACKEND");
}

TEST_F(ConfigTest, override_wins_over_the_environment) {
  environment.set("OCTAVO_BACKEND", "reference");
  EXPECT_EQ(load(Request().set("fp8.backend", "te"))[key::kBackend], "te");
}

TEST_F(ConfigTest, empty_environment_variable_says_nothing) {
  environment.set("OCTAVO_BACKEND", "");
  EXPECT_EQ(load(Request())[key::kBackend], "auto");
}

TEST_F(ConfigTest, empty_file_and_empty_tables_are_the_defaults) {
  const TempDir dir;
  Request r;
  r.path(dir.write("octavo.toml", ""));
  EXPECT_EQ(load(r)[key::kBackend], "auto");
  EXPECT_EQ(load(Request().text("[fp8]\n[layers]\n[device]\n[plugins]\n"))[key::kBackend], "auto");
}

TEST_F(ConfigTest, one_text_is_a_list_of_one) {
  EXPECT_THAT(load(Request().text("fp8.preference = \"reference\""))[key::kPreference],
              testing::ElementsAre("reference"));
}

TEST_F(ConfigTest, backend_options_are_kept_with_their_origins) {
  Request r;
  r.text("[fp8.te]\nmargin = 3\n[fp8.\"com.example\"]\nx = true\n")
      .set("fp8.te.recipe", "current")
      .set("fp8.com.example.y", 2);
  const Config c = load(r);
  EXPECT_EQ(show(c.backend_options.at("te").at("margin").value), "3");
  EXPECT_EQ(c.backend_options.at("te").at("margin").origin, "octavo.toml:2:1");
  EXPECT_EQ(c.backend_options.at("te").at("recipe").origin, "override");
  EXPECT_EQ(show(c.backend_options.at("com.example").at("x").value), "true");
  EXPECT_EQ(show(c.backend_options.at("com.example").at("y").value), "2");
}

TEST_F(ConfigTest, manifests_are_listed_in_order) {
  const Config c =
      load(Request().text("[[plugin]]\nmanifest = \"/a\"\n[[plugin]]\nmanifest = \"/b\"\n"));
  ASSERT_EQ(c.manifests.size(), 2u);
  EXPECT_EQ(show(c.manifests[0].second.value), "\"/a\"");
  EXPECT_EQ(show(c.manifests[1].second.value), "\"/b\"");
}

}  // namespace
}  // namespace octavo
