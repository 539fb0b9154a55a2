// octavo config --launcher: variables of accelerate launch with their names. Against the same in
// Python: tests/host_adapters/python/accelerate_class_test.py.
#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliLauncher : public Cli {
 protected:
  CliLauncher() {
    environment.set("ACCELERATE_MIXED_PRECISION", "fp8");
    environment.set("ACCELERATE_FP8_BACKEND", "TE");
    environment.set("ACCELERATE_FP8_MARGIN", "3");
    environment.set("ACCELERATE_FP8_OPT_LEVEL", "O1");  // of another backend
  }
  Finished launched(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"config", "show", "--launcher"});
    return octavo(std::move(more));
  }
};

TEST_F(CliLauncher, each_value_has_its_variable) {
  const Finished f = launched({"--set", "fp8.te.amax_history_len=8"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  for (const char *line :
       {" = \"fp8\"  (ACCELERATE_MIXED_PRECISION)\n", " = \"te\"  (ACCELERATE_FP8_BACKEND)\n",
        " = 3  (ACCELERATE_FP8_MARGIN)\n", " = \"delayed\"  (octavo.accelerate)\n",
        " = 8  (override)\n"})
    EXPECT_THAT(f.out, HasSubstr(line));
  EXPECT_THAT(f.out, Not(HasSubstr("opt_level")));
}

// The command line is above the environment, as everywhere.
TEST_F(CliLauncher, what_is_set_wins) {
  EXPECT_THAT(launched({"--set", "fp8.te.margin=5"}).out, HasSubstr(" = 5  (override)\n"));
}

TEST_F(CliLauncher, refuses_what_has_no_counterpart) {
  environment.set("ACCELERATE_FP8_INTERVAL", "2");
  const Finished f = launched();
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_THAT(f.err, HasSubstr("error: ACCELERATE_FP8_INTERVAL: "));
}

TEST_F(CliLauncher, refuses_no_variables_and_a_file) {
  EXPECT_EQ(launched({"--config", "octavo.toml"}).exit_code, 2);
  for (const char *name : {"ACCELERATE_MIXED_PRECISION", "ACCELERATE_FP8_BACKEND",
                           "ACCELERATE_FP8_MARGIN", "ACCELERATE_FP8_OPT_LEVEL"})
    environment.unset(name);
  const Finished f = launched();
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("expected variables that accelerate launch exports"));
}

}  // namespace
}  // namespace octavo::test
