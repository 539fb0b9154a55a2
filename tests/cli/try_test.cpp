// octavo plugin try: sound backends pass in every recipe, broken ones fail with what is wrong.
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Sound {
  const char *name, *backend;
  std::vector<std::string> settings;
};

class TrySound : public Cli, public testing::WithParamInterface<Sound> {};

TEST_P(TrySound, passes) {
  std::vector<std::string> arguments = {"plugin", "try", GetParam().backend, "--plugin-dir",
                                        OCTAVO_ROWWISE_DIR};
  for (const std::string &setting : GetParam().settings)
    arguments.insert(arguments.end(), {"--set", setting});
  const Finished f = octavo(arguments);
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out, HasSubstr(": 4 of 4 linears in FP8, 100 % of the weights"));
  EXPECT_THAT(f.out, HasSubstr("\nkernels: cpu."));
  EXPECT_THAT(f.out, ContainsRegex("\nPASS  .*: after 400 steps its loss is "));
}

std::string name_of(const testing::TestParamInfo<Sound> &info) {
  return info.param.name;
}
// One backend without state, one with weights, gradients and an optimizer of its own.
INSTANTIATE_TEST_SUITE_P(Main, TrySound,
                         testing::Values(Sound{"te", "te", {}}, Sound{"msamp", "msamp", {}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Rest, TrySound,
    testing::Values(Sound{"reference", "reference", {}}, Sound{"rowwise", "rowwise", {}},
                    Sound{"te_block", "te", {"fp8.te.recipe=block"}},
                    Sound{"te_mx", "te", {"fp8.te.recipe=mx"}},
                    Sound{"te_nvfp4", "te", {"fp8.te.recipe=nvfp4"}},
                    Sound{"msamp_O1", "msamp", {"fp8.msamp.opt_level=O1"}},
                    Sound{"msamp_O3", "msamp", {"fp8.msamp.opt_level=O3"}},
                    Sound{"msamp_fp32_gradient",
                          "msamp",
                          {"fp8.msamp.opt_level=O2", "fp8.msamp.gradient_accumulation=fp32"}}),
    name_of);

class Try : public Cli {
 protected:
  Finished faulty(const std::string &fault, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"plugin",
                                          "try",
                                          "faulty",
                                          "--plugin-dir",
                                          OCTAVO_FAULTY_DIR,
                                          "--set",
                                          "fp8.faulty.fault=" + fault};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return octavo(arguments);
  }
  void expect_failure(const std::string &fault, const std::string &says) {
    const Finished f = faulty(fault, {"--seconds", "1"});  // enough to find it
    EXPECT_EQ(f.exit_code, 1) << fault << "\n" << f.out << f.err;
    EXPECT_THAT(f.out, ContainsRegex("FAIL  faulty: .*" + says)) << fault;
    EXPECT_THAT(f.out, Not(HasSubstr("PASS"))) << fault;
  }
};

TEST_F(Try, finds_wrong_arithmetic_in_the_first_batch) {
  expect_failure("forward_nothing", "the first outputs differ from float32's by ");
  expect_failure("forward_twice", "the first outputs differ from float32's by ");
  expect_failure("no_bias", "the first outputs differ from float32's by ");
  expect_failure("dx_twice", "the gradient of fc1's weight has ");
  expect_failure("dw_overwrites", "the gradient of fc4's weight has 0\\.[3-7]");
  expect_failure("db_never", "the gradient of fc4's bias has 0 times the size");
}

TEST_F(Try, finds_a_loss_that_does_not_decrease) {
  expect_failure("backward_nothing", "the gradient of fc1's weight has 0 times the size");
  expect_failure("backward_nothing", "the loss did not decrease: ");
  const Finished f = faulty("stale_weights");
  EXPECT_EQ(f.exit_code, 1) << f.out;
  EXPECT_THAT(f.out, Not(HasSubstr("the gradient of "))) << "its first batch is right";
  EXPECT_THAT(f.out, ContainsRegex("FAIL  faulty: the loss at the end is .*, more than float32's"));
}

TEST_F(Try, names_the_call_in_which_the_process_ended) {
  expect_failure("crashes", "signal 6 .*linear_forward of a weight .128, 64. .M = 64, x f32");
  expect_failure("exits", "exit code 0 in linear_forward of .*before the check was done");
}

TEST_F(Try, json_has_all_of_it_and_repeats) {
  const Finished f = faulty("none", {"--json", "--seed", "5"});
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
  json t = json::parse(f.out)["training"];
  EXPECT_EQ(json::parse(f.out)["passed"], true);
  EXPECT_EQ(t["steps"], 400);
  EXPECT_EQ(t["placements"].size(), 4u);
  EXPECT_EQ(t["share_of_weights"], 1.0);
  const double plain = t["last_loss"]["float32"], found = t["last_loss"]["backend"];
  EXPECT_LT(found, plain + t["margin"].get<double>());
  EXPECT_NE(found, plain);
  EXPECT_LT(plain, 0.25 * t["first_loss"]["float32"].get<double>());
  json again = json::parse(faulty("none", {"--json", "--seed", "5"}).out)["training"];
  again.erase("seconds"), t.erase("seconds");
  EXPECT_EQ(again, t);
  EXPECT_NE(json::parse(faulty("none", {"--json"}).out)["training"]["losses"], t["losses"]);
}

TEST_F(Try, layers_that_stay_with_the_host_are_listed_with_the_reason) {
  const Finished f = faulty("none", {"--set", "layers.min_gain=torchao"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr(": 0 of 4 linears in FP8, 0 % of the weights"));
  EXPECT_THAT(f.out,
              ContainsRegex("fc1 +128 x 64 +host .*refused: runs in the host: with N = 128 "));
  EXPECT_THAT(f.out, HasSubstr("FAIL  faulty: no layer runs through the backend"));
}

TEST_F(Try, sizes_of_the_host) {
  const Finished f = faulty("none", {"--shapes", "64,32,48;1,16,16;0,8,8;33,1,5"});
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
  EXPECT_THAT(f.out, ContainsRegex("M 64, N 32, K 48: forward [0-9.]+ ms, backward [0-9.]+ ms; y "
                                   "[0-9.]+ %, dx [0-9.]+ %, dw [0-9.]+ %\n"));
  EXPECT_THAT(f.out, ContainsRegex("M 0, N 8, K 8: forward [0-9.]+ ms, backward [0-9.]+ ms\n"));
  // One that owns weight and gradient, twice the option, in front of the name.
  const Finished owner =
      octavo({"plugin", "try", "--shapes", "64,32,48", "--shapes", "160,128,64;1,16,16", "msamp"});
  EXPECT_EQ(owner.exit_code, 0) << owner.out << owner.err;
  EXPECT_THAT(owner.out, ContainsRegex("\nM 160, N 128, K 64: .*dw [0-9.]+ %\n"));
}

TEST_F(Try, a_crash_and_a_hang_are_reported_with_their_size) {
  Finished f = faulty("crashes", {"--shapes", "17,32,32;8,8,8"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, ContainsRegex("FAIL  M 17, N 32, K 32: .*signal 6 .*linear_forward of a "
                                   "weight .32, 32. .M = 17"));
  EXPECT_THAT(f.out, ContainsRegex("\nM 8, N 8, K 8: forward "));  // the next one is tried
  f = faulty("hangs", {"--shapes", "17,32,32", "--seconds", "2"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, ContainsRegex("FAIL  M 17, N 32, K 32: still running after 2 s, in "
                                   "linear_forward"));
  f = faulty("dx_twice", {"--shapes", "16,32,32"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, ContainsRegex("FAIL  M 16, N 32, K 32: dx differs from the product by "));
}

TEST_F(Try, wrong_arguments) {
  for (const std::vector<std::string> &more :
       std::vector<std::vector<std::string>>{{"--shapes", "1,2"},
                                             {"--shapes", ""},
                                             {"--shapes", "1,2,3,4"},
                                             {"--shapes", "1,0,3"},
                                             {"--shapes", "-1,2,3"},
                                             {"--seconds", "0"},
                                             {"--set", "nothing"}}) {
    const Finished f = faulty("none", more);
    EXPECT_EQ(f.exit_code, 2) << testing::PrintToString(more);
    EXPECT_NE(f.err, "") << testing::PrintToString(more);
  }
  EXPECT_THAT(faulty("none", {"--shapes", "1,2"}).err,
              HasSubstr("expected M,N,K;M,N,K with M from 0 to 2^24, N and K from 1 to 2^20, found "
                        "\"1,2\""));
  EXPECT_EQ(octavo({"plugin", "try"}).exit_code, 2);
}

TEST_F(Try, a_backend_that_is_not_there) {
  const Finished f = octavo({"plugin", "try", "nobody"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("FAIL  nobody: "));
  EXPECT_THAT(f.out, HasSubstr("no backend \"nobody\" is installed"));
}

}  // namespace
}  // namespace octavo::test
