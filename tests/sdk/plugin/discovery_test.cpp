// Where manifests are looked for, in which order, and where never.
#include "sdk/src/plugin/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/file/allowed.h"
#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::Request;
using testing::ElementsAre;
using testing::HasSubstr;

class DiscoveryTest : public testing::Test {
 protected:
  // Discovery reads names only, so an empty manifest is enough.
  std::string plant(const std::string &directory, const std::string &name) {
    return dir.write(directory + "/" + name + ".octavo-plugin.toml", "");
  }
  // The same in a folder of a configuration file that the user has allowed.
  std::string plant_allowed(const std::string &directory, const std::string &name) {
    const std::string path = plant(directory, name);
    allow(dir / directory);
    return path;
  }
  Discovery find(const Request &r) {
    const octavo_open_desc desc = r.desc();
    return discover(load_config(desc), desc);
  }
  static std::vector<std::string> origins(const Discovery &d) {
    std::vector<std::string> all;
    for (const FoundManifest &m : d.manifests) all.push_back(m.origin);
    return all;
  }

  // What somebody named and what is ignored all the same.
  static std::vector<std::string> asked_in_vain(const Discovery &d) {
    std::vector<std::string> ignored;
    for (const SearchPlace &p : d.places)
      if (!p.ignored.empty() && p.asked) ignored.push_back(p.directory);
    return ignored;
  }

  test::Environment environment;
  test::TempDir dir;
};

TEST_F(DiscoveryTest, order_and_shadowing) {
  environment.set("OCTAVO_PLUGIN_PATH", dir / "env1:" + (dir / "env2"));
  environment.set("XDG_DATA_HOME", dir / "data");
  const std::string named = plant("named", "x");
  plant_allowed("own", "x");
  plant("env1", "x");
  plant("env2", "x");
  plant("absolute", "x");
  plant_allowed("path", "x");
  plant("binding", "x");
  plant("data/octavo/plugins", "x");
  const std::string file =
      dir.write("octavo.toml",
                "[[plugin]]\nmanifest = \"own/x.octavo-plugin.toml\"\n[[plugin]]\nmanifest = \"" +
                    named + "\"\n[plugins]\npath = [\"path\", \"" + (dir / "absolute") + "\"]\n");
  Request r;
  r.path(file).plugins(dir / "binding");
  const Discovery d = find(r);
  EXPECT_THAT(origins(d),
              ElementsAre("[[plugin]] in " + file, "OCTAVO_PLUGIN_PATH", "OCTAVO_PLUGIN_PATH",
                          "plugins.path", "given by the host", "user data directory",
                          "[[plugin]] in " + file, "plugins.path"));
  ASSERT_NE(d.find("x"), nullptr);
  EXPECT_EQ(d.find("x")->path, named);
  for (size_t i = 1; i < d.manifests.size(); ++i) EXPECT_EQ(d.manifests[i].shadowed_by, named);
  EXPECT_THAT(d.names(), ElementsAre("x"));
}

// A repository that is cloned brings its own octavo.toml, and may bring a library with a known
// name.
TEST_F(DiscoveryTest, the_folder_of_a_file_replaces_no_installed_plugin) {
  environment.set("XDG_DATA_HOME", dir / "data");
  const std::string installed = plant("data/octavo/plugins", "x");
  const std::string own = plant_allowed("own", "x"), path = plant_allowed("path", "x");
  const std::string added = plant("path", "y");
  const std::string file = dir.write(
      "octavo.toml",
      "[[plugin]]\nmanifest = \"own/x.octavo-plugin.toml\"\n[plugins]\npath = [\"path\"]\n");
  const Discovery d = find(Request().path(file));
  EXPECT_EQ(d.find("x")->path, installed);
  EXPECT_EQ(d.find("y")->path, added);
  EXPECT_THAT(asked_in_vain(d), ElementsAre(own, path));
  EXPECT_THAT(d.places.back().ignored, testing::StartsWith("a plugin of this name is installed"));
}

TEST_F(DiscoveryTest, the_folder_of_a_file_waits_until_the_user_allows_it) {
  const std::string own = plant("own", "x"), path = plant("path", "y");
  const std::string file = dir.write(
      "octavo.toml",
      "[[plugin]]\nmanifest = \"own/x.octavo-plugin.toml\"\n[plugins]\npath = [\"path\"]\n");
  Request r;
  r.path(file);
  for (const bool can_record : {false, true}) {
    if (can_record) environment.set("XDG_DATA_HOME", dir / "data");
    const Discovery d = find(r);
    EXPECT_THAT(d.names(), ElementsAre());
    EXPECT_THAT(asked_in_vain(d), ElementsAre(own, dir / "path"));
    EXPECT_THAT(d.places.back().ignored, HasSubstr("run `octavo plugin allow` with that file"));
    ASSERT_NE(d.unsearched_with("x"), nullptr);
    EXPECT_EQ(d.unsearched_with("x")->directory, own);
    EXPECT_EQ(d.unsearched_with("y")->directory, dir / "path");
    EXPECT_EQ(d.unsearched_with("z"), nullptr);
  }
  allow(dir / "path");
  EXPECT_THAT(find(r).names(), ElementsAre("y"));
  allow(dir / "own");
  EXPECT_THAT(find(r).names(), ElementsAre("x", "y"));
  disallow(dir / "path");
  EXPECT_THAT(find(r).names(), ElementsAre("x"));
}

// The usual name for such a folder: its plugins are not left out in silence.
TEST_F(DiscoveryTest, plugins_next_to_a_file_that_does_not_name_them) {
  environment.set("XDG_DATA_HOME", dir / "data");
  const std::string file = dir.write("octavo.toml", "[plugins]\n");
  dir.make_directory("plugins");
  EXPECT_THAT(asked_in_vain(find(Request().path(file))), ElementsAre());
  plant_allowed("plugins", "x");
  const Discovery d = find(Request().path(file));
  EXPECT_THAT(asked_in_vain(d), ElementsAre(dir / "plugins"));
  EXPECT_THAT(d.places.back().ignored, HasSubstr("add it to plugins.path"));
  EXPECT_EQ(d.find("x"), nullptr);
  ASSERT_NE(d.unsearched_with("x"), nullptr);
  EXPECT_TRUE(d.unsearched_with("x")->unnamed);
  dir.write("octavo.toml", "[plugins]\npath = [\"./plugins\"]\n");
  const Discovery named = find(Request().path(file));
  EXPECT_THAT(asked_in_vain(named), ElementsAre());
  EXPECT_NE(named.find("x"), nullptr);
}

TEST_F(DiscoveryTest, each_place_on_its_own) {
  const std::string path = plant("p", "solo");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "p");
  EXPECT_EQ(find(Request()).find("solo")->path, path);
  environment.unset("OCTAVO_PLUGIN_PATH");
  EXPECT_EQ(find(Request()).find("solo"), nullptr);
  EXPECT_EQ(find(Request().set("plugins.path", dir / "p")).find("solo")->path, path);
  EXPECT_EQ(find(Request().plugins(dir / "p")).find("solo")->path, path);
}

TEST_F(DiscoveryTest, home_is_used_without_xdg_data_home) {
  const std::string path = plant("home/.local/share/octavo/plugins", "mine");
  environment.set("HOME", dir / "home");
  EXPECT_EQ(find(Request()).find("mine")->path, path);
  environment.set("XDG_DATA_HOME", dir / "elsewhere");
  EXPECT_EQ(find(Request()).find("mine"), nullptr);
}

// A plugin that was installed with the prefix ~/.local.
TEST_F(DiscoveryTest, library_directory_of_the_user) {
  const std::string path = plant("home/.local/lib/octavo/plugins", "mine");
  environment.set("HOME", dir / "home");
  EXPECT_EQ(find(Request()).find("mine")->path, path);
  environment.set("XDG_DATA_HOME", dir / "data");
  EXPECT_EQ(find(Request()).find("mine")->path, path);
  const std::string first = plant("data/octavo/plugins", "mine");
  const Discovery d = find(Request());
  EXPECT_EQ(d.find("mine")->path, first);
  EXPECT_EQ(d.manifests.back().origin, "user library directory");
  EXPECT_EQ(d.manifests.back().shadowed_by, first);
}

// Where nobody named the directory, what other places hold is still known.
TEST_F(DiscoveryTest, directory_that_this_user_may_not_read) {
  plant("data/octavo/plugins", "hidden");
  plant("p", "x");
  environment.set("XDG_DATA_HOME", dir / "data");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "p");
  {
    const test::FailingCall second("opendir", EACCES, 2, 1, 0);
    const Discovery d = find(Request());
    EXPECT_NE(d.find("x"), nullptr);
    try {
      d.must_know("hidden");
      FAIL() << "expected a ResourceUnavailable";
    } catch (const ResourceUnavailable &s) {
      EXPECT_EQ(s.verdict().text, "whether plugin \"hidden\" is installed is not known: " +
                                      (dir / "data/octavo/plugins") +
                                      " (user data directory) cannot be read, and no other place "
                                      "has it");
    }
    EXPECT_THAT(d.places_text(), HasSubstr("ignored: it cannot be read: Permission denied"));
  }
  const test::FailingCall first("opendir", EACCES, 1, 1, 0);
  try {
    find(Request());
    FAIL() << "expected a ResourceUnavailable";
  } catch (const ResourceUnavailable &s) {
    EXPECT_EQ(s.message(),
              (dir / "p") +
                  " (OCTAVO_PLUGIN_PATH): cannot be read: Permission denied; no fallback was "
                  "selected and the result was not cached; give this user "
                  "access to it, or take it out of OCTAVO_PLUGIN_PATH");
  }
}

TEST_F(DiscoveryTest, shortage_is_no_missing_directory) {
  plant("p", "x");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "p");
  for (const auto &[function, error] :
       {std::pair("opendir", EMFILE), {"opendir", ENOMEM}, {"readdir", EIO}}) {
    const test::FailingCall call(function, error, 1, 1, 0);
    EXPECT_THROW(find(Request()), ResourceUnavailable) << function << error;
  }
  const test::FailingCall gone("opendir", ENOENT, 1, 1, 0);
  EXPECT_EQ(find(Request()).find("x"), nullptr);
}

TEST_F(DiscoveryTest, names_are_sorted_and_other_files_ignored) {
  plant("p", "zebra");
  plant("p", "ant");
  dir.write("p/ant.so", "");
  dir.write("p/readme.toml", "");
  dir.write("p/.octavo-plugin.toml", "");
  EXPECT_THAT(find(Request().plugins(dir / "p")).names(), ElementsAre("ant", "zebra"));
}

TEST_F(DiscoveryTest, relative_entries_are_ignored) {
  plant("p", "x");
  environment.set("OCTAVO_PLUGIN_PATH", "p:::./p:");
  environment.set("XDG_DATA_HOME", "p");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Discovery d = find(Request().plugins("p").set("plugins.path", "p"));
  std::filesystem::current_path(before);
  EXPECT_THAT(d.names(), ElementsAre());
  std::vector<std::string> ignored;
  for (const SearchPlace &place : d.places) {
    EXPECT_EQ(place.ignored.empty(), place.directory[0] == '/');
    if (!place.ignored.empty()) ignored.push_back(place.directory + " from " + place.origin);
  }
  EXPECT_THAT(ignored, ElementsAre("p from OCTAVO_PLUGIN_PATH", "./p from OCTAVO_PLUGIN_PATH",
                                   "p from plugins.path", "p from given by the host",
                                   "p/octavo/plugins from user data directory"));
  EXPECT_THAT(d.places_text(),
              HasSubstr("p (plugins.path, ignored: relative, and the current directory never "
                        "matters)"));
}

TEST_F(DiscoveryTest, current_directory_is_never_searched) {
  dir.write("x.octavo-plugin.toml", "");
  plant("plugins", "y");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Discovery d = find(Request().text("schema = 1"));
  std::filesystem::current_path(before);
  EXPECT_THAT(d.names(), ElementsAre());
}

TEST_F(DiscoveryTest, relative_manifest_without_a_file_is_refused) {
  try {
    find(Request().text("[[plugin]]\nmanifest = \"x.octavo-plugin.toml\"\n"));
    FAIL() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_EQ(f.text(),
              "plugin.manifest: expected an absolute path, since there is no configuration file to "
              "be relative to, found \"x.octavo-plugin.toml\"");
  }
}

// What the user of a set-uid or set-gid program could have set decides nothing.
TEST_F(DiscoveryTest, privileged_process) {
  const std::string entry = plant("own", "x");
  const std::string file =
      dir.write("octavo.toml",
                "[[plugin]]\nmanifest = \"own/x.octavo-plugin.toml\"\n"
                "[[plugin]]\nmanifest = \"" +
                    plant("absolute", "z") + "\"\n[plugins]\npath = [\"path\", \"" +
                    (dir / "path2") + "\"]\n");
  for (const char *place : {"env", "path", "path2", "plugins", "data/octavo/plugins", "binding",
                            "home/.local/share/octavo/plugins", "home/.local/lib/octavo/plugins"})
    plant(place, "x");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "env");
  environment.set("XDG_DATA_HOME", dir / "data");
  Request r;
  r.path(file).plugins(dir / "binding");
  const octavo_open_desc desc = r.desc();
  const Discovery d = discover(load_config(desc), desc, true);
  EXPECT_THAT(origins(d),
              ElementsAre("[[plugin]] in " + file, "plugins.path", "given by the host"));
  ASSERT_NE(d.find("x"), nullptr);
  EXPECT_EQ(d.find("x")->path, dir / "path2/x.octavo-plugin.toml");
  std::vector<std::string> ignored, asked;
  for (const SearchPlace &place : d.places) {
    if (place.ignored.empty()) continue;
    EXPECT_EQ(place.ignored, "this process has more rights than its user");
    ignored.push_back(place.directory);
    if (place.asked) asked.push_back(place.directory);
  }
  EXPECT_THAT(ignored, ElementsAre(dir / "env", dir / "data/octavo/plugins", entry, dir / "path"));
  EXPECT_THAT(asked, ElementsAre(dir / "env", entry, dir / "path"));
  environment.unset("XDG_DATA_HOME");
  environment.set("HOME", dir / "home");
  EXPECT_THAT(origins(discover(load_config(desc), desc, true)),
              ElementsAre("[[plugin]] in " + file, "plugins.path", "given by the host"));
}

TEST_F(DiscoveryTest, missing_places_are_reported_as_such) {
  const Discovery d = find(Request().plugins(dir / "none"));
  EXPECT_THAT(d.places_text(), HasSubstr((dir / "none") + " (given by the host, does not exist)"));
}

TEST_F(DiscoveryTest, one_directory_twice_shadows_nothing) {
  plant("p", "x");
  const Discovery d = find(Request().plugins(dir / "p").plugins(dir / "p"));
  ASSERT_EQ(d.manifests.size(), 1u);
  EXPECT_EQ(d.manifests[0].shadowed_by, "");
}

TEST_F(DiscoveryTest, directories_without_an_address) {
  octavo_open_desc desc = Request().desc();
  desc.plugin_dirs = nullptr;
  desc.plugin_dir_count = 3;
  try {
    discover(load_config(desc), desc);
    ADD_FAILURE() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_EQ(f.text(),
              "plugin_dirs: expected the address of 3 directories, found null; pass "
              "plugin_dir_count 0 for no directories");
  }
}

TEST_F(DiscoveryTest, names_that_are_not_quite_manifests) {
  environment.set("OCTAVO_PLUGIN_PATH", dir.make_directory("env"));
  dir.write("env/.octavo-plugin.toml", "");
  dir.write("env/x.octavo-plugin.tomlx", "");
  const std::string odd = dir.write("odd.toml", "");
  Request r;
  const Discovery d = find(r.text("[[plugin]]\nmanifest = \"" + odd + "\"\n"));
  ASSERT_EQ(d.manifests.size(), 1u);
  EXPECT_EQ(d.manifests[0].name, "odd.toml");
  EXPECT_NE(d.find("odd.toml"), nullptr);
  EXPECT_EQ(d.find("odd"), nullptr);
}

TEST_F(DiscoveryTest, relative_path_without_a_file_to_be_relative_to) {
  Request r;
  const Discovery d = find(r.set("plugins.path", "some/where"));
  EXPECT_THAT(d.places_text(), HasSubstr("some/where (plugins.path, ignored: relative"));
}

}  // namespace
}  // namespace octavo
