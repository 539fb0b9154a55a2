// octavo doctor: the parts of the page. What it names on which machine: tests/misconfigurations.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class CliDoctor : public Cli {
 protected:
  CliDoctor() { environment.set("XDG_CACHE_HOME", dir.make_directory("cache")); }
};

TEST_F(CliDoctor, page) {
  const Finished f = with_fake({"doctor", "--set", "fp8.backend=fake"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  for (const char *words :
       {"\nmachine    ", "\nkernels    cpu.", "\ngpu        ",
        "\npython     not checked (use --python python3)\n",
        "fake          1.2.3   accepted, probed in ", "te            0.1.0   accepted, part of ",
        "\ntrust      dev (override), 0 pins, 0 keys, not locked, umask ",
        "\ncache      1 results, 0 stale, in ", "\nconfig     (no file)\n",
        "\nruns       fp8 by fake 1.2.3 on cpu ", "\nfix first  "})
    EXPECT_THAT(f.out, HasSubstr(words));
}

TEST_F(CliDoctor, counts_what_is_stale) {
  EXPECT_EQ(with_fake({"doctor"}).exit_code, 0);
  std::filesystem::remove_all(dir / "plugins");
  EXPECT_THAT(octavo({"doctor"}).out, HasSubstr("\ncache      1 results, 1 stale, in "));
}

TEST_F(CliDoctor, the_file_is_named_by_its_place_or_by_an_option) {
  const std::string file = dir.write("octavo.toml", "mixed_precision = \"no\"\n");
  for (const std::vector<std::string> &named :
       {std::vector<std::string>{file}, std::vector<std::string>{"--config", file}}) {
    std::vector<std::string> arguments = {"doctor", "--json"};
    arguments.insert(arguments.end(), named.begin(), named.end());
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, 4) << f.err;
    const json j = json::parse(f.out);
    EXPECT_EQ(j["config"], file);
    EXPECT_EQ(j["runs"], "no");
    EXPECT_EQ(j["first"]["apply"], "replace line 1 of " + file + " by `mixed_precision = \"fp8\"`");
  }
}

TEST_F(CliDoctor, a_file_of_the_current_directory_is_named_and_not_read) {
  dir.write("octavo.toml", "mixed_precision = \"no\"\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Finished f = octavo({"doctor"});
  std::filesystem::current_path(before);
  EXPECT_EQ(f.exit_code, 0) << f.out;
  EXPECT_THAT(f.out, HasSubstr("octavo doctor octavo.toml looks at the one in this folder\n"));
}

TEST_F(CliDoctor, a_wrong_environment_hides_nothing_else) {
  environment.set("OCTAVO_BAKEND", "te");
  const Finished f = octavo({"doctor"});
  environment.unset("OCTAVO_BAKEND");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out,
              HasSubstr("\nmachine    not looked at: the environment is wrong, see below\n"));
  EXPECT_THAT(f.out, HasSubstr("\nfix first  run `"));
}

TEST_F(CliDoctor, what_a_wrong_file_keeps_from_being_looked_at_is_looked_at_without_it) {
  const std::string file = dir.write("octavo.toml", "[fp8]\nbakend = \"te\"\n");
  const Finished f = octavo({"doctor", file});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out, HasSubstr("\nplugins    "));
  EXPECT_THAT(f.out, HasSubstr("looked at\n           without it\n"));
  EXPECT_THAT(f.out,
              HasSubstr("\nfix first  replace line 2 of " + file + " by `backend = \"te\"`\n"));
}

TEST_F(CliDoctor, a_python_that_hangs_up_is_a_finding) {
  dir.write("python", "#!/bin/sh\nexit 3\n");
  chmod((dir / "python").c_str(), 0755);
  const json j = json::parse(octavo({"doctor", "--json", "--python", dir / "python"}).out);
  EXPECT_EQ(j["python"]["problem"],
            "expected a Python of version 3.9 or newer, found a program that fails");
  EXPECT_EQ(j["first"]["about"], "python");
}

TEST_F(CliDoctor, what_files_are_called_cannot_command_a_terminal) {
  put_fake(dir, "odd\x1b[2J", "good");
  const Finished f = octavo({"doctor", "--plugin-dir", dir / "odd\x1b[2J"});
  EXPECT_THAT(f.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(f.out, HasSubstr("odd\\x1b[2J"));
}

}  // namespace
}  // namespace octavo::test
