// c_host on the backends of this tree: it learns with any number of ranks, and a checkpoint
// continues with the same numbers. The task and the bound on the last loss are mlp_host's, see
// mlp_host_test.cpp.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/samples/finished.h"

namespace {

using octavo::test::Finished;
using testing::HasSubstr;

constexpr double kBound = 2 * (0.0017 + 0.01);  // casts and the jitter of Adam

Finished run(const std::string &arguments) {
  return octavo::test::run_program(C_HOST_PROGRAM " " + arguments);
}

// A configuration file of its own for each case.
std::string config_of(const std::string &name, const std::string &backend) {
  const std::string path = testing::TempDir() + "c_host_" + name + ".toml";
  std::ofstream(path) << "mixed_precision = \"fp8\"\n[layers]\nmin_gain = \"off\"\n[fp8]\n"
                      << backend;
  return "--config " + path;
}

struct Case {
  const char *name, *backend;
};

class CHost : public testing::TestWithParam<Case> {};

TEST_P(CHost, learns_with_any_number_of_ranks) {
  const std::string config = config_of(GetParam().name, GetParam().backend);
  for (const char *ranks : {"1", "2", "4"}) {
    const Finished finished = run(config + " --steps 400 --ranks " + ranks);
    ASSERT_EQ(finished.status, 0) << finished.output;
    ASSERT_EQ(finished.losses.size(), 9u) << finished.output;
    EXPECT_NEAR(finished.losses.front(), 0.5, 0.15) << finished.output;
    EXPECT_LT(finished.losses.back(), kBound) << finished.output;
  }
}

TEST_P(CHost, a_checkpoint_continues_with_the_same_numbers) {
  const std::string config = config_of(GetParam().name, GetParam().backend);
  const std::string folder = testing::TempDir() + "c_host_" + GetParam().name;
  for (const char *ranks : {" --ranks 1", " --ranks 2"}) {
    std::filesystem::remove_all(folder);
    ASSERT_EQ(run(config + ranks + " --steps 30 --save " + folder).status, 0);
    const Finished resumed = run(config + ranks + " --steps 20 --resume " + folder);
    const Finished whole = run(config + ranks + " --steps 50");
    ASSERT_FALSE(resumed.losses.empty()) << resumed.output;
    EXPECT_EQ(resumed.losses.back(), whole.losses.back());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sample, CHost,
    testing::Values(Case{"te", "backend = \"te\"\n"},
                    Case{"reference", "backend = \"reference\"\n"},
                    Case{"msamp_O1", "backend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O1\"\n"},
                    Case{"msamp_O3", "backend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O3\"\n"}),
    [](const testing::TestParamInfo<Case> &case_) { return std::string(case_.param.name); });

TEST(CHostRuns, without_a_backend_or_a_layer) {
  const std::string path = testing::TempDir() + "c_host_plain.toml";
  for (const char *text :
       {"mixed_precision = \"no\"\n", "mixed_precision = \"fp8\"\n[layers]\nskip = [\"fc*\"]\n"}) {
    std::ofstream(path) << text;
    const Finished finished = run("--steps 200 --config " + path);
    ASSERT_EQ(finished.status, 0) << finished.output;
    EXPECT_LT(finished.losses.back(), kBound) << finished.output;
  }
}

TEST(CHostRuns, bad_input_ends_with_its_reason) {
  const std::string te = config_of("bad", "backend = \"te\"\n");
  for (const auto &[arguments, reason] : std::vector<std::pair<std::string, const char *>>{
           {"--ranks 3", "a divisor of 64"},
           {"--steps 0", "at least 1"},
           {"--colour blue", "usage:"},
           {te + " --resume /no/such/place", "expected a directory that can be read"},
           {te + " --steps 1 --save /proc/no/place", "octavo_store_save"},
           {"--config /no/octavo.toml", "/no/octavo.toml"}}) {
    const Finished finished = run(arguments);
    EXPECT_NE(finished.status, 0) << arguments;
    EXPECT_THAT(finished.output, HasSubstr(reason)) << arguments;
  }
}

}  // namespace
