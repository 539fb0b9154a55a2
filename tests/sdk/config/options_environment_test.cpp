// Options of a backend from the environment: types, precedence, and names that are none.
#include "sdk/src/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "sdk/src/base/failure.h"
#include "tests/support/environment.h"

namespace octavo {
namespace {

DeclaredOption option(const std::string &name, TomlValue initial) {
  return {name, "help", std::move(initial), OtherToml{"nothing"}, OtherToml{"nothing"}, {}};
}

class OptionsEnvironment : public testing::Test {
 protected:
  // The value of one option, or the failure's words.
  std::string value(const std::string &name, std::map<std::string, Setting> given = {}) {
    try {
      const auto all = with_environment(declared, "my-x", std::move(given));
      const auto found = all.find(name);
      return found == all.end() ? "(none)"
                                : show(found->second.value) + " from " + found->second.origin;
    } catch (const Failure &f) {
      EXPECT_EQ(f.status(), OCTAVO_INVALID);
      command = f.fix().command;
      return f.text();
    }
  }
  const std::vector<DeclaredOption> declared = {option("count", int64_t{1}), option("ratio", 0.5),
                                                option("flag", false),
                                                option("note", std::string("n"))};
  std::string command;
  test::Environment environment;
};

TEST_F(OptionsEnvironment, names) {
  EXPECT_EQ(variable_of("my-x.2", "fast_path"), "OCTAVO_FP8_MY_X_2_FAST_PATH");
}

TEST_F(OptionsEnvironment, every_type) {
  environment.set("OCTAVO_FP8_MY_X_COUNT", "-12");
  environment.set("OCTAVO_FP8_MY_X_RATIO", "2.5");
  environment.set("OCTAVO_FP8_MY_X_NOTE", "a b");
  EXPECT_EQ(value("count"), "-12 from OCTAVO_FP8_MY_X_COUNT");
  EXPECT_EQ(value("ratio"), "2.5 from OCTAVO_FP8_MY_X_RATIO");
  EXPECT_EQ(value("note"), "\"a b\" from OCTAVO_FP8_MY_X_NOTE");
  for (const char *yes : {"1", "true", "YES", "on", "y", "T"}) {
    environment.set("OCTAVO_FP8_MY_X_FLAG", yes);
    EXPECT_EQ(value("flag"), "true from OCTAVO_FP8_MY_X_FLAG") << yes;
  }
  for (const char *no : {"0", "False", "no", "off", "n", "f"}) {
    environment.set("OCTAVO_FP8_MY_X_FLAG", no);
    EXPECT_EQ(value("flag"), "false from OCTAVO_FP8_MY_X_FLAG") << no;
  }
}

TEST_F(OptionsEnvironment, values_of_another_type) {
  for (const std::string text : {"x", "1x", "1.0", "1e3", "+1", "99999999999999999999"}) {
    environment.set("OCTAVO_FP8_MY_X_COUNT", text);
    EXPECT_EQ(value("count"),
              "environment variable OCTAVO_FP8_MY_X_COUNT: expected an integer, "
              "found \"" +
                  text + "\"");
  }
  environment.unset("OCTAVO_FP8_MY_X_COUNT");
  environment.set("OCTAVO_FP8_MY_X_RATIO", "half");
  EXPECT_EQ(value("ratio"),
            "environment variable OCTAVO_FP8_MY_X_RATIO: expected a number, found \"half\"");
  environment.unset("OCTAVO_FP8_MY_X_RATIO");
  environment.set("OCTAVO_FP8_MY_X_FLAG", "maybe");
  EXPECT_EQ(value("flag"),
            "environment variable OCTAVO_FP8_MY_X_FLAG: expected true or false (also "
            "1, yes, on, 0, no, off), found \"maybe\"");
}

TEST_F(OptionsEnvironment, precedence) {
  environment.set("OCTAVO_FP8_MY_X_COUNT", "7");
  EXPECT_EQ(value("count", {{"count", {int64_t{5}, "octavo.toml:1:1"}}}),
            "7 from OCTAVO_FP8_MY_X_COUNT");
  EXPECT_EQ(value("count", {{"count", {int64_t{5}, kOverride}}}),
            std::string("5 from ") + kOverride);
  environment.set("OCTAVO_FP8_MY_X_COUNT", "");
  EXPECT_EQ(value("count"), "(none)");
}

TEST_F(OptionsEnvironment, names_that_are_none) {
  environment.set("OCTAVO_FP8_MY_X_COUNTS", "1");
  EXPECT_EQ(value("count"),
            "environment variable OCTAVO_FP8_MY_X_COUNTS: backend my-x has no such "
            "option; did you mean OCTAVO_FP8_MY_X_COUNT?");
  EXPECT_EQ(command,
            "export OCTAVO_FP8_MY_X_COUNT=\"$OCTAVO_FP8_MY_X_COUNTS\" && unset "
            "OCTAVO_FP8_MY_X_COUNTS");
  environment.unset("OCTAVO_FP8_MY_X_COUNTS");
  environment.set("OCTAVO_FP8_MY_X_SOMETHING_ELSE_ENTIRELY_QUITE_LONG", "1");
  EXPECT_THAT(value("count"), testing::HasSubstr("; it knows OCTAVO_FP8_MY_X_COUNT, "));
  EXPECT_EQ(command, "");
}

// What a program that called clearenv has.
TEST_F(OptionsEnvironment, without_any_environment) {
  char **const outer = environ;
  environ = nullptr;
  const std::string found = value("count");
  environ = outer;
  EXPECT_EQ(found, "(none)");
}

}  // namespace
}  // namespace octavo
