// octavo plugin allow, from a cloned repository's point of view.
#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class CliAllow : public Cli {
 protected:
  CliAllow() { environment.set("XDG_DATA_HOME", dir / "data"); }
  const std::string config =
      dir.write("octavo.toml",
                "[fp8]\nbackend = \"fake\"\n[plugins]\ntrust = \"dev\"\npath = [\"plugins\"]\n");
};

TEST_F(CliAllow, nothing_runs_before_it_and_its_remedy_works) {
  const Finished before = octavo({"check", config});
  EXPECT_EQ(before.exit_code, 1);
  EXPECT_THAT(before.out + before.err,
              HasSubstr("run `octavo plugin allow " + config + "` if you trust"));
  EXPECT_THAT(before.err, HasSubstr("code here, which nobody has allowed"));
  const Finished allowed = octavo({"plugin", "allow", config});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_EQ(allowed.out,
            "Allowed: " + (dir / "plugins") +
                " (fake)\nTake it back with: octavo plugin allow --revoke DIRECTORY\n");
  EXPECT_EQ(octavo({"check", config}).exit_code, 0);
  EXPECT_EQ(octavo({"plugin", "allow", config}).out, config + ": nothing waits for an answer\n");
  EXPECT_EQ(octavo({"plugin", "allow", "--revoke", dir / "plugins"}).out,
            "No longer allowed: " + (dir / "plugins") + "\n");
  EXPECT_EQ(octavo({"check", config}).exit_code, 1);
}

TEST_F(CliAllow, as_json) {
  const nlohmann::json folder = {{"directory", dir / "plugins"}, {"plugins", {"fake"}}};
  nlohmann::json j = by_schema("allow", octavo({"plugin", "allow", config, "--json"}));
  EXPECT_EQ(j["allowed"], true);
  EXPECT_EQ(j["directories"], nlohmann::json::array({folder}));
  j = by_schema("allow", octavo({"plugin", "allow", config, "--json"}));
  EXPECT_EQ(j["directories"], nlohmann::json::array()) << "nothing waits any more";
  j = by_schema("allow", octavo({"plugin", "allow", "--revoke", dir / "plugins", "--json"}));
  EXPECT_EQ(j["allowed"], false);
  EXPECT_EQ(j["directories"], nlohmann::json::array({folder}));
  EXPECT_EQ(octavo({"check", config}).exit_code, 1);
  const Finished f = octavo({"plugin", "allow", "--revoke", config, "--json"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
}

TEST_F(CliAllow, a_folder_that_nobody_names_has_two_steps) {
  dir.write("octavo.toml", "[fp8]\nbackend = \"fake\"\n[plugins]\ntrust = \"dev\"\n");
  const Finished f = octavo({"check", config});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("name its folder, then run `octavo plugin allow " + config + "`"));
  EXPECT_THAT(f.out, HasSubstr("apply: add `path = [\"plugins\"]` after line 3 of " + config));
}

TEST_F(CliAllow, refuses_what_it_cannot_answer) {
  for (const auto &[arguments, words] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plugin", "allow", dir / "none.toml"}, "none.toml"},
           {{"plugin", "allow", dir.write("broken.toml", "[fp8\n")}, "broken.toml"},
           {{"plugin", "allow", "--revoke", config},
            "expected a folder to take the answer back for"},
           {{"plugin", "allow", ""}, "path"}}) {
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, 2) << words;
    EXPECT_THAT(f.err, HasSubstr(words));
  }
  environment.unset("XDG_DATA_HOME");
  const Finished f = octavo({"plugin", "allow", config});
  EXPECT_EQ(f.exit_code, 3);
  EXPECT_THAT(f.err, HasSubstr("found neither XDG_DATA_HOME nor HOME"));
}

}  // namespace
}  // namespace octavo::test
