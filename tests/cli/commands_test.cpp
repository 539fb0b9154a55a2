// plugin list, version, config show, and what wrong arguments get: exit codes and where
// words go.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "octavo/octavo.h"
#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class CliCommands : public Cli {};

TEST_F(CliCommands, version) {
  const Finished f = octavo({"--version"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  const json j = by_schema("doctor", octavo({"doctor", "--json"}));
  EXPECT_EQ(j["headers"], OCTAVO_ABI_HEADERS);
  const octavo_str v = octavo_version();
  EXPECT_EQ(j["octavo"], std::string(v.data, v.size));
  EXPECT_EQ(f.out, "octavo " + j["octavo"].get<std::string>() + ", ABI " +
                       j["abi"].get<std::string>() + ", headers " OCTAVO_ABI_HEADERS "\n");
}

// On a CPU FP8 is emulated, and int8 is a layer's.
TEST_F(CliCommands, list_kernels) {
  const json j = by_schema("kernels", octavo({"plugin", "list", "--kernels", "--json"}));
  const json &cpu = j["devices"][0];
  EXPECT_EQ(cpu["kind"], "cpu");
  EXPECT_FALSE(cpu.contains("plugin"));
  EXPECT_EQ(cpu["ability"]["casts"]["float8_e4m3fn"]["block_32x32"], "emulated");
  EXPECT_EQ(cpu["ability"]["casts"]["int8"], json::object());
  const json &products = cpu["ability"]["products"];
  EXPECT_EQ(products["float8_e4m3fn by float8_e5m2"]["tensor by tensor"], "emulated");
  EXPECT_EQ(products["float8_e4m3fn by float8_e4m3fn"]["block_1x128 by block_128x128"], "emulated");
  EXPECT_FALSE(products["float8_e4m3fn by float8_e4m3fn"].contains("tensor by block_1x32"));
  EXPECT_FALSE(products.contains("int8 by int8"));
  const Finished f = octavo({"plugin", "list", "--kernels", "--set", "device.layers=[\"int8\"]"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.out, HasSubstr("refused: device.layers: no plugin \"int8\" has a layer for cpu"));
  EXPECT_THAT(octavo({"plugin", "list", "--kernels"}).out,
              ContainsRegex("^cpu.*, kernels cpu\\..* \\(liboctavo\\)\n"
                            "  casts to float8_e4m3fn: tensor, row, block_1x128, .* "
                            "\\(emulated\\)\n"));
}

TEST_F(CliCommands, a_misspelt_command_is_not_a_missing_one) {
  const Finished f = octavo({"chekc"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err,
            "error: unknown command \"chekc\"; did you mean \"check\"? octavo --help lists the "
            "commands\n");
  EXPECT_EQ(
      octavo({"plugin", "verfy"}).err,
      "error: octavo plugin: unknown command \"verfy\"; did you mean \"verify\"? octavo plugin "
      "--help lists the commands\n");
  EXPECT_EQ(octavo({"frobnicate"}).err,
            "error: unknown command \"frobnicate\"; octavo --help lists the commands\n");
}

// A removed name says what does its work now, and does nothing.
TEST_F(CliCommands, earlier_names_point_to_the_commands_of_today) {
  for (const auto &[words, now] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"explain", "octavo.toml"}, "octavo explain is now octavo check"},
           {{"config", "check"}, "octavo config check is now octavo check"},
           {{"config", "--show-origin"}, "octavo config --show-origin is now octavo config show"},
           {{"advise", "--help"}, "octavo advise is now octavo bench"},
           {{"list"}, "octavo list is now octavo plugin list"},
           {{"probe", "--retry"}, "octavo probe is now octavo doctor"},
           {{"env"}, "octavo env is now octavo doctor --anonymous"},
           {{"version"}, "octavo version is now octavo --version"},
           {{"check-elf", "a.so"}, "octavo check-elf is now octavo plugin check-elf"}}) {
    const Finished f = octavo(words);
    EXPECT_EQ(f.exit_code, 2) << words[0];
    EXPECT_EQ(f.out, "");
    EXPECT_EQ(f.err, "error: " + now + "\n");
  }
}

TEST_F(CliCommands, no_words_and_help_print_the_help) {
  const Finished help = octavo({"--help"});
  EXPECT_EQ(octavo({}).out, help.out);
  EXPECT_EQ(octavo({}).exit_code, 0);
  EXPECT_EQ(octavo({"help"}).out, help.out);
  EXPECT_EQ(octavo({"help", "plugin", "verify"}).out, octavo({"plugin", "verify", "--help"}).out);
  EXPECT_EQ(octavo({"help", "chekc"}).exit_code, 2);
  EXPECT_EQ(octavo({"-V"}).out, octavo({"--version"}).out);
}

// Completion knows every command.
TEST_F(CliCommands, every_help_fits_a_terminal_and_has_an_example_of_its_command) {
  const std::string bash = octavo({"completion", "bash"}).out;
  const std::regex row("\n    '([a-z -]*)'\\) commands=");
  size_t seen = 0;
  for (std::sregex_iterator at(bash.begin(), bash.end(), row), end; at != end; ++at) {
    const std::string path = (*at)[1];
    std::vector<std::string> words = {"help"};
    std::istringstream all(path);
    for (std::string word; all >> word;) words.push_back(word);
    if (path == "run" || path == "plugin check-elf") continue;  // their help is Python's
    const Finished f = octavo(words);
    EXPECT_EQ(f.exit_code, 0) << path << f.err;
    EXPECT_THAT(f.out,
                ContainsRegex("\nExample: .*octavo " + (path.empty() ? "init" : path) + "[^a-z]"))
        << path;
    std::istringstream lines(f.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.size() <= 80 || line.starts_with("Example: ")) << path << ": " << line;
    ++seen;
  }
  EXPECT_GE(seen, 25U);
}

TEST_F(CliCommands, a_misspelt_option_gets_the_nearest_one) {
  EXPECT_EQ(octavo({"check", "--jsn"}).err,
            "error: octavo check: unknown option \"--jsn\"; did you mean \"--json\"?\n");
  EXPECT_EQ(octavo({"plugin", "list", "--frobnicate"}).err,
            "error: octavo plugin list: unknown option \"--frobnicate\"; octavo plugin list --help "
            "lists the options\n");
  EXPECT_EQ(octavo({"check", "a.toml", "b.toml"}).err,
            "error: octavo check: unexpected argument \"b.toml\"; octavo check --help shows its "
            "arguments\n");
}

TEST_F(CliCommands, an_empty_argument_is_no_path) {
  for (const std::vector<std::string> &arguments :
       {std::vector<std::string>{"check", ""}, {"plugin", "list", "--plugin-dir", ""}}) {
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, 2) << arguments[0];
    EXPECT_THAT(f.err, HasSubstr("expected a path, found an empty argument")) << arguments[0];
  }
}

TEST_F(CliCommands, output_that_cannot_be_written_is_a_failure) {
  for (const std::string command : {"plugin list", "check", "--help", "--version"}) {
    const Finished f =
        run_program({"/bin/sh", "-c", std::string(OCTAVO_CLI) + " " + command + " > /dev/full"});
    EXPECT_EQ(f.exit_code, 3) << command;
    EXPECT_THAT(f.err, HasSubstr("standard output cannot be written: No space left on device"))
        << command;
  }
}

TEST_F(CliCommands, help_lists_exit_codes_and_commands) {
  const Finished f = octavo({"--help"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(
      std::regex_replace(f.out, std::regex("\\s+"), " "),
      HasSubstr("Exit codes: 0 done; 1 nothing that the configuration allows can run here; 2 "
                "wrong arguments or configuration; 3 another failure; 4 of doctor: something "
                "runs, but not in FP8"));
  EXPECT_THAT(octavo({"config", "show", "--help"}).out, Not(HasSubstr("of doctor")));
  for (const char *command : {"init", "doctor", "check", "config", "estimate", "bench", "run",
                              "report", "checkpoint", "plugin"})
    EXPECT_THAT(f.out, HasSubstr(std::string("\n  ") + command));
}

// The package octavo of python3 runs the program: run_program_test.py has what it does.
TEST_F(CliCommands, run_asks_the_package_of_python3) {
  const std::string variable = "PYTHONPATH=" OCTAVO_SOURCE_DIR "/host_adapters/python";
  const auto run = [&](const std::string &path, std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/env", "-C", dir.path(), "PYTHONDONTWRITEBYTECODE=1",
                                 path, OCTAVO_CLI, "run"});
    return run_program(words);
  };
  dir.write("own.py", "import sys; print(*sys.argv[1:])\nsys.exit(7)\n");
  const Finished ran = run(variable, {"own.py", "--config", "-m", "--help"});
  EXPECT_EQ(ran.exit_code, 7) << ran.err;
  EXPECT_EQ(ran.out, "--config -m --help\n");
  EXPECT_THAT(ran.err, HasSubstr("octavo run: FP8 of accelerate.Accelerator"));
  const Finished module = run(variable, {"-m", "own", "--config"});
  EXPECT_EQ(module.exit_code, 7) << module.err;
  EXPECT_EQ(module.out, "--config\n");
  EXPECT_EQ(run(variable, {"missing.py"}).exit_code, 2);
  const Finished without = run("PYTHONPATH=", {"own.py"});
  EXPECT_EQ(without.exit_code, 3);
  EXPECT_THAT(without.err, HasSubstr("octavo run: expected the package octavo in "));
  const Finished no_python = run("PATH=/nowhere", {"own.py"});
  EXPECT_EQ(no_python.exit_code, 3);
  EXPECT_THAT(no_python.err, HasSubstr("octavo run needs python3 with the package octavo on PATH"));
}

TEST_F(CliCommands, manifest_that_the_loader_reads) {
  const Finished f = octavo(
      {"plugin", "manifest", "fake", "--version", "1.2.3", "--description", "says \"hello\""});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  dir.write("plugins/fake.octavo-plugin.toml", f.out);
  const Finished listed = with_fake({"plugin", "list"});
  EXPECT_THAT(listed.out, HasSubstr("fake"));
  EXPECT_THAT(listed.out, HasSubstr("1.2.3")) << f.out;
}

TEST_F(CliCommands, manifest_of_a_name_that_is_no_id) {
  const Finished f = octavo({"plugin", "manifest", "My Plugin", "--version", "1"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err,
              HasSubstr("expected 1 to 64 characters of a-z 0-9 _ . -, found \"My Plugin\""));
  EXPECT_EQ(octavo({"plugin", "manifest", "fine"}).exit_code, 2);
  EXPECT_EQ(octavo({"plugin", "manifest", "fine", "--version", "1\n2"}).exit_code, 2);
}

TEST_F(CliCommands, help_of_a_command) {
  const Finished f = octavo({"check", "--help"});
  EXPECT_EQ(f.exit_code, 0);
  for (const char *option : {"--set", "--plugin-dir", "--locked", "--json"})
    EXPECT_THAT(f.out, HasSubstr(option));
}

// Typed in a shell, relative means the shell's directory.
TEST_F(CliCommands, relative_plugin_directory) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Finished f =
      octavo({"plugin", "list", "--set", "plugins.trust=dev", "--plugin-dir", "plugins"});
  std::filesystem::current_path(before);
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("fake          1.2.3"));
  EXPECT_THAT(f.out, HasSubstr(dir / "plugins (given by the host)"));
}

TEST_F(CliCommands, wrong_arguments) {
  for (const std::vector<std::string> &arguments :
       std::vector<std::vector<std::string>>{{"frobnicate"},
                                             {"check", "--frobnicate"},
                                             {"check", "a.toml", "b.toml"},
                                             {"config"},
                                             {"plugin"},
                                             {"check", "--set", "nothing"},
                                             {"check", "--set", "=3"}}) {
    const Finished f = octavo(arguments);
    EXPECT_EQ(f.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(f.out, "") << testing::PrintToString(arguments);
    EXPECT_NE(f.err, "") << testing::PrintToString(arguments);
  }
  EXPECT_THAT(octavo({"check", "--set", "nothing"}).err,
              HasSubstr("expected KEY=VALUE, found \"nothing\""));
}

TEST_F(CliCommands, list_text) {
  const Finished f = with_fake({"plugin", "list"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out,
              HasSubstr("fake          1.2.3    computes nothing\n  " +
                        (dir / "plugins/fake.octavo-plugin.toml") + " (given by the host)\n"));
  EXPECT_THAT(f.out, HasSubstr("\nte            "));
  EXPECT_THAT(f.out, HasSubstr("\nreference     "));
  EXPECT_THAT(f.out, HasSubstr("\nsearched\n  " + (dir / "plugins") + " (given by the host)\n"));
}

TEST_F(CliCommands, list_and_explain_show_what_a_manifest_says_of_its_conformance) {
  const std::string hash(64, 'a');
  std::string manifest = octavo({"plugin", "manifest", "fake", "--version", "1.2.3"}).out;
  manifest += "[conformance]\nkit = \"octavo-verify 1\"\nlevel = \"all\"\nreport_sha256 = \"" +
              hash + "\"\n";
  dir.write("plugins/fake.octavo-plugin.toml", manifest);
  const std::string claim = "    claims to conform: octavo-verify 1, all, report " + hash + "\n";
  EXPECT_THAT(with_fake({"plugin", "list"}).out, HasSubstr(claim));
  EXPECT_THAT(with_fake({"check", "--set", "fp8.backend=fake", "--set", "mixed_precision=fp8"}).out,
              HasSubstr(claim));
}

TEST_F(CliCommands, list_json_says_why_one_is_not_usable) {
  dir.write("plugins/broken.octavo-plugin.toml", "manifest_version = 1\n");
  const Finished f = with_fake({"plugin", "list", "--json"});
  EXPECT_EQ(f.exit_code, 0);
  const json plugins = json::parse(f.out)["plugins"];
  EXPECT_GE(plugins.size(), 4u);  // broken, fake, reference, te
  int refused = 0;
  for (const json &p : plugins) {
    const bool broken = p["name"] == "broken";
    EXPECT_EQ(p["usable"], !broken) << p;
    if (broken) {
      EXPECT_EQ(p["verdicts"][0]["reason"], "manifest");
      ++refused;
    }
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(CliCommands, config_check_of_a_good_file) {
  const std::string file =
      dir.write("octavo.toml", "[fp8]\nbackend = \"fake\"\n[fp8.fake]\ncount = 6\n");
  const Finished f = with_fake({"config", "show", file});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out, ContainsRegex("fp8.backend +=  *\"fake\"  .*/octavo.toml:2:1.\n"));
  EXPECT_THAT(f.out, ContainsRegex("fp8.fake.count +=  *6  .*/octavo.toml:4:1.\n"));
  EXPECT_THAT(f.out, ContainsRegex("device.kind +=  *\"auto\"  .default.\n"));
  EXPECT_THAT(f.out, ContainsRegex("plugins.trust +=  *\"dev\"  .override.\n"));
}

TEST_F(CliCommands, config_show_origin_prints_every_key) {
  const std::string file =
      dir.write("octavo.toml",
                "[fp8]\nbackend = \"fake\"\n[[plugin]]\nmanifest = \"x.octavo-plugin.toml\"\n");
  environment.set("OCTAVO_FP8_FAKE_COUNT", "7");
  environment.set("OCTAVO_MIXED_PRECISION", "fp8");
  Finished f = with_fake({"config", "show", "--json", file});
  environment.unset("OCTAVO_FP8_FAKE_COUNT");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  const json s = json::parse(f.out)["settings"];
  EXPECT_EQ(s["fp8.backend"]["origin"], file + ":2:1");
  EXPECT_EQ(s["mixed_precision"]["origin"], "OCTAVO_MIXED_PRECISION");
  EXPECT_EQ(s["fp8.fake.count"]["value"], 7);
  EXPECT_EQ(s["fp8.fake.count"]["origin"], "OCTAVO_FP8_FAKE_COUNT");
  EXPECT_EQ(s["fp8.fake.mode"]["origin"], "default");
  EXPECT_EQ(s["fp8.require.native"]["origin"], "default");
  EXPECT_EQ(s["plugins.trust"]["origin"], "override");
  EXPECT_EQ(s["plugin.0.manifest"]["origin"], file + ":4:1");
  f = with_fake({"config", "show", file});
  EXPECT_THAT(f.out, ContainsRegex("fp8.fake.mode +=  *\"exact\"  .default.\n"));
}

TEST_F(CliCommands, config_check_of_bad_files) {
  const std::string key = dir.write("a.toml", "[fp8]\nbakend = \"te\"\n");
  Finished f = octavo({"config", "show", key});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_EQ(f.err,
            "error: " + key + ":2:1: unknown key \"fp8.bakend\"; did you mean \"fp8.backend\"?\n");
  const std::string option = dir.write("b.toml", "[fp8.fake]\ncount = 0\n");
  f = with_fake({"config", "show", option});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err, "error: " + option + ":2:1: fp8.fake.count: expected at least 1, found 0\n");
  f = octavo({"config", "show", dir / "none.toml"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err, "error: " + (dir / "none.toml") +
                       ": cannot be read: No such file or directory; check the path and its "
                       "permissions\n");
}

// A name that was mistyped is not made into an empty file.
TEST_F(CliCommands, a_file_that_is_not_there) {
  Finished f = octavo({"check", dir / "octavo.tml"});
  EXPECT_THAT(f.out, HasSubstr("apply: run `octavo init --yes --output " + (dir / "octavo.tml")));
  dir.write("octavo.octavo-plugin.toml", "a manifest, which nobody means");
  dir.write("octavo.toml", "schema = 1\n");
  f = octavo({"check", dir / "octavo.tml"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.out, HasSubstr("; did you mean \"" + (dir / "octavo.toml") + "\"?\n"));
  EXPECT_THAT(f.out, Not(HasSubstr("apply: ")));
  EXPECT_THAT(f.out, HasSubstr("remedy: name the file that is there: " + (dir / "octavo.toml")));
}

TEST_F(CliCommands, a_text_without_its_quotes) {
  for (const char *line : {"backend = te", "backend = \"te"}) {
    const std::string file = dir.write("a.toml", std::string("[fp8]\n") + line + "\n");
    const Finished f = octavo({"check", file});
    EXPECT_EQ(f.exit_code, 2);
    EXPECT_THAT(f.out, HasSubstr("quote")) << line;
    EXPECT_THAT(f.out, HasSubstr("did you mean `backend = \"te\"`?\n")) << line;
    EXPECT_THAT(f.out, HasSubstr("apply: replace line 2 of " + file + " by `backend = \"te\"`\n"));
  }
  const std::string other = dir.write("b.toml", "[fp8\n");
  EXPECT_THAT(octavo({"check", other}).out, Not(HasSubstr("did you mean")));
}

TEST_F(CliCommands, every_wrong_key_of_a_file_is_named) {
  const std::string file = dir.write(
      "a.toml", "mixed_precision = \"fp9\"\n[fp8]\nbakend = \"te\"\n[device]\nkind = 3\n");
  const Finished f = octavo({"config", "show", file});
  EXPECT_EQ(f.exit_code, 2);
  std::istringstream lines(f.err);
  for (const char *place : {":1:1: ", ":3:1: ", ":5:1: "}) {
    std::string line;
    std::getline(lines, line);
    EXPECT_THAT(line, testing::StartsWith("error: " + file + place));
  }
  EXPECT_TRUE(lines.peek() == EOF) << f.err;
}

// As in a file; a set of characters stays a pattern.
TEST_F(CliCommands, a_list_is_set_as_toml_has_it) {
  const auto skip = [&](const std::string &value) {
    const Finished f = octavo({"config", "show", "--json", "--set", "layers.skip=" + value});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return json::parse(f.out)["settings"]["layers.skip"]["value"];
  };
  EXPECT_EQ(skip("[\"*head*\", 'lm.*']"), json({"*head*", "lm.*"}));
  EXPECT_EQ(skip("[]"), json::array());
  EXPECT_EQ(skip("[ab]*"), json({"[ab]*"}));
  const Finished f = octavo({"config", "show", "--set", "layers.skip=[\"a\""});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("override layers.skip"));
}

TEST_F(CliCommands, reasons_of_several_lines_are_printed_as_lines) {
  for (const char *command : {"try", "verify"}) {
    const Finished f = octavo({"plugin", command, "absent"});
    EXPECT_EQ(f.exit_code, 1) << command;
    EXPECT_THAT(f.out, Not(HasSubstr("\\x0A"))) << command;
    EXPECT_THAT(f.out, HasSubstr("absent: no backend \"absent\" is installed")) << command;
  }
  EXPECT_THAT(octavo({"plugin", "try", "absent"}).out, Not(HasSubstr("octavo_open")));
}

TEST_F(CliCommands, set_takes_every_type) {
  const Finished f = with_fake({"config", "show", "--json", "--set", "fp8.fake.count=3", "--set",
                                "fp8.fake.ratio=0.25", "--set", "fp8.fake.verbose=true", "--set",
                                "fp8.fake.mode=fast", "--set", "fp8.fake.note=\"12\"", "--set",
                                "layers.skip=*head*"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const json s = json::parse(f.out)["settings"];
  EXPECT_EQ(s["fp8.fake.count"]["value"], 3);
  EXPECT_EQ(s["fp8.fake.ratio"]["value"], 0.25);
  EXPECT_EQ(s["fp8.fake.verbose"]["value"], true);
  EXPECT_EQ(s["fp8.fake.mode"]["value"], "fast");
  EXPECT_EQ(s["fp8.fake.note"]["value"], "12");
  EXPECT_EQ(s["layers.skip"]["value"], json({"*head*"}));
}

TEST_F(CliCommands, current_directory_is_not_searched) {
  EXPECT_THAT(octavo({"plugin", "list"}).out, Not(HasSubstr("fake")));
}

}  // namespace
}  // namespace octavo::test
