// octavo plugin new: what it writes for each language, and what it refuses.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class CliNew : public Cli {
 protected:
  Finished make(const std::string &name, const std::string &language,
                const std::string &folder = "mine") {
    return octavo({"plugin", "new", name, "--lang", language, "--dir", dir / folder});
  }
  std::map<std::string, std::string> files(const std::string &folder = "mine") const {
    std::map<std::string, std::string> all;
    for (const auto &entry : fs::recursive_directory_iterator(dir / folder))
      if (entry.is_regular_file())
        all[fs::relative(entry.path(), dir / folder).string()] = read_text(entry.path());
    return all;
  }
  std::vector<std::string> names(const std::string &folder = "mine") const {
    std::vector<std::string> all;
    for (const auto &[name, content] : files(folder)) all.push_back(name);
    return all;
  }
  // Nothing but the directory of plugins that every test of the command line has.
  void expect_nothing_else(const std::vector<std::string> &kept) const {
    std::vector<std::string> found;
    for (const auto &entry : fs::directory_iterator(dir.path()))
      found.push_back(entry.path().filename().string());
    std::vector<std::string> wanted = kept;
    wanted.emplace_back("plugins");
    EXPECT_THAT(found, testing::UnorderedElementsAreArray(wanted));
  }
};

struct Case {
  const char *language;
  std::vector<std::string> sources;
  const char *word;  // of the sample, gone in the project
  std::string name = "own-recipe.v2";
};

class CliNewLanguage : public CliNew, public testing::WithParamInterface<Case> {
 protected:
  // README.md and the workflow run the commands that are printed, with its own Octavo the workflow.
  void expect_its_commands(const std::string &printed) const {
    const std::string prefix = fs::path(OCTAVO_CLI).parent_path().parent_path();
    const auto project = files();
    std::string readme = "```sh\n";
    std::string workflow = "      - name: " + GetParam().name + "\n        run: |\n";
    std::istringstream lines(printed.substr(printed.find("\n  cd ") + 1));
    int count = 0;
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line); ++count) {
      const std::string command = line.substr(2);
      readme += command + "\n";
      const size_t at = command.find(prefix);
      workflow += "          " +
                  (at == std::string::npos
                       ? command
                       : std::string(command).replace(at, prefix.size(), "/opt/octavo")) +
                  "\n";
    }
    EXPECT_EQ(count, 3) << printed;
    EXPECT_THAT(readme, HasSubstr(prefix));
    EXPECT_THAT(project.at("README.md"), HasSubstr(readme + "```\n"));
    EXPECT_THAT(project.at(".github/workflows/ci.yml"), testing::EndsWith(workflow));
    EXPECT_THAT(project.at(".github/workflows/ci.yml"), HasSubstr("--prefix /opt/octavo\n"));
  }
};

TEST_P(CliNewLanguage, has_the_sample_under_the_new_name) {
  const Case &c = GetParam();
  const Finished f = make(c.name, c.language);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  std::vector<std::string> wanted = {".github/workflows/ci.yml", ".gitignore", "README.md"};
  wanted.insert(wanted.end(), c.sources.begin(), c.sources.end());
  EXPECT_THAT(names(), testing::UnorderedElementsAreArray(wanted));
  for (const auto &[name, content] : files()) {
    EXPECT_THAT(content, Not(testing::ContainsRegex("@[A-Z]+@"))) << name;
    EXPECT_THAT(content, Not(testing::ContainsRegex(std::string("(^|[^A-Za-z0-9_])") + c.word +
                                                    "($|[^A-Za-z0-9_])")))
        << name;
    EXPECT_FALSE(content.empty()) << name;
  }
  EXPECT_THAT(files()["README.md"], HasSubstr("# " + c.name));
  expect_its_commands(f.out);
  struct stat state {};
  ASSERT_EQ(stat((dir / "mine").c_str(), &state), 0);
  const mode_t mask = umask(022);
  umask(mask);
  EXPECT_EQ(state.st_mode & 0777, 0777 & ~mask);
  expect_nothing_else({"mine"});
}

INSTANTIATE_TEST_SUITE_P(
    Languages, CliNewLanguage,
    testing::Values(
        Case{"cpp",
             {"CMakeLists.txt", "own-recipe.v2.cpp", "own-recipe.v2.options.toml"},
             "Current"},
        Case{"c", {"CMakeLists.txt", "own-recipe.v2.c", "own-recipe.v2.options.toml"}, "minimal"},
        Case{"rust",
             {"Cargo.toml", "build.rs", "own-recipe_v2.options.toml", "src/lib.rs",
              "tests/octavo.rs"},
             "Current",
             "own-recipe_v2"},
        Case{"kernels-c", {"CMakeLists.txt", "own-recipe.v2.c"}, "kernels_plugin"},
        Case{"kernels-cpp", {"CMakeLists.txt", "own-recipe.v2.cpp"}, "kernels_cpp"},
        Case{"host-cpp", {"CMakeLists.txt", "own-recipe.v2.cpp", "octavo.toml"}, "mlp_host"},
        Case{"host-c",
             {"CMakeLists.txt", "own-recipe.v2.c", "layers.c", "host.h", "octavo.toml"},
             "train"}),
    [](const testing::TestParamInfo<Case> &case_) {
      std::string name = case_.param.language;
      for (char &c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST_F(CliNew, as_json) {
  Finished f = octavo({"plugin", "new", "mine", "--lang", "c", "--dir", dir / "mine/", "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  const nlohmann::json j = by_schema("new", f);
  EXPECT_EQ(j["language"], "c");
  EXPECT_EQ(j["folder"], dir / "mine");
  EXPECT_EQ(j["files"], nlohmann::json(names()));
  EXPECT_EQ(j["commands"].size(), 3u);
  f = octavo({"plugin", "new", "mine", "--lang", "c", "--dir", dir / "mine", "--json"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
}

TEST_F(CliNew, a_name_becomes_a_class) {
  ASSERT_EQ(make("my-recipe.v2", "cpp").exit_code, 0);
  EXPECT_THAT(files()["my-recipe.v2.cpp"], HasSubstr("OCTAVO_PLUGIN(MyRecipeV2, declare"));
  ASSERT_EQ(make("8bit", "cpp", "other").exit_code, 0);
  EXPECT_THAT(files("other")["8bit.cpp"], HasSubstr("class Plugin8bit : public"));
}

TEST_F(CliNew, a_crate_has_the_id_and_the_crate_of_the_installation) {
  ASSERT_EQ(make("my-recipe", "rust").exit_code, 0);
  EXPECT_THAT(files()["Cargo.toml"], HasSubstr("\nname = \"my-recipe\"\n"));
  EXPECT_THAT(files()["Cargo.toml"], HasSubstr("path = \"octavo/share/octavo/rust/octavo-sys\""));
  EXPECT_THAT(files()["src/lib.rs"], HasSubstr("octavo_sys::plugin!(MyRecipeBackend);"));
  EXPECT_EQ(files()[".gitignore"], "/octavo\n/target/\n");
}

TEST_F(CliNew, names_that_cargo_does_not_accept) {
  for (const char *name : {"my-recipe.v2", "8bit"}) {
    const Finished f = make(name, "rust");
    EXPECT_EQ(f.exit_code, 2) << name;
    EXPECT_THAT(f.err, HasSubstr("expected a name that cargo accepts: letters, digits, _ and -, "
                                 "no digit first, found " +
                                 std::string(name)));
  }
  expect_nothing_else({});
}

TEST_F(CliNew, makes_the_folder_of_its_name_without_dir) {
  const auto before = fs::current_path();
  fs::current_path(dir.path());
  const Finished f = octavo({"plugin", "new", "fine", "--lang", "c"});
  fs::current_path(before);
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_TRUE(fs::exists(dir / "fine/fine.c"));
}

TEST_F(CliNew, names_that_are_no_ids) {
  for (const auto &[name, says] : std::vector<std::pair<const char *, const char *>>{
           {"My Plugin", "expected 1 to 64 characters of a-z 0-9 _ . -, found \"My Plugin\""},
           {"", "expected 1 to 64 characters"},
           {"a/b", "expected 1 to 64 characters"},
           {"..", "expected a letter or a digit first, found \"..\""},
           {"_x", "expected a letter or a digit first"}}) {
    const Finished f = make(name, "cpp");
    EXPECT_EQ(f.exit_code, 2) << name;
    EXPECT_THAT(f.err, HasSubstr(says)) << name;
    EXPECT_EQ(f.out, "") << name;
  }
  expect_nothing_else({});
}

TEST_F(CliNew, a_language_that_is_none) {
  const Finished f = make("fine", "cobol");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("expected one of cpp, c, rust, "));
  EXPECT_THAT(f.err, HasSubstr("found \"cobol\""));
  EXPECT_EQ(octavo({"plugin", "new", "fine"}).exit_code, 2);
  expect_nothing_else({});
}

TEST_F(CliNew, never_writes_into_what_is_there) {
  dir.make_directory("empty");
  dir.write("file", "mine\n");
  fs::create_symlink("nowhere", dir / "link");
  ASSERT_EQ(make("fine", "c").exit_code, 0);
  const auto before = files();
  for (const char *folder : {"empty", "file", "link", "mine", "mine/"}) {
    const Finished f = make("other", "cpp", folder);
    EXPECT_EQ(f.exit_code, 2) << folder;
    EXPECT_THAT(f.err, HasSubstr("expected a folder that does not exist yet, found ")) << folder;
  }
  EXPECT_EQ(files(), before);
  EXPECT_TRUE(fs::is_empty(dir / "empty"));
  EXPECT_EQ(read_text(dir / "file"), "mine\n");
  expect_nothing_else({"empty", "file", "link", "mine"});
}

TEST_F(CliNew, a_folder_whose_parent_is_not_there) {
  const Finished f = make("fine", "c", "no/such/folder");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("no/such to exist, found none"));
  expect_nothing_else({});
}

TEST_F(CliNew, a_name_that_is_also_that_of_a_file_of_the_sample) {
  const Finished f = make("layers", "host-c");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("found two files layers.c; choose another name"));
  expect_nothing_else({});
}

}  // namespace
}  // namespace octavo::test
