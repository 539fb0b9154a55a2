// octavo config and octavo plugin manifest --options: what is checked without the plugin, and what
// prints the options of one.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string read(const std::string &path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The plugin's constructor leaves a file. The helper is a path that nobody can start, so that a
// trial in it would end the command.
class CliConfig : public Cli {
 protected:
  CliConfig() {
    dir.copy(OCTAVO_CANARY_PLUGIN, "plugins/fake.so");
    environment.set("CANARY_OF_A_TEST", dir / "canary");
    environment.set("OCTAVO_PROBE_HELPER", dir / "no_such_helper");
  }
  bool sang() const { return std::filesystem::exists(dir / "canary"); }
  void state(const std::string &options) {
    dir.write("plugins/fake.octavo-plugin.toml", fake_manifest() + options);
  }
};

TEST_F(CliConfig, no_command_of_config_runs_code_of_a_plugin) {
  const std::string file = dir.write("octavo.toml", "[fp8]\nbackend = \"fake\"\nfake.count = 6\n");
  const std::vector<std::vector<std::string>> commands = {{"config", "show", file},
                                                          {"config", "schema"}};
  for (const std::string &options : {fake_options(), std::string()}) {
    state(options);
    for (const std::vector<std::string> &command : commands) {
      const Finished f = with_fake(command);
      EXPECT_EQ(f.exit_code, 0) << f.err;
      EXPECT_THAT(f.out, HasSubstr("fake")) << command[1];
      EXPECT_FALSE(sang()) << command[1];
    }
  }
  // The canary sings where code runs, and the helper is missed where a trial is due.
  EXPECT_THAT(with_fake({"check", file}).err, HasSubstr("no_such_helper"));
  EXPECT_FALSE(sang());
  EXPECT_EQ(with_fake({"check", file, "--set", "plugins.probe=never"}).exit_code, 0);
  EXPECT_TRUE(sang());
}

// A name that no machine has is the file's own mistake; explain refuses it with the same exit code.
TEST_F(CliConfig, check_refuses_the_names_that_explain_refuses) {
  for (const auto &[text, code, words] :
       {std::tuple{"[fp8]\nbackend = \"fake\"\nfallback = [\"BF16\"]\n", 2,
                   "fp8.fallback: expected \"bf16\", found \"BF16\""},
        {"[fp8]\nbackend = \"fakee\"\n", 1, "did you mean \"fake\"?"}}) {
    const std::string file = dir.write("octavo.toml", text);
    for (const std::vector<std::string> &command :
         {std::vector<std::string>{"config", "show", file}, {"check", file}}) {
      const Finished f = with_fake(command);
      EXPECT_EQ(f.exit_code, code) << f.err;
      EXPECT_THAT(f.out + f.err, HasSubstr(words));
    }
  }
  const std::string file =
      dir.write("octavo.toml", "[fp8]\nbackend = \"fakee\"\nfallback = [\"bf16\"]\n");
  const Finished f = with_fake({"config", "show", file});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.err, HasSubstr("warning: fp8.backend"));
}

TEST_F(CliConfig, wrong_options_are_refused_without_the_plugin) {
  const std::string file = dir.write("octavo.toml", "[fp8.fake]\nratio = 2\n");
  const Finished f = with_fake({"config", "show", file});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err, "error: " + file + ":2:1: fp8.fake.ratio: expected 0.0 to 1.0, found 2.0\n");
  EXPECT_EQ(with_fake({"config", "show", "--set", "fp8.fake.cuont=3"}).exit_code, 2);
  EXPECT_FALSE(sang());
}

TEST_F(CliConfig, a_manifest_without_options_is_a_warning) {
  state("");
  const std::string file = dir.write("octavo.toml", "[fp8.fake]\nratio = 2\n");
  const std::string words =
      "the options of backend fake, such as fp8.fake.ratio (" + file +
      ":2:1), were not checked: " + (dir / "plugins/fake.octavo-plugin.toml") +
      " has no [options], and no code of the plugin runs here; `octavo check " + file +
      " --set fp8.backend=fake` asks the plugin";
  Finished f = with_fake({"config", "show", file});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.err, "warning: " + words + "\n");
  EXPECT_THAT(f.out, HasSubstr("\nwarning: " + words + "\n"));
  f = with_fake({"config", "show", "--json", file});
  EXPECT_EQ(by_schema("origins", f)["warnings"], json({words}));
}

TEST_F(CliConfig, manifest_with_the_options_of_a_library) {
  const std::string library = dir / "plugins/fake.so";
  const Finished f =
      octavo({"plugin", "manifest", "fake", "--version", "1.2.3", "--options", library});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr(fake_options()));
  EXPECT_EQ(octavo({"plugin", "manifest", "fake", "--options", library, "--only-options"}).out,
            "# As `octavo plugin manifest fake --options LIBRARY --only-options` prints them.\n" +
                fake_options());
  dir.write("plugins/fake.octavo-plugin.toml", f.out);
  EXPECT_EQ(with_fake({"config", "show", "--set", "fp8.fake.count=0"}).exit_code, 2);
}

// As octavo_add_plugin() writes them.
TEST_F(CliConfig, manifest_of_kernels_and_of_a_layer) {
  const auto printed = [this](std::vector<std::string> more) {
    std::vector<std::string> words = {"plugin", "manifest", "--version", "1.0.0"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished f = octavo(words);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return f.out;
  };
  EXPECT_EQ(printed({"kernels-npu", "--description", "kernels of a fake device", "--kernels", "npu",
                     "12"}),
            read(OCTAVO_TEST_DEVICES "/kernels-npu.octavo-plugin.toml"));
  EXPECT_THAT(printed({"groups", "--over", "cpu", "cuda"}),
              AllOf(HasSubstr("\n[kernels]\nover = [\"cpu\", \"cuda\"]\n\n[requires]"),
                    HasSubstr("interfaces = [\"octavo.kernels.layer/1\"]")));
  EXPECT_EQ(
      octavo({"plugin", "manifest", "a", "--version", "1", "--kernels", "N P U", "12"}).exit_code,
      2);
  EXPECT_EQ(octavo({"plugin", "manifest", "a", "--version", "1", "--kernels", "npu"}).exit_code, 2);
}

TEST_F(CliConfig, manifest_of_what_is_no_such_plugin) {
  const std::string library = dir / "plugins/fake.so";
  const auto refusal = [&](const std::string &name, const std::string &file) {
    const Finished f = octavo({"plugin", "manifest", name, "--version", "1", "--options", file});
    EXPECT_EQ(f.exit_code, 1) << f.out;
    EXPECT_EQ(f.out, "");
    return f.err;
  };
  EXPECT_THAT(refusal("other", library), HasSubstr("expected the id \"other\", found \"fake\""));
  EXPECT_THAT(refusal("fake", dir.write("text.so", "no library")), HasSubstr("cannot be loaded: "));
  for (const char *fault : {"no_symbol", "abi_major", "query_fails"})
    EXPECT_THAT(refusal("fake", fake_library(fault)), HasSubstr("expected a plugin of octavo "));
  EXPECT_THAT(refusal("fake", fake_library("no_backend")),
              HasSubstr("expected the interface octavo.backend/1"));
  EXPECT_THAT(refusal("fake", fake_library("list_options")),
              HasSubstr("list_options failed with status 7"));
  for (const std::vector<std::string> &arguments :
       {std::vector<std::string>{"--only-options"},
        {"--options", library},
        {"--options", dir / "none.so", "--version", "1"},
        {"--options", library, "--only-options", "--version", "1"}}) {
    std::vector<std::string> all = {"plugin", "manifest", "fake"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(octavo(all).exit_code, 2) << arguments.back();
  }
}

// Manifests are made from these files, so that no build has to run a plugin.
TEST_F(CliConfig, options_files_of_this_tree_are_those_of_its_plugins) {
  for (const std::string id : {"te", "msamp", "reference"}) {
    const std::string file = "/plugins/" + id + "/" + id + ".options.toml";
    const std::string library = OCTAVO_PLUGINS_DIR "/" + id + ".so";
    const Finished f = octavo({"plugin", "manifest", id, "--options", library, "--only-options"});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    EXPECT_EQ(f.out, read(OCTAVO_SOURCE_DIR + file))
        << "octavo plugin manifest " << id << " --options " << library << " --only-options >"
        << file.substr(1);
  }
}

}  // namespace
}  // namespace octavo::test
