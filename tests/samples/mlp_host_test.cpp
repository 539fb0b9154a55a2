// mlp_host on every backend of this tree: its loss falls below a derived bound and repeats.
//
// A target has variance 1/3: 32 products of x, of variance 1/3, and a weight of variance 1/32. The
// student begins with variance 1/6, so the first loss is 1/2. The last one adds up from
//   casts      E4M3 rounds by at most 2^-4, 0.036 in the mean square. Two operands of a product and
//              two layers: 4 * 0.036^2 of the target's variance, 0.0017.
//   jitter     Adam moves each of 64 weights of a sum by up to its rate, 0.003, in 10 steps of one
//              direction: 64 * 0.03^2 * E[h^2], which is 1/6, hence 0.01.
//   training   what the program in float32 has left after as many steps.
#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/samples/finished.h"

namespace {

using octavo::test::Finished;
using testing::HasSubstr;

constexpr double kCasts = 0.0017, kJitter = 0.01;

Finished run(const std::string &arguments) {
  return octavo::test::run_program(MLP_HOST_PROGRAM " " + arguments);
}

struct Case {
  const char *name, *arguments;
  bool backend_steps;
};

class MlpHost : public testing::TestWithParam<Case> {};

TEST_P(MlpHost, trains_to_a_derived_bound_and_repeats) {
  static const double plain = run("mixed_precision=no").losses.at(6);
  const Finished first = run(std::string("mixed_precision=fp8 ") + GetParam().arguments);
  ASSERT_EQ(first.status, 0) << first.output;
  ASSERT_EQ(first.losses.size(), 7u) << first.output;
  EXPECT_NEAR(first.losses.front(), 0.5, 0.05);
  const double bound = plain + 2 * (kCasts + (GetParam().backend_steps ? kJitter : 0));
  EXPECT_LT(first.losses.back(), bound) << first.output;
  EXPECT_EQ(run(std::string("mixed_precision=fp8 ") + GetParam().arguments).output, first.output);
}

INSTANTIATE_TEST_SUITE_P(
    Sample, MlpHost,
    testing::Values(
        Case{"te", "fp8.backend=te", false},
        Case{"te_current", "fp8.backend=te fp8.te.recipe=current", false},
        Case{"reference", "fp8.backend=reference", false},
        Case{"msamp_O1", "fp8.backend=msamp fp8.msamp.opt_level=O1", true},
        Case{"msamp_O2", "fp8.backend=msamp fp8.msamp.opt_level=O2", true},
        Case{"msamp_O3", "fp8.backend=msamp fp8.msamp.opt_level=O3", true},
        Case{"msamp_O2_fp32_gradient",
             "fp8.backend=msamp fp8.msamp.opt_level=O2 fp8.msamp.gradient_accumulation=fp32",
             true}),
    [](const testing::TestParamInfo<Case> &case_) { return std::string(case_.param.name); });

TEST(MlpHostRuns, a_layer_that_stays_with_the_program) {
  const std::string path = testing::TempDir() + "mlp_host.toml";
  std::ofstream(path) << "[layers]\nskip = [\"fc2\"]\n";
  for (const char *backend : {"te", "reference", "msamp"}) {
    const Finished finished = run(path + " mixed_precision=fp8 fp8.backend=" + backend);
    ASSERT_EQ(finished.status, 0) << finished.output;
    EXPECT_THAT(finished.output, testing::ContainsRegex("fc2 +.16, 64. +host"));
    ASSERT_EQ(finished.losses.size(), 7u);
    EXPECT_LT(finished.losses.back(), 2 * (kCasts + kJitter)) << finished.output;
  }
}

TEST(MlpHostRuns, a_refusal_has_its_reason) {
  for (const auto &[arguments, reason] : std::vector<std::pair<const char *, const char *>>{
           {"fp8.backend=te fp8.te.recipe=delaied", "did you mean \"delayed\"?"},
           {"fp8.backend=te fp8.te.margin=1.5", "expected an integer"},
           {"fp8.backend=nobody", "no backend \"nobody\" is installed"},
           {"no/octavo.toml", "no/octavo.toml"}}) {
    const Finished finished = run(arguments);
    EXPECT_NE(finished.status, 0) << arguments;
    EXPECT_THAT(finished.output, HasSubstr(reason)) << arguments;
    EXPECT_TRUE(finished.losses.empty()) << arguments;
  }
}

}  // namespace
