// Where manifests are looked for, in which order, and where never.
#include "sdk/src/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sdk/src/failure.h"
#include "tests/support/environment.h"
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
  Discovery find(const Request &r) {
    const octavo_open_desc desc = r.desc();
    return discover(load_config(desc), desc);
  }
  static std::vector<std::string> origins(const Discovery &d) {
    std::vector<std::string> all;
    for (const FoundManifest &m : d.manifests) all.push_back(m.origin);
    return all;
  }

  test::Environment environment;
  test::TempDir dir;
};

TEST_F(DiscoveryTest, order_and_shadowing) {
  const std::string entry = plant("own", "x");
  plant("env1", "x");
  plant("env2", "x");
  plant("path", "x");
  plant("plugins", "x");
  plant("binding", "x");
  plant("data/octavo/plugins", "x");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "env1:" + (dir / "env2"));
  environment.set("XDG_DATA_HOME", dir / "data");
  const std::string file =
      dir.write("octavo.toml",
                "[[plugin]]\nmanifest = \"own/x.octavo-plugin.toml\"\n[plugins]\npath = "
                "[\"path\"]\n");
  Request r;
  r.path(file).plugins(dir / "binding");
  const Discovery d = find(r);
  EXPECT_THAT(origins(d),
              ElementsAre("[[plugin]] in " + file, "OCTAVO_PLUGIN_PATH", "OCTAVO_PLUGIN_PATH",
                          "plugins.path", "beside the config file", "given by the host",
                          "user data directory"));
  ASSERT_NE(d.find("x"), nullptr);
  EXPECT_EQ(d.find("x")->path, entry);
  for (size_t i = 1; i < d.manifests.size(); ++i) EXPECT_EQ(d.manifests[i].shadowed_by, entry);
  EXPECT_THAT(d.names(), ElementsAre("x"));
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
  for (const SearchPlace &place : d.places) EXPECT_EQ(place.directory[0], '/');
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

}  // namespace
}  // namespace octavo
