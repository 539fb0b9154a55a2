// Every option of the te backend, by file and by override: what its session was opened with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/request.h"

namespace octavo::test {
namespace {

class TeOptions : public testing::Test {
 protected:
  static Request &base(Request &r) {
    return r.set("fp8.backend", "te").set("plugins.trust", "dev");
  }

  // The option as the plugin gets it.
  static std::string seen(Request &r, const std::string &name) {
    RunPtr run;
    if (base(r).open(run) != OCTAVO_OK) return r.host.error();
    const octavo_session_desc *d = octavo_session_desc_of(run.get());
    for (uint64_t i = 0; i < d->option_count; ++i) {
      const octavo_value &v = d->options[i].value;
      if (text_of(d->options[i].name) != name) continue;
      if (v.type == OCTAVO_VALUE_INT) return std::to_string(v.integer);
      if (v.type == OCTAVO_VALUE_TEXT) return text_of(v.text);
      return "type " + std::to_string(v.type);
    }
    return "(absent)";
  }
  static std::string by_file(const std::string &line, const std::string &name) {
    Request r;
    return seen(r.text("[fp8.te]\n" + line + "\n"), name);
  }
  template <typename T>
  static std::string by_override(const std::string &name, T value) {
    Request r;
    return seen(r.set("fp8.te." + name, value), name);
  }
  Environment environment;
};

TEST_F(TeOptions, defaults) {
  const std::pair<const char *, const char *> expected[] = {
      {"recipe", "delayed"},        {"fp8_format", "HYBRID"},     {"margin", "0"},
      {"amax_history_len", "1024"}, {"amax_compute_algo", "max"}, {"profile", "te2-delayed-fused"},
  };
  for (const auto &[name, value] : expected) {
    Request r;
    EXPECT_EQ(seen(r, name), value) << name;
  }
}

TEST_F(TeOptions, every_legal_value_by_file) {
  for (const char *v : {"delayed", "current"})
    EXPECT_EQ(by_file(std::string("recipe = \"") + v + "\"", "recipe"), v);
  for (const char *v : {"HYBRID", "E4M3"})
    EXPECT_EQ(by_file(std::string("fp8_format = \"") + v + "\"", "fp8_format"), v);
  for (const char *v : {"0", "3", "30"})
    EXPECT_EQ(by_file(std::string("margin = ") + v, "margin"), v);
  for (const char *v : {"1", "16", "65536"})
    EXPECT_EQ(by_file(std::string("amax_history_len = ") + v, "amax_history_len"), v);
  for (const char *v : {"max", "most_recent"})
    EXPECT_EQ(by_file(std::string("amax_compute_algo = \"") + v + "\"", "amax_compute_algo"), v);
  for (const char *v : {"te2-delayed-fused", "te2-delayed-unfused"})
    EXPECT_EQ(by_file(std::string("profile = \"") + v + "\"", "profile"), v);
}

TEST_F(TeOptions, every_option_by_override) {
  EXPECT_EQ(by_override("recipe", "current"), "current");
  EXPECT_EQ(by_override("fp8_format", "E4M3"), "E4M3");
  EXPECT_EQ(by_override("margin", 7), "7");
  EXPECT_EQ(by_override("amax_history_len", 2), "2");
  EXPECT_EQ(by_override("amax_compute_algo", "most_recent"), "most_recent");
  EXPECT_EQ(by_override("profile", "te2-delayed-unfused"), "te2-delayed-unfused");
}

TEST_F(TeOptions, out_of_range) {
  EXPECT_EQ(by_file("margin = -1", "margin"),
            "octavo.toml:2:1: fp8.te.margin: expected 0 to 30, found -1");
  EXPECT_EQ(by_override("margin", 31), "override: fp8.te.margin: expected 0 to 30, found 31");
  EXPECT_EQ(by_file("amax_history_len = 0", "amax_history_len"),
            "octavo.toml:2:1: fp8.te.amax_history_len: expected 1 to 65536, found 0");
  EXPECT_EQ(by_override("amax_history_len", int64_t{1} << 40),
            "override: fp8.te.amax_history_len: expected 1 to 65536, found 1099511627776");
}

TEST_F(TeOptions, wrong_type_and_no_choice) {
  EXPECT_EQ(by_file("margin = \"3\"", "margin"),
            "octavo.toml:2:1: fp8.te.margin: expected an integer, found a text (\"3\")");
  EXPECT_EQ(by_file("recipe = 1", "recipe"),
            "octavo.toml:2:1: fp8.te.recipe: expected a text, found an integer (1)");
  EXPECT_EQ(by_file("recipe = \"delay\"", "recipe"),
            "octavo.toml:2:1: fp8.te.recipe: expected \"delayed\" or \"current\", found \"delay\"; "
            "did you mean \"delayed\"?");
  EXPECT_EQ(by_override("fp8_format", "hybrid"),
            "override: fp8.te.fp8_format: expected \"HYBRID\" or \"E4M3\", found \"hybrid\"");
}

TEST_F(TeOptions, unknown) {
  EXPECT_EQ(by_file("amax_histroy_len = 4", "margin"),
            "octavo.toml:2:1: unknown key \"fp8.te.amax_histroy_len\"; did you mean "
            "\"fp8.te.amax_history_len\"?");
  EXPECT_EQ(by_file("opt_level = \"O2\"", "margin"),
            "octavo.toml:2:1: unknown key \"fp8.te.opt_level\"; backend te knows recipe, "
            "fp8_format, margin, amax_history_len, amax_compute_algo and profile");
}

TEST_F(TeOptions, misspelt_table) {
  Request r;
  r.text("[fp8.tee]\nmargin = 1\n");
  EXPECT_EQ(seen(r, "margin"),
            "octavo.toml:2:1: table [fp8.tee]: no backend \"tee\" is installed; did you mean "
            "[fp8.te]?");
}

TEST_F(TeOptions, backend_by_environment) {
  environment.set("OCTAVO_BACKEND", "te");
  Request r;
  r.text("fp8.backend = \"reference\"").set("plugins.trust", "dev");
  const RunPtr run = r.opened();
  ASSERT_NE(run, nullptr) << r.host.error();
  EXPECT_EQ(text_of(octavo_backend_id_of(run.get())), "te");
}

}  // namespace
}  // namespace octavo::test
