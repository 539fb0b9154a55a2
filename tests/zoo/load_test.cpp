// Libraries that cannot be opened, or that hold no entry.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ZooLoad : public Cage {
 protected:
  void expect_unloadable(const std::string &problem) {
    expect_refusal(library() + ": cannot be loaded: " + problem, library(),
                   "install what is missing, or reinstall the plugin");
  }
  void put_file(const std::string &content) {
    dir.write("plugins/fake.so", content);
    dir.write("plugins/fake.octavo-plugin.toml", fake_manifest());
  }
};

TEST_F(ZooLoad, good_plugin_opens) {
  put("good");
  RunPtr run;
  ASSERT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
  EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "fake");
  EXPECT_EQ(text_of(octavo_run_precision(run.get())), "fp8");
}

TEST_F(ZooLoad, library_without_the_symbol) {
  put("no_symbol");
  expect_refusal(library() + ": expected the symbol " OCTAVO_PLUGIN_SYMBOL ", found none",
                 library(),
                 "the file is not an Octavo plugin, or hides its entry: declare it OCTAVO_EXPORT");
}

TEST_F(ZooLoad, symbol_of_another_major) {
  put("symbol_v2");
  expect_refusal(library() +
                     ": exports octavo_plugin_query_2, built for ABI major 2; this host has ABI "
                     "1.0 and looks for " OCTAVO_PLUGIN_SYMBOL,
                 library(), "install a build of the plugin for ABI major 1");
}

TEST_F(ZooLoad, symbol_of_a_release_candidate) {
  put("symbol_candidate");
  expect_refusal(library() +
                     ": exports octavo_plugin_query_v1, built for a release candidate; this host "
                     "has ABI 1.0 and looks for " OCTAVO_PLUGIN_SYMBOL,
                 library(), "rebuild the plugin with the headers of this liboctavo");
}

TEST_F(ZooLoad, undefined_symbol_is_found_at_load) {
  put("undefined_symbol");
  // The system's own words follow after the part that is ours, so only that part is exact.
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  const std::string error = request().host.error();
  EXPECT_THAT(error, StartsWith("fake: " + library() + ": cannot be loaded: "));
  EXPECT_THAT(error, HasSubstr("octavo_fake_defined_nowhere"));
  EXPECT_THAT(error, HasSubstr("\n    remedy: install what is missing, or reinstall the plugin"));
}

// The helper has the symbol, and so has this program; a host in C has it not.
TEST_F(ZooLoad, symbol_that_the_process_happens_to_have) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's functions are the program's";
#endif
  put("borrowed_symbol");
  expect_refusal(library() +
                     ": cannot be loaded: undefined symbol: _Znwm, which is in none of the "
                     "libraries that it needs",
                 library(), "link the plugin to the library that has the symbol, and rebuild it");
}

TEST_F(ZooLoad, text_file_named_so) {
  put_file("This is no library.\n");
  expect_unloadable("expected an ELF shared library, found another file of 20 bytes");
}

TEST_F(ZooLoad, empty_file) {
  put_file("");
  expect_unloadable("expected an ELF shared library, found another file of 0 bytes");
}

TEST_F(ZooLoad, truncated_library) {
  const std::string whole = read_text(fake_library("good"));
  ASSERT_GT(whole.size(), 2000u);
  put_file(whole.substr(0, 1000));
  expect_unloadable("the file is truncated: its headers name more than its 1000 bytes");
}

// Cut behind the file header, and in the middle: mapping either would end the process.
TEST_F(ZooLoad, every_truncation_is_survived) {
  const std::string whole = read_text(fake_library("good"));
  for (size_t size : {size_t{64}, size_t{65}, size_t{4096}, whole.size() / 4}) {
    put_file(whole.substr(0, size));
    RunPtr run;
    EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED) << size;
    EXPECT_THAT(request().host.error(),
                HasSubstr("truncated: its headers name more than its " + std::to_string(size)));
  }
}

TEST_F(ZooLoad, library_for_another_processor) {
  std::string bytes = read_text(fake_library("good"));
  ASSERT_GT(bytes.size(), 20u);
  bytes[18] = static_cast<char>(0x08);  // e_machine: MIPS
  bytes[19] = 0;
  put_file(bytes);
  const std::string own = std::string(kTuple) == "linux-x86_64" ? "x86-64" : "aarch64";
  expect_unloadable("expected a library for this processor, 64-bit " + own +
                    ", found one for 64-bit ELF machine 8");
}

TEST_F(ZooLoad, object_file_named_so) {
  std::string bytes = read_text(fake_library("good"));
  bytes[16] = 1;  // e_type: relocatable
  put_file(bytes);
  expect_unloadable("expected a shared library (ELF type 3), found type 1");
}

TEST_F(ZooLoad, replaced_after_it_was_opened) {
  put("good");
  RunPtr run;
  ASSERT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
  // Another file under the same name, as an installer puts it there.
  dir.copy(fake_library("other_id"), "plugins/new.so");
  std::filesystem::rename(dir / "plugins/new.so", library());
  expect_refusal(
      library() + ": was replaced after this process opened it, and an opened library stays",
      library(), "start the process again");
}

TEST_F(ZooLoad, repaired_after_it_could_not_be_opened) {
  put_file("This is no library.\n");
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  put("good");
  EXPECT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
}

// A hard link is the same file, so both names give one instance; a copy is another plugin.
TEST_F(ZooLoad, one_file_under_two_names_is_loaded_once) {
  put("good");
  dir.make_directory("linked");
  dir.write("linked/fake.octavo-plugin.toml", fake_manifest());
  std::filesystem::create_hard_link(library(), dir / "linked/fake.so");
  put_fake(dir, "copied");
  RunPtr runs[3];
  const char *const places[] = {"plugins", "linked", "copied"};
  for (int i = 0; i < 3; ++i) {
    Request own;
    own.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / places[i]);
    ASSERT_EQ(own.open(runs[i]), OCTAVO_OK) << own.host.error();
  }
  const auto forward = [&](int i) { return octavo_run_backend(runs[i].get())->linear_forward; };
  EXPECT_EQ(forward(0), forward(1));
  EXPECT_NE(forward(0), forward(2));
}

// The files of other systems, as far as their headers tell.
TEST_F(ZooLoad, libraries_of_other_systems) {
  std::string elf32 = std::string(
                          "\x7f"
                          "ELF\1\1\1",
                          7) +
                      std::string(200, '\0');
  elf32[16] = 3;
  elf32[18] = 3;  // i386
  put_file(elf32);
  const bool is_x86 = std::string(kTuple) == "linux-x86_64";
  const std::string own = is_x86 ? "x86-64" : "aarch64", foreign = is_x86 ? "aarch64" : "x86-64";
  expect_unloadable("expected a library for this processor, 64-bit " + own +
                    ", found one for 32-bit x86");
  std::string other = read_text(fake_library("good"));
  other[18] = static_cast<char>(is_x86 ? 183 : 62);
  put_file(other);
  expect_unloadable("expected a library for this processor, 64-bit " + own +
                    ", found one for 64-bit " + foreign);
  put_file("MZ" + std::string(254, '\0'));  // Windows
  expect_unloadable("expected an ELF shared library, found another file of 256 bytes");
  put_file("\xcf\xfa\xed\xfe" + std::string(252, '\0'));  // macOS
  expect_unloadable("expected an ELF shared library, found another file of 256 bytes");
}

// In place, as a careless installer does it: the loaded one is mapped privately, its pages may
// change under it all the same, so the process goes on with what it has and opens nothing new.
TEST_F(ZooLoad, written_to_after_it_was_opened) {
  put("good");
  RunPtr run;
  ASSERT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
  std::ofstream(library(), std::ios::binary | std::ios::app) << "more";
  expect_refusal(
      library() + ": was replaced after this process opened it, and an opened library stays",
      library(), "start the process again");
  EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "fake");
}

TEST_F(ZooLoad, unreadable_library) {
  put("good");
  ASSERT_EQ(chmod(library().c_str(), 0), 0);
  if (geteuid() == 0) GTEST_SKIP() << "root reads files of every mode";
  expect_unloadable("it cannot be read; check its permissions");
}

}  // namespace
}  // namespace octavo::test
