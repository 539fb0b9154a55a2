// octavo doctor --anonymous: what a report needs is in it, and what somebody would not publish is
// not.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "octavo/octavo.h"
#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class CliEnv : public Cli {
 protected:
  CliEnv() {
    environment.set("XDG_CACHE_HOME", dir.make_directory("cache"));
    for (const char *name : {"LD_PRELOAD", "LD_LIBRARY_PATH"})
      if (std::getenv(name) == nullptr) environment.unset(name);
  }
};

TEST_F(CliEnv, holds_what_a_report_needs) {
  environment.set("OCTAVO_MIXED_PRECISION", "fp8");
  environment.set("OCTAVO_FP8_FAKE_COUNT", "7");
  const Finished f = with_fake({"doctor", "--anonymous", "--set", "fp8.backend=fake"});
  const json j = by_schema(
      "doctor", with_fake({"doctor", "--anonymous", "--json", "--set", "fp8.backend=fake"}));
  environment.unset("OCTAVO_FP8_FAKE_COUNT");
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out, HasSubstr(", ABI 1.0, headers " OCTAVO_ABI_HEADERS "\n"));
  for (const char *row :
       {"build      ", "\nsystem     ", "\nmachine    ", "\ngpu        ", "\nkernels    cpu.",
        "\nruns       fp8 by fake 1.2.3\n", "fake          1.2.3   accepted\n           ",
        "OCTAVO_FP8_FAKE_COUNT = 7\n", "OCTAVO_MIXED_PRECISION = fp8\n"})
    EXPECT_THAT(f.out, HasSubstr(row));
  EXPECT_EQ(j["backend"]["id"], "fake");
  EXPECT_EQ(j["variables"]["OCTAVO_FP8_FAKE_COUNT"], "7");
  EXPECT_GE(j["plugins"].size(), 4u);  // fake, msamp, reference, te
  for (const json &p : j["plugins"]) EXPECT_EQ(p["sha256"].get<std::string>().size(), 64u) << p;
}

TEST_F(CliEnv, holds_nothing_private) {
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  const std::string key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
  const std::string home = dir.make_directory("home/planted_user");
  dir.make_directory("home/planted_user/secret_project/plugins");
  put_fake(dir, "home/planted_user/secret_project/plugins", "check_declines");
  environment.set("HOME", home);
  environment.set("USER", "planted_user");
  environment.set("LOGNAME", "planted_login");
  environment.set("HOSTNAME", "planted-host");
  environment.set("OCTAVO_PLUGIN_PATH",
                  home + "/plugins:/srv/planted-host/" + host + "/planted_login/plugins");
  environment.set("OCTAVO_PLANTED_TOKEN", "planted_secret");
  environment.set("OCTAVO_FP8_MSAMP_STATE_SKIP", "*planted_layer*");
  const std::string config =
      dir.write("home/planted_user/secret_project/octavo.toml",
                "[fp8]\nbackend = \"fake\"\n[layers]\nskip = [\"planted_layer*\"]\n"
                "[plugins]\ntrust = \"signed\"\nkeys = [\"" +
                    key + "\"]\n");
  // Refused, accepted, and with a configuration that is wrong: each has texts of its own.
  const std::string wrong = dir.write("home/planted_user/wrong.toml", "[fp8]\nplanted_key = 1\n");
  for (const std::vector<std::string> &more :
       {std::vector<std::string>{config}, {}, {config, "--json"}, {wrong}, {wrong, "--json"}}) {
    std::vector<std::string> arguments = {"doctor", "--anonymous"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, 0);
    for (const std::string &word :
         {std::string("planted"), key, home, std::string("secret"), dir.path()})
      EXPECT_THAT(f.out + f.err, Not(HasSubstr(word))) << testing::PrintToString(more);
    // A path tells of projects and customers, whoever's name is in it.
    EXPECT_THAT(f.out, Not(HasSubstr("plugins:")));
    EXPECT_THAT(f.out, Not(HasSubstr("/srv")));
    EXPECT_THAT(f.out, HasSubstr("OCTAVO_PLUGIN_PATH"));
    EXPECT_THAT(f.out, HasSubstr("(set)"));
  }
  environment.unset("OCTAVO_PLANTED_TOKEN");
  environment.unset("OCTAVO_FP8_MSAMP_STATE_SKIP");
}

TEST_F(CliEnv, says_what_is_wrong_by_its_reason) {
  put_fake(dir, "plugins", "check_declines");
  const json j = by_schema(
      "doctor", with_fake({"doctor", "--anonymous", "--json", "--set", "fp8.backend=fake"}));
  EXPECT_TRUE(j["runs"].is_null());
  EXPECT_EQ(j["first"], json({{"severity", "error"}, {"about", "run"}, {"reason", "device"}}));
}

}  // namespace
}  // namespace octavo::test
