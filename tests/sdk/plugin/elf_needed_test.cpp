// The search for needed libraries, against a folder of the test and files of ldconfig's format.
#include "sdk/src/plugin/elf_needed.h"
#include "sdk/src/base/resource_unavailable.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr const char *kSystem = "/usr/lib/x86_64-linux-gnu";
#else
constexpr const char *kSystem = "/usr/lib/aarch64-linux-gnu";
#endif

class ElfNeededTest : public testing::Test {
 protected:
  ElfNeededTest() {
    environment.unset("LD_LIBRARY_PATH");
    dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "a/libx.so.1");
    dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "b/libx.so.1");
    search.origin = dir / "a";
  }
  std::string find(const std::string &name = "libx.so.1") { return find_needed(name, search).path; }

  test::Environment environment;
  test::TempDir dir;
  NeededSearch search;
};

TEST_F(ElfNeededTest, nowhere) {
  EXPECT_EQ(find(), "");
  EXPECT_FALSE(find_needed("libx.so.1", search).only_here);
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

TEST_F(ElfNeededTest, what_only_this_process_has) {
  const std::string file = dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "c/libloaded.so.1");
  ASSERT_NE(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const NeededFile found = find_needed("libloaded.so.1", search);
  EXPECT_EQ(found.path, file);
  EXPECT_TRUE(found.only_here);
  search.runpath = dir / "c";
  EXPECT_FALSE(find_needed("libloaded.so.1", search).only_here);
}

TEST_F(ElfNeededTest, system_library) {
  const NeededFile found = find_needed("libc.so.6", search);
  EXPECT_NE(found.path, "");
  EXPECT_FALSE(found.only_here);
}

// Opened under a name that does not say where it begins: it cannot be opened again by that.
TEST_F(ElfNeededTest, what_was_opened_by_a_relative_name) {
  dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "c/libhere.so.1");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir / "c");
  void *library = dlopen("./libhere.so.1", RTLD_NOW | RTLD_LOCAL);
  std::filesystem::current_path(before);
  ASSERT_NE(library, nullptr) << dlerror();
  const NeededFile found = find_needed("libhere.so.1", search);
  EXPECT_EQ(found.path, "./libhere.so.1");
  EXPECT_FALSE(found.only_here);
}

// One that nobody has opened and no cache names.
TEST_F(ElfNeededTest, directories_of_the_system) {
  search.cache = dir / "none";
  std::string name;
  for (const auto &e : std::filesystem::directory_iterator(kSystem)) {
    const std::string file = e.path().filename();
    if (e.is_symlink() || file.find(".so.") == std::string::npos) continue;
    if (dlopen(file.c_str(), RTLD_NOLOAD | RTLD_LAZY) == nullptr) name = file;
  }
  if (name.empty()) GTEST_SKIP() << "every library of the system is open here";
  EXPECT_EQ(std::filesystem::path(find(name)).filename(), name);
}

// As ldconfig writes it: header of 48 bytes, entries of 24, texts.
std::string cache_of(const std::string &name, const std::string &path) {
  std::string bytes = "glibc-ld.so.cache1.1";
  const auto put = [&](uint32_t n) { bytes.append(reinterpret_cast<const char *>(&n), 4); };
  const auto text_bytes = static_cast<uint32_t>(name.size() + path.size() + 2);
  for (const uint32_t n : {1u, text_bytes, 0u, 0u, 0u, 0u, 0u}) put(n);
  const uint32_t texts = 48 + 24;
  for (const uint32_t n : {1u, texts, texts + static_cast<uint32_t>(name.size()) + 1, 0u, 0u, 0u})
    put(n);
  return bytes.append(name).append(1, '\0').append(path).append(1, '\0');
}

TEST_F(ElfNeededTest, cache) {
  const std::string good = cache_of("libz.so.1", "/opt/libz.so.1");
  const std::vector<std::string> expected = {"/opt/libz.so.1"};
  EXPECT_EQ(paths_in_cache(dir.write("cache", good), "libz.so.1"), expected);
  EXPECT_TRUE(paths_in_cache(dir / "cache", "libz.so.2").empty());
  // After the table of older systems: 12 bytes of magic, a count, entries of 12 bytes.
  std::string old("ld.so-1.7.0\0\1\0\0\0", 16);
  old.append(12, '\0');
  old.resize((old.size() + 7) / 8 * 8);
  EXPECT_EQ(paths_in_cache(dir.write("cache", old + good), "libz.so.1"), expected);
}

TEST_F(ElfNeededTest, cache_that_shrinks) {
  const std::string file = dir.write("cache", cache_of("libz.so.1", "/opt/libz.so.1"));
  const test::FailingCall pread("pread", 0, 1, 1, 0);
  EXPECT_TRUE(paths_in_cache(file, "libz.so.1").empty());
}

TEST_F(ElfNeededTest, cache_that_is_cut_or_lies) {
  const std::string good = cache_of("libz.so.1", "/opt/libz.so.1");
  for (size_t size = 0; size + 25 < good.size(); ++size)
    EXPECT_TRUE(paths_in_cache(dir.write("cache", good.substr(0, size)), "libz.so.1").empty())
        << size;
  for (const size_t place : {20u, 48u + 4u, 48u + 8u}) {
    std::string bad = good;
    std::memset(bad.data() + place, 0xFF, 4);
    const auto found = paths_in_cache(dir.write("cache", bad), "libz.so.1");
    EXPECT_TRUE(found.empty() || found == std::vector<std::string>{""}) << place;
  }
  EXPECT_TRUE(paths_in_cache(dir / "none", "libz.so.1").empty());
  std::string old("ld.so-1.7.0\0\1\0\0\0", 16);
  for (const size_t size : {11u, 15u, 16u})
    EXPECT_TRUE(paths_in_cache(dir.write("cache", old.substr(0, size)), "libz.so.1").empty());
  EXPECT_TRUE(paths_in_cache(dir.write("cache", std::string(200, 'x')), "libz.so.1").empty());
  dir.write("cache", good);
  std::filesystem::resize_file(dir / "cache", (16 << 20) + 1);
  EXPECT_TRUE(paths_in_cache(dir / "cache", "libz.so.1").empty());
  dir.write("cache", good);
  const test::FailingCall pread("pread", EACCES);
  EXPECT_THROW(paths_in_cache(dir / "cache", "libz.so.1"), ResourceUnavailable);
}

// The first that fits wins, whatever follows it.
TEST_F(ElfNeededTest, several_entries_of_one_name) {
  const auto entry = [&](const std::string &path) { return cache_of("libmany.so.1", path); };
  search.cache = dir.write("cache", entry(dir / "b/libx.so.1"));
  EXPECT_EQ(find("libmany.so.1"), dir / "b/libx.so.1");
  dir.write("cache", entry(dir / "none"));
  EXPECT_EQ(find("libmany.so.1"), "");
  std::string two = entry(dir / "a/libx.so.1");
  two.insert(48, two.substr(48, 24));
  two[20] = 2;
  for (const size_t place : {52u, 56u, 76u, 80u}) two[place] = static_cast<char>(two[place] + 24);
  dir.write("cache", two);
  EXPECT_EQ(paths_in_cache(dir / "cache", "libmany.so.1").size(), 2u);
  EXPECT_EQ(find("libmany.so.1"), dir / "a/libx.so.1");
}

}  // namespace
}  // namespace octavo
