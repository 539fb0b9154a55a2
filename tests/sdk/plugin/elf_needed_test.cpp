// The search for needed libraries, against a folder of the test.
#include "sdk/src/plugin/elf_needed.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

class ElfNeededTest : public testing::Test {
 protected:
  ElfNeededTest() {
    environment.unset("LD_LIBRARY_PATH");
    dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "a/libx.so.1");
    dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "b/libx.so.1");
    search.origin = dir / "a";
  }
  std::string find(const std::string &name = "libx.so.1") { return find_named(name, search); }

  test::Environment environment;
  test::TempDir dir;
  NeededSearch search;
};

TEST_F(ElfNeededTest, nowhere) {
  EXPECT_EQ(find(), "");
}

TEST_F(ElfNeededTest, order) {
  search.rpath = dir / "b";
  EXPECT_EQ(find(), dir / "b/libx.so.1");
  environment.set("LD_LIBRARY_PATH", "relative::" + (dir / "none") + ":" + (dir / "a"));
  EXPECT_EQ(find(), dir / "b/libx.so.1");
  search.runpath = "/none";  // with it DT_RPATH does not count
  EXPECT_EQ(find(), dir / "a/libx.so.1");
  search.runpath = dir / "b";
  EXPECT_EQ(find(), dir / "a/libx.so.1");
  environment.unset("LD_LIBRARY_PATH");
  EXPECT_EQ(find(), dir / "b/libx.so.1");
}

TEST_F(ElfNeededTest, tokens) {
  search.runpath = "$ORIGIN/../b";
  EXPECT_EQ(find(), (dir / "a") + "/../b/libx.so.1");
  search.runpath = "${ORIGIN}";
  EXPECT_EQ(find(), dir / "a/libx.so.1");
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "lib/liby.so.1");
  search.runpath = dir.path() + "/$LIB";
  EXPECT_EQ(find("liby.so.1"), dir / "lib/liby.so.1");
}

TEST_F(ElfNeededTest, more_tokens) {
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "lib/liby.so.1");
  search.runpath = dir.path() + "/${LIB}";
  EXPECT_EQ(find("liby.so.1"), dir / "lib/liby.so.1");
#if defined(__x86_64__)
  const std::string platform = "x86_64";
#else
  const std::string platform = "aarch64";
#endif
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", platform + "/liby.so.1");
  search.runpath = dir.path() + "/${PLATFORM}:" + dir.path() + "/$PLATFORM";
  EXPECT_EQ(find("liby.so.1"), dir / (platform + "/liby.so.1"));
}

// What its user sets, and what moves with the file, does not count in a privileged process.
TEST_F(ElfNeededTest, privileged_process) {
  environment.set("LD_LIBRARY_PATH", dir / "a");
  search.runpath = "$ORIGIN/../b";
  {
    const test::FailingCall secure("getauxval", 0, 1, 100, 1);
    EXPECT_EQ(find(), "");
    search.runpath = dir / "b";
    EXPECT_EQ(find(), dir / "b/libx.so.1");
  }
  EXPECT_EQ(find(), dir / "a/libx.so.1");
}

#if defined(__x86_64__)
TEST_F(ElfNeededTest, builds_for_newer_processors) {
  search.runpath = dir / "a";
  for (const std::string level : {"2", "3", "4"}) {  // the newest counts
    const std::string name = "a/glibc-hwcaps/x86-64-v" + level + "/libv.so.1";
    EXPECT_EQ(find("libv.so.1").find(name), std::string::npos);
    dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", name);
    EXPECT_EQ(find("libv.so.1"), dir / name);
  }
}
#endif

TEST_F(ElfNeededTest, files_of_another_kind_do_not_count) {
  dir.write("a/libt.so.1", "GROUP ( libx.so.1 )\n");
  dir.write("a/libtext.so.1", std::string(100, 'x'));
  const std::string whole = test::read_text(OCTAVO_ZOO_DIR "/fake_good.so");
  for (const auto &[name, place, value] :
       {std::tuple("libclass.so.1", 4, 1), {"libmachine.so.1", 18, 8}}) {
    std::string other = whole;
    other[static_cast<size_t>(place)] = static_cast<char>(value);
    dir.write(std::string("a/") + name, other);
  }
  search.runpath = dir / "a";
  for (const char *name : {"libt.so.1", "libtext.so.1", "libclass.so.1", "libmachine.so.1"})
    EXPECT_EQ(find(name), "") << name;
}

TEST_F(ElfNeededTest, name_with_a_path) {
  EXPECT_EQ(find(dir / "b/libx.so.1"), dir / "b/libx.so.1");
  EXPECT_EQ(find("$ORIGIN/libx.so.1"), dir / "a/libx.so.1");
  EXPECT_EQ(find(dir / "none/libx.so.1"), "");
}

// Opened under a name that does not say where it begins: it cannot be opened again by that.
TEST_F(ElfNeededTest, what_was_opened_by_a_relative_name) {
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "c/libhere.so.1");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir / "c");
  void *library = dlopen("./libhere.so.1", RTLD_NOW | RTLD_LOCAL);
  std::filesystem::current_path(before);
  ASSERT_NE(library, nullptr) << dlerror();
  search.runpath = dir / "c";
  EXPECT_EQ(find("libhere.so.1"), "");
  EXPECT_TRUE(is_named("libhere.so.1", search));
  EXPECT_EQ(opened_by_path("libhere.so.1"), "");
}

}  // namespace
}  // namespace octavo
