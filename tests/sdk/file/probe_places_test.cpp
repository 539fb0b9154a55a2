// Where liboctavo is, where its helper is looked for, and which plugins came with it.
#include "sdk/src/file/probe_places.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "octavo/plugin.h"
#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

TEST(ProbePlaces, file_of_an_address) {
  const std::string program = fs::canonical("/proc/self/exe");
  EXPECT_EQ(file_holding(reinterpret_cast<const void *>(&file_holding)), program);
  EXPECT_EQ(liboctavo_file(), program);
  const int local = 0;
  EXPECT_EQ(file_holding(&local), "");
}

// The name that it was loaded by leads nowhere from here.
TEST(ProbePlaces, file_of_a_relative_name) {
  const test::TempDir dir;
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "librelative.so");
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  void *library = dlopen("./librelative.so", RTLD_NOW | RTLD_LOCAL);
  fs::current_path(before);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(file_holding(dlsym(library, OCTAVO_PLUGIN_SYMBOL)),
            fs::canonical(dir / "librelative.so").string());
}

TEST(ProbePlaces, helper) {
  test::Environment environment;
  environment.unset("OCTAVO_PROBE_HELPER");
  std::vector<std::string> looked;
  const std::string usual = probe_helper(&looked);
  ASSERT_NE(usual, "");
  EXPECT_EQ(looked.back(), usual);
  environment.set("OCTAVO_PROBE_HELPER", "");
  EXPECT_EQ(probe_helper(&looked), usual);
  environment.set("OCTAVO_PROBE_HELPER", "/bin/sh");
  EXPECT_EQ(probe_helper(&looked), "/bin/sh");
  environment.set("OCTAVO_PROBE_HELPER", "/none");
  EXPECT_EQ(probe_helper(&looked), "");
  EXPECT_EQ(looked.back(), "/none (OCTAVO_PROBE_HELPER)");
  const test::FailingCall secure("getauxval", 0, 1, 1, 1);  // the variable is another user's
  EXPECT_EQ(probe_helper(&looked), usual);
}

TEST(ProbePlaces, helper_that_is_nowhere) {
  test::Environment environment;
  environment.unset("OCTAVO_PROBE_HELPER");
  const test::FailingCall access("access", ENOENT, 1, 5);
  std::vector<std::string> looked;
  EXPECT_EQ(probe_helper(&looked), "");
  const std::string own = fs::path(liboctavo_file()).parent_path();
  EXPECT_EQ(looked.size(), 5u);
  EXPECT_THAT(looked, testing::Contains(own + "/octavo-probe"));
}

// A liboctavo of the test, with a plugin next to it.
class OwnPlugins : public testing::Test {
 protected:
  OwnPlugins() { dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "octavo/plugins/own.so"); }
  bool belongs(const std::string &file) const { return belongs_to_liboctavo(file, own); }

  test::TempDir dir;
  const std::string own = dir.write("liboctavo.so", "", 0755);
  const std::string directory = dir / "octavo/plugins";
  const std::string library = dir / "octavo/plugins/own.so";
};

TEST_F(OwnPlugins, lie_beside_liboctavo_and_belong_to_its_owner) {
  EXPECT_TRUE(belongs(library));
  EXPECT_FALSE(belongs_to_liboctavo(library));  // which is elsewhere
  EXPECT_FALSE(belongs("/tmp/own.so"));
  EXPECT_FALSE(belongs(library + ".none"));
  EXPECT_FALSE(belongs(directory + "/."));
  chmod(library.c_str(), 0775);
  EXPECT_FALSE(belongs(library));
  chmod(library.c_str(), 0755);
  chmod(directory.c_str(), 0775);
  EXPECT_FALSE(belongs(library));
  chmod(directory.c_str(), 0755);
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to another user";
  ASSERT_EQ(chown(library.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(belongs(library));
  ASSERT_EQ(chown(library.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(directory.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(belongs(library));
}

TEST_F(OwnPlugins, links_do_not_count) {
  const std::string real = library + ".real";
  fs::rename(library, real);
  fs::create_symlink(real, library);
  EXPECT_FALSE(belongs(library));
  fs::remove(library);
  fs::rename(real, library);
  fs::rename(directory, directory + ".real");
  fs::create_symlink(directory + ".real", directory);
  EXPECT_FALSE(belongs(library));
}

TEST_F(OwnPlugins, files_that_cannot_be_inspected) {
  {
    const test::FailingCall stat("stat", EIO);
    EXPECT_FALSE(belongs(library));
  }
  for (const int first : {1, 2}) {
    const test::FailingCall lstat("lstat", EIO, first);
    EXPECT_FALSE(belongs(library)) << first;
  }
}

}  // namespace
}  // namespace octavo
