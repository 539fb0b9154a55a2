// octavo check: two formats, and an exit code that scripts can trust.
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliCheck : public Cli {};

TEST_F(CliCheck, text) {
  const Finished f = with_fake({"check", "--set", "fp8.backend=fake"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out, HasSubstr("\nruns       fp8\n"));
  EXPECT_THAT(f.out, HasSubstr("\nbackend    fake 1.2.3, ABI 1.0\n"));
  EXPECT_THAT(f.out, HasSubstr("\n  fake  <- chosen\n"));
}

TEST_F(CliCheck, json) {
  const Finished f = with_fake({"check", "--json", "--set", "fp8.backend=fake"});
  EXPECT_EQ(f.exit_code, 0);
  const json j = json::parse(f.out);
  EXPECT_EQ(j["runs"], "fp8");
  EXPECT_EQ(j["backend"]["library"], dir / "plugins/fake.so");
}

TEST_F(CliCheck, says_which_sizes_stay_with_the_host) {
  Finished f = octavo({"check", "--json"});
  json j = json::parse(f.out)["min_gain"];
  EXPECT_EQ(j["value"], "auto");
  EXPECT_EQ(j["origin"], "default");
  EXPECT_THAT(j["effect"].get<std::string>(), HasSubstr("FP8 is emulated on this device"));
  f = octavo({"check", "--set", "layers.min_gain=torchao"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.out, HasSubstr("\nmin_gain   torchao (override): linears of K <= 4096 with N <= "
                               "1024 are not converted\n"));
  f = octavo({"check", "--set", "layers.min_gain=of"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out,
              HasSubstr("expected \"auto\", \"torchao\" or \"off\", found \"of\"; did you mean "
                        "\"off\"?"));
}

TEST_F(CliCheck, defaults_run_te_here) {
  const Finished f = with_fake({"check", "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(json::parse(f.out)["backend"]["id"], "te");
}

TEST_F(CliCheck, refusal_is_exit_code_1_with_the_reasons) {
  put_fake(dir, "plugins", "check_declines");
  const Finished f = with_fake({"check", "--set", "fp8.backend=fake"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("\nruns       nothing\n"));
  EXPECT_THAT(f.out, HasSubstr("    session decline: the fake needs a full moon\n"
                               "      found: waning crescent\n      remedy: wait two weeks\n"
                               "      apply: override `fp8.backend = \"te\"`\n"
                               "      reason: device, see page reasons#device\n"));
}

TEST_F(CliCheck, backend_that_is_not_installed_is_exit_code_1) {
  const Finished f = octavo({"check", "--json", "--set", "fp8.backend=absent"});
  EXPECT_EQ(f.exit_code, 1);
  const json j = json::parse(f.out);
  EXPECT_TRUE(j["runs"].is_null());
  EXPECT_EQ(j["candidates"][0]["verdicts"][0]["reason"], "manifest");
}

TEST_F(CliCheck, cuda_where_it_cannot_run_is_exit_code_1) {
  const Finished f = with_fake({"check", "--set", "device.kind=cuda"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("    device decline: "));
}

TEST_F(CliCheck, wrong_configuration_is_exit_code_2) {
  Finished f = octavo({"check", "--set", "mixed_precision=fp9"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out, HasSubstr("\n      apply: override `mixed_precision = \"fp8\"`\n"));
  EXPECT_THAT(f.out, HasSubstr(": override mixed_precision: mixed_precision: expected "));
  EXPECT_EQ(f.err, "");  // once
  f = octavo({"check", "--json", "--set", "mixed_precision=fp9"});
  EXPECT_THAT(f.err, HasSubstr("error: override mixed_precision: mixed_precision: expected "));
  environment.set("OCTAVO_MIXED_PRECISION", "fp9");
  f = octavo({"check"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out, HasSubstr("environment variable OCTAVO_MIXED_PRECISION"));
}

TEST_F(CliCheck, the_first_line_answers_whether_fp8_is_on) {
  for (const auto &[set, answer] :
       {std::pair{"fp8.backend=te", "FP8        yes: te 0.1.0 on cpu, emulated (not faster)\n"},
        {"mixed_precision=bf16", "FP8        no: bf16 runs\n"},
        {"fp8.require.native=true",
         "FP8        no: nothing that the configuration allows runs here\n"},
        {"mixed_precision=fp9", "FP8        no: the configuration is refused\n"}})
    EXPECT_THAT(octavo({"check", "--set", set}).out, testing::StartsWith(answer)) << set;
}

// Of the session and of rules, unknown ones and values, in one answer.
TEST_F(CliCheck, every_wrong_option_of_a_backend_is_named) {
  const std::string file = dir.write(
      "octavo.toml",
      "[fp8.te]\nmargn = 1\nrecipe = \"blok\"\ninterval = 0\n[[layers.rule]]\nmatch = \"a\"\n"
      "fp8.te.recpie = \"mx\"\n");
  for (const auto &[arguments, code] :
       {std::pair{std::vector<std::string>{"check", file}, 2}, {{"config", "show", file}, 2}}) {
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, code);
    for (const char *words :
         {":2:1: unknown key \"fp8.te.margn\"", ":3:1: fp8.te.recipe: expected ",
          ":4:1: fp8.te.interval: expected 1 to 1000000, found 0",
          ":7:8: unknown key \"layers.rule.0."})
      EXPECT_THAT(f.out + f.err, HasSubstr(file + words)) << arguments[0];
  }
}

TEST_F(CliCheck, environment_chooses_the_backend) {
  environment.set("OCTAVO_BACKEND", "reference");
  const Finished f = with_fake({"check", "--json"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(json::parse(f.out)["backend"]["id"], "reference");
}

TEST_F(CliCheck, warning_of_a_manifest_goes_to_stderr) {
  dir.write("plugins/fake.octavo-plugin.toml", fake_manifest() + "[extra]\nx = 1\n");
  const Finished f = with_fake({"check", "--json", "--set", "fp8.backend=fake"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "warning: " + (dir / "plugins/fake.octavo-plugin.toml") +
                       ": unknown key \"extra.x\" in line 12\n");
  EXPECT_TRUE(json::accept(f.out));
}

}  // namespace
}  // namespace octavo::test
