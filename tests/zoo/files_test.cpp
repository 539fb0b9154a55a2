// Plugins that are installed wrongly: the pair of library and manifest is not complete or not sole.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ZooFiles : public Cage {
 protected:
  std::string list() {
    std::string out;
    EXPECT_EQ(request().print(octavo_list, "text", out), OCTAVO_OK);
    return out;
  }
};

TEST_F(ZooFiles, manifest_without_a_library) {
  dir.write("plugins/fake.octavo-plugin.toml", fake_manifest());
  expect_refusal(
      manifest() + ": names " + library() +
          ", which does not exist or is not a regular file; install the library next to its "
          "manifest",
      manifest(), "reinstall the plugin: its .so belongs next to the manifest");
}

TEST_F(ZooFiles, library_that_is_a_directory) {
  dir.make_directory("plugins/fake.so");
  dir.write("plugins/fake.octavo-plugin.toml", fake_manifest());
  expect_refusal(
      manifest() + ": names " + library() +
          ", which does not exist or is not a regular file; install the library next to its "
          "manifest",
      manifest(), "reinstall the plugin: its .so belongs next to the manifest");
}

// Whatever has the library's name: it is not opened, let alone loaded.
TEST_F(ZooFiles, library_that_is_no_file) {
  const std::string good = dir.copy(fake_library("good"), "elsewhere/fake.so");
  dir.make_directory("plugins");
  dir.write("plugins/fake.octavo-plugin.toml", fake_manifest());
  const auto expect = [&](const char *what, bool made, const std::string &words) {
    ASSERT_TRUE(made) << what << ": " << std::strerror(errno);
    RunPtr run;
    EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED) << what;
    EXPECT_THAT(request().host.error(), HasSubstr(words)) << what;
    std::filesystem::remove(library());
  };
  const std::string name = library();
  const char *at = name.c_str();
  const std::string none = "which does not exist or is not a regular file";
  expect("FIFO", mkfifo(at, 0644) == 0, none);
  expect("dangling link", symlink((dir / "nowhere.so").c_str(), at) == 0, none);
  expect("link to itself", symlink("fake.so", at) == 0, "Too many levels of symbolic links");
  expect("link out of the directory", symlink(good.c_str(), at) == 0,
         "expected a file inside " + (dir / "plugins") + ", found " + good);
  expect("link to a device", symlink("/dev/zero", at) == 0,
         "expected a file inside " + (dir / "plugins") + ", found /dev/zero");
}

TEST_F(ZooFiles, library_without_a_manifest_is_not_found) {
  dir.copy(fake_library("good"), "plugins/fake.so");
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  const std::string error = request().host.error();
  EXPECT_THAT(error, HasSubstr("fake: no backend \"fake\" is installed; found "));
  EXPECT_THAT(error, HasSubstr("\n    found: looked for fake.octavo-plugin.toml in " + dir.path() +
                               "/plugins (given by the host)"));
  EXPECT_THAT(error, HasSubstr("\n    remedy: install the plugin, or name its directory in "
                               "OCTAVO_PLUGIN_PATH or plugins.path"));
  EXPECT_THAT(list(), Not(HasSubstr("fake")));
}

TEST_F(ZooFiles, same_name_in_two_directories) {
  put("good");
  dir.copy(fake_library("no_symbol"), "first/fake.so");
  dir.write("first/fake.octavo-plugin.toml", fake_manifest());
  Environment outer;
  outer.set("OCTAVO_PLUGIN_PATH", dir / "first");
  // The first one wins, even though the second one would work.
  const std::string first = dir / "first/fake.so";
  expect_refusal(first + ": expected the symbol " OCTAVO_PLUGIN_SYMBOL ", found none", first,
                 "the file is not an Octavo plugin, or hides its entry: declare it OCTAVO_EXPORT");
  EXPECT_THAT(list(), HasSubstr("shadowed by " + (dir / "first/fake.octavo-plugin.toml")));
}

TEST_F(ZooFiles, listing_runs_no_plugin_code) {
  put("no_symbol");
  const std::string text = list();
  EXPECT_THAT(text, HasSubstr("fake          1.2.3    computes nothing\n  " + manifest() +
                              " (given by the host)\n"));
}

TEST_F(ZooFiles, hash_that_does_not_fit) {
  put("good");
  const std::string expected(64, 'a');
  std::string text = fake_manifest();
  text.replace(text.find("\"fake.so\""), 9,
               "{ file = \"fake.so\", sha256 = \"" + expected + "\" }");
  dir.write("plugins/fake.octavo-plugin.toml", text);
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  const std::string error = request().host.error();
  EXPECT_THAT(error, HasSubstr("fake: the library is not the one that its manifest describes\n"
                               "    found: " +
                               library() + ": expected sha256 " + expected + ", found "));
  EXPECT_THAT(error, HasSubstr("\n    remedy: reinstall the plugin"));
}

TEST_F(ZooFiles, manifest_that_is_no_toml) {
  put("good");
  dir.write("plugins/fake.octavo-plugin.toml", "manifest_version = \n");
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request().host.error(), HasSubstr("fake: " + manifest() + ":1:"));
  EXPECT_THAT(request().host.error(), HasSubstr(": not valid TOML: "));
}

}  // namespace
}  // namespace octavo::test
