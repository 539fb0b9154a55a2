// octavo bench: its rules on times that are given, and a run of the program, whose times are the
// machine's.
#include "sdk/cli/bench/advice.h"

#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

cli::bench::Measured measured(std::vector<std::string> linears, std::vector<double> bf16,
                              std::vector<std::vector<double>> backends) {
  cli::bench::Measured m{{1, 1, std::move(linears)}, std::move(bf16), {}};
  for (std::vector<double> &seconds : backends)
    m.backends.push_back({"b" + std::to_string(m.backends.size()), seconds.empty() ? "refused" : "",
                          std::move(seconds)});
  return m;
}

TEST(CliAdvice, median) {
  EXPECT_EQ(cli::bench::median({}), 0);
  EXPECT_EQ(cli::bench::median({3, 1, 2}), 2);
  EXPECT_EQ(cli::bench::median({4, 1, 3, 2}), 2.5);
}

TEST(CliAdvice, faster_is_faster_in_three_rounds_of_four) {
  const auto gains = [](std::vector<double> bf16, std::vector<double> fp8) {
    const cli::bench::Measured m = measured({"a"}, std::move(bf16), {std::move(fp8)});
    return cli::bench::gains(m, m.backends[0]);
  };
  EXPECT_TRUE(gains({2, 2, 2, 2}, {1, 1, 1, 3}));
  EXPECT_FALSE(gains({2, 2, 2, 2}, {1, 1, 3, 3}));
  EXPECT_FALSE(gains({2, 2, 2, 2}, {2, 2, 2, 2}));
  // A machine that slows down for everything: each round is compared with itself.
  EXPECT_TRUE(gains({2, 4, 8, 16}, {1, 2, 4, 8}));
  EXPECT_FALSE(gains({1, 1, 1, 1, 9, 9, 9, 9}, {2, 2, 2, 2, 3, 3, 3, 3}));
  EXPECT_FALSE(gains({}, {}));
}

TEST(CliAdvice, a_choice_keeps_in_bf16_what_is_not_faster) {
  const std::vector<cli::bench::Measured> all = {
      measured({"a", "b", "c"}, {4, 4, 4}, {{2, 2, 2}, {3, 3, 3}, {}}),
      measured({"d"}, {10, 10, 10}, {{12, 12, 12}, {5, 5, 5}, {11, 11, 11}})};
  const std::vector<cli::bench::Choice> c = cli::bench::choices(all);
  ASSERT_EQ(c.size(), 3U);
  EXPECT_EQ(c[0].seconds, 3 * 2 + 10);
  EXPECT_EQ(c[0].everywhere, 3 * 2 + 12);
  EXPECT_EQ(c[0].linears, 3U);
  EXPECT_THAT(c[0].faster, ElementsAre(true, false));
  EXPECT_EQ(c[1].seconds, 3 * 3 + 5);
  EXPECT_EQ(c[2].seconds, 3 * 4 + 10);
  EXPECT_EQ(c[2].everywhere, 3 * 4 + 11);
  EXPECT_EQ(cli::bench::best(c), &c[1]);
  EXPECT_EQ(cli::bench::best({c[2]}), nullptr);
  EXPECT_THAT(cli::bench::choices({}), IsEmpty());
}

TEST(CliAdvice, patterns_match_what_is_not_faster_and_nothing_else) {
  const std::vector<cli::bench::Measured> all = {measured({"h.0.in", "h.1.in", "h.12.in"}, {}, {}),
                                                 measured({"h.0.out", "h.1.out"}, {}, {}),
                                                 measured({"h.2.out", "head"}, {}, {})};
  EXPECT_THAT(cli::bench::patterns(all, {true, true, true}, ""), IsEmpty());
  EXPECT_THAT(cli::bench::patterns(all, {false, true, true}, ""), ElementsAre("h.*.in"));
  EXPECT_THAT(cli::bench::patterns(all, {true, false, true}, ""),
              ElementsAre("h.0.out", "h.1.out"));
  EXPECT_THAT(cli::bench::patterns(all, {true, true, false}, "*"),
              ElementsAre("*h.2.out", "*head"));
}

class CliAdvise : public Cli {
 protected:
  std::string model() {
    return dir.write("model.json", R"({"linears": [
        {"name": "up", "n": 48, "k": 32, "count": 2}, {"name": "down", "n": 32, "k": 48}],
        "parameters": [{"name": "norm", "cols": 32}]})");
  }
  Finished advise(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"bench", model(), "--batch", "2", "--sequence", "24", "--seconds", "0"});
    return octavo(std::move(more));
  }
};

TEST_F(CliAdvise, measures_every_shape_once_with_every_backend) {
  const Finished f = advise({"--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.err, HasSubstr("measuring [48, 32], shape 1 of 2"));
  const json j = json::parse(f.out);
  EXPECT_EQ(j["rows"], 48);
  EXPECT_TRUE(j["emulated"]);
  EXPECT_THAT(j["kernels"].get<std::string>(), testing::StartsWith("cpu."));
  ASSERT_EQ(j["shapes"].size(), 2U);
  EXPECT_EQ(j["shapes"][0]["linears"], (json{"up.0", "up.1"}));
  EXPECT_EQ(j["shapes"][1]["n"], 32);
  double bf16 = 0;
  for (const json &s : j["shapes"]) {
    bf16 += s["bf16_seconds"].get<double>() * static_cast<double>(s["linears"].size());
    ASSERT_EQ(s["backends"].size(), 6U);
    for (const json &b : s["backends"]) {
      EXPECT_FALSE(b.contains("refused")) << b;
      EXPECT_GT(b["seconds"], 0) << b;
      EXPECT_GE(b["rounds"], 5) << b;
    }
  }
  EXPECT_DOUBLE_EQ(j["bf16_seconds"].get<double>(), bf16);
  EXPECT_EQ(j["choices"].size(), 6U);
  for (const json &c : j["choices"]) EXPECT_LE(c["seconds"], bf16) << c;
}

// Each backend says so itself; the others are measured.
TEST_F(CliAdvise, shows_what_does_not_run) {
  const Finished f =
      advise({"--set", "layers.skip=down", "--backend", "te:recipe=block", "--backend", "absent"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, testing::ContainsRegex("\\[48, 32\\]  2 linears, as up.0\n  bf16  .*\n"
                                            "  te:recipe=block .* x.*\n  absent  +refused\n"));
  EXPECT_THAT(f.out, testing::ContainsRegex("\\[32, 48\\]  1 linear, down\n  bf16  .*\n"
                                            "  te:recipe=block +refused\n  absent  +refused\n"));
  EXPECT_THAT(f.out, HasSubstr("refused    te:recipe=block: runs in the host: layers.skip"));
  EXPECT_THAT(f.out, HasSubstr("no backend \"absent\" is installed"));
  EXPECT_THAT(f.out, testing::ContainsRegex("\n  te:recipe=block .* x  [0-3] of 3\n\nrefused "));
  EXPECT_THAT(f.out, testing::ContainsRegex("\nadvice "));
  const Finished none = advise({"--backend", "absent", "--json"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(json::parse(none.out)["best"], nullptr);
  EXPECT_EQ(json::parse(none.out)["choices"], json::array());
}

TEST_F(CliAdvise, refuses_wrong_input) {
  EXPECT_EQ(octavo({"bench", model()}).exit_code, 2);
  EXPECT_EQ(octavo({"bench", dir / "none.json", "--batch", "1", "--sequence", "8"}).exit_code, 2);
  const Finished f = advise({"--backend", "te:recipe=blok"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("did you mean \"block\"?"));
}

}  // namespace
}  // namespace octavo::test
