// Manifests: every field, and everything that is refused before the library is touched.
#include "sdk/src/plugin/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// sha256 of "", from FIPS 180-2.
constexpr const char *kHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class ManifestTest : public testing::Test {
 protected:
  ManifestTest() { dir.write("acme.so", "not looked at here"); }

  static std::string head(const std::string &name = "acme") {
    return "manifest_version = 1\n[plugin]\nname = \"" + name +
           "\"\nversion = \"2.5\"\ndescription = \"does things\"\nvendor = \"Acme\"\n"
           "license = \"MIT\"\n[abi]\nmajor = 1\nminor = 0\n";
  }
  static std::string library(const std::string &file = "acme.so") {
    return std::string("[library]\n") + platform_tuple() + " = \"" + file + "\"\n";
  }
  std::optional<Manifest> read(const std::string &text,
                               const std::string &file = "acme.octavo-plugin.toml") {
    verdicts.clear();
    path = dir.write(file, text);
    return read_manifest(path, verdicts);
  }
  // The refusal's text without the path before it.
  std::string refusal(const std::string &text,
                      const std::string &file = "acme.octavo-plugin.toml") {
    if (read(text, file)) return "(accepted)";
    EXPECT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].level, uint32_t{OCTAVO_LEVEL_MANIFEST});
    EXPECT_EQ(verdicts[0].decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(verdicts[0].evidence, path);
    EXPECT_THAT(verdicts[0].text, StartsWith(path));
    return verdicts[0].text.substr(path.size());
  }

  test::TempDir dir;
  std::string path;
  std::vector<Verdict> verdicts;
};

TEST_F(ManifestTest, all_fields) {
  const auto m = read(head() + library());
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->path, path);
  EXPECT_EQ(m->name, "acme");
  EXPECT_EQ(m->version, "2.5");
  EXPECT_EQ(m->description, "does things");
  EXPECT_EQ(m->abi_major, 1);
  EXPECT_EQ(m->abi_minor, 0);
  EXPECT_EQ(m->built_minor, 0);
  EXPECT_EQ(m->vendor, "Acme");
  EXPECT_EQ(m->license, "MIT");
  EXPECT_EQ(m->text, head() + library());
  EXPECT_EQ(m->checked, nullptr);
  EXPECT_EQ(m->library, dir / "acme.so");
  EXPECT_EQ(m->sha256, "");
  EXPECT_THAT(m->warnings, ElementsAre());
}

TEST_F(ManifestTest, library_of_another_platform_is_named_once) {
  EXPECT_THAT(refusal(head() + "[library]\nplan9-pdp11 = { file = \"acme.so\", sha256 = \"" +
                      kHash + "\" }\n"),
              testing::EndsWith(", found plan9-pdp11"));
}

TEST_F(ManifestTest, library_below_a_file) {
  EXPECT_THAT(refusal(head() + library("acme.so/below.so")),
              HasSubstr("which does not exist or is not a regular file"));
}

TEST_F(ManifestTest, library_as_a_table_with_a_hash) {
  const auto m =
      read(head() + "[library]\n" + platform_tuple() + " = { file = \"acme.so\", sha256 = \"" +
           kHash + "\" }\nplan9-mips = \"x.so\"\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->library, dir / "acme.so");
  EXPECT_EQ(m->sha256, kHash);
  EXPECT_THAT(m->warnings, ElementsAre());
}

TEST_F(ManifestTest, library_in_a_folder_below) {
  dir.write("lib/acme.so", "");
  const auto below = read(head() + library("lib/acme.so"));
  ASSERT_TRUE(below) << verdicts[0].text;
  EXPECT_EQ(below->library, dir / "lib/acme.so");
}

TEST_F(ManifestTest, wrong_name) {
  EXPECT_EQ(refusal(head("other") + library()),
            ": [plugin] name: expected the name in the file name, \"acme\", found \"other\"");
}

TEST_F(ManifestTest, name_with_other_characters) {
  EXPECT_EQ(refusal(head("Acme") + library(), "Acme.octavo-plugin.toml"),
            ": [plugin] name: expected at most 64 characters of a-z 0-9 _ . -, found \"Acme\"");
  const std::string longest(64, 'a');
  EXPECT_TRUE(read(head(longest) + library(), longest + ".octavo-plugin.toml"));
  EXPECT_THAT(refusal(head(longest + "a") + library(), longest + "a.octavo-plugin.toml"),
              StartsWith(": [plugin] name: expected at most 64 characters"));
}

TEST_F(ManifestTest, file_name_without_the_suffix) {
  EXPECT_THAT(refusal(head() + library(), "a.toml"), StartsWith(": [plugin] name: expected"));
}

TEST_F(ManifestTest, wrong_version) {
  std::string text = head() + library();
  text.replace(text.find("= 1"), 3, "= 2");
  EXPECT_EQ(refusal(text), ": manifest_version: expected 1, found 2");
  EXPECT_EQ(refusal(text.substr(text.find("[plugin]"))),
            ": manifest_version: expected 1, found nothing");
}

TEST_F(ManifestTest, missing_values) {
  EXPECT_EQ(refusal("manifest_version = 1\n"), ": [plugin] name: expected a value, found nothing");
  EXPECT_EQ(refusal("manifest_version = 1\n[plugin]\nname = \"acme\"\n"),
            ": [plugin] version: expected a value, found nothing");
  EXPECT_EQ(refusal("manifest_version = 1\n[plugin]\nname = \"acme\"\nversion = \"1\"\n"),
            ": [abi] major: expected a value, found nothing");
}

TEST_F(ManifestTest, wrong_types) {
  EXPECT_EQ(refusal("manifest_version = \"1\"\n"),
            ":1:1: manifest_version: expected an integer, found a text");
  EXPECT_EQ(refusal("manifest_version = 1\n[plugin]\nname = 4\n"),
            ":3:1: plugin.name: expected a text, found an integer");
}

TEST_F(ManifestTest, no_library_for_this_platform) {
  EXPECT_EQ(refusal(head()), std::string(": [library]: expected a file for this platform, ") +
                                 platform_tuple() + " = \"acme.so\", found nothing");
  EXPECT_EQ(refusal(head() + "[library]\nplan9-mips = \"x.so\"\nhurd-ppc = \"y.so\"\n"),
            std::string(": [library]: expected a file for this platform, ") + platform_tuple() +
                " = \"acme.so\", found hurd-ppc and plan9-mips");
}

TEST_F(ManifestTest, path_that_escapes) {
  const std::string expected =
      ": [library]: expected a file inside the manifest's own directory, by a relative path "
      "without "
      "\"..\", found ";
  dir.write("acme.so", "");
  for (const std::string &file :
       {std::string("../x.so"), std::string("a/../../x.so"), std::string("a/../acme.so"),
        dir / "acme.so", std::string("/lib/x.so")})
    EXPECT_EQ(refusal(head() + library(file)), expected + file);
}

// They may come from anywhere, and end on a terminal.
TEST_F(ManifestTest, texts_are_data) {
  std::string text = head() + library();
  text.replace(text.find("MIT"), 3, "\\u001b[31mred\\nerror: forged");
  text.insert(text.find("[abi]"), "\"\\u009b\" = 1\n");
  const auto m = read(text);
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->license, "\\x1b[31mred\\nerror: forged");
  EXPECT_THAT(m->warnings, ElementsAre(HasSubstr("\\xc2\\x9b")));
  EXPECT_THAT(refusal(head() + library("\\u001b[2J/../x.so")), HasSubstr("\\x1b[2J/../x.so"));
}

TEST_F(ManifestTest, symlink_that_escapes) {
  const test::TempDir other;
  std::filesystem::create_symlink(other.write("real.so", ""), dir / "link.so");
  EXPECT_EQ(refusal(head() + library("link.so")),
            ": [library]: expected a file inside " + dir.path() + ", found " + (other / "real.so"));
}

TEST_F(ManifestTest, path_that_no_file_can_have) {
  const std::string name(300, 'x');
  EXPECT_EQ(
      refusal(head() + library(name)),
      ": [library]: expected a path that a file can have, found one that is too long: " + name);
}

TEST_F(ManifestTest, missing_library) {
  EXPECT_EQ(refusal(head() + library("gone.so")),
            ": names " + (dir / "gone.so") +
                ", which does not exist or is not a regular file; install the library next to its "
                "manifest");
  EXPECT_EQ(verdicts[0].reason, uint32_t{OCTAVO_REASON_LIBRARY});
}

TEST_F(ManifestTest, unknown_keys_are_mentioned) {
  const auto m = read(head() + library() + "[plugin.extra]\ncolour = \"red\"\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_THAT(m->warnings, ElementsAre("unknown key \"plugin.extra.colour\" in line 14"));
}

TEST_F(ManifestTest, requirement_that_is_not_understood) {
  EXPECT_EQ(refusal(head() + library() + "[requires]\nquantum_bits = 3\n"),
            ": [requires] requires.quantum_bits: not known to this version; a newer liboctavo is "
            "needed");
}

TEST_F(ManifestTest, malformed_and_missing_files) {
  EXPECT_THAT(refusal("manifest_version = \n"),
              testing::MatchesRegex(":1:[0-9]+: not valid TOML: .+"));
  EXPECT_EQ(refusal(std::string((64 << 10) + 1, '#')),
            ": expected at most 64 KiB, found a file of 65537 bytes");
  EXPECT_TRUE(read(head() + library() + "#" + std::string(60 << 10, 'x')));
  verdicts.clear();
  EXPECT_FALSE(read_manifest(dir / "none.octavo-plugin.toml", verdicts));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_THAT(verdicts[0].text, HasSubstr("cannot be read: No such file or directory"));
}

TEST_F(ManifestTest, everything_that_a_manifest_can_state) {
  const auto m = read(head() + "built_minor = 3\n" + library() +
                      "[requires]\nos = \"linux\"\narch = \"x86_64\"\nlibc = \"glibc-2.17\"\n"
                      "libraries = [\"libm.so.6\", \"libz.so.1\"]\n"
                      "[requires.accelerator]\nvendor = \"nvidia\"\nmin_arch = \"sm_89\"\n"
                      "min_driver = \"12.4\"\n"
                      "[provides]\nrecipes = [\"delayed\", \"mx\"]\n"
                      "encodings = \"float8_e4m3fn\"\ninterfaces = [\"octavo.backend/1\"]\n"
                      "[conformance]\nkit = \"0.1.0\"\nlevel = \"L2\"\nreport_sha256 = \"" +
                      kHash + "\"\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->built_minor, 3);
  EXPECT_EQ(m->requires_.os, "linux");
  EXPECT_EQ(m->requires_.arch, "x86_64");
  EXPECT_EQ(m->requires_.libc, "glibc-2.17");
  EXPECT_THAT(m->requires_.libraries, ElementsAre("libm.so.6", "libz.so.1"));
  EXPECT_EQ(m->requires_.gpu_vendor, "nvidia");
  EXPECT_EQ(m->requires_.min_arch, "sm_89");
  EXPECT_EQ(m->requires_.min_driver, "12.4");
  EXPECT_THAT(m->provides.recipes, ElementsAre("delayed", "mx"));
  EXPECT_THAT(m->provides.encodings, ElementsAre("float8_e4m3fn"));
  EXPECT_THAT(m->provides.interfaces, ElementsAre("octavo.backend/1"));
  EXPECT_EQ(m->conformance.kit, "0.1.0");
  EXPECT_EQ(m->conformance.level, "L2");
  EXPECT_EQ(m->conformance.report_sha256, kHash);
  EXPECT_THAT(m->warnings, ElementsAre());
}

TEST_F(ManifestTest, layers_state_the_devices_on_which_they_stand) {
  const auto m = read(head() + library() + "[kernels]\nover = [\"cpu\", \"npu\"]\n" +
                      "[requires]\nlayers = \"int8\"\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_THAT(m->kernels.over, ElementsAre("cpu", "npu"));
  EXPECT_TRUE(m->kernels.kind.empty());
  EXPECT_THAT(m->requires_.layers, ElementsAre("int8"));
  for (const char *lines : {"over = []", "over = [\"C P U\"]", "over = \"cpu\"\nkind = \"npu\"",
                            "over = \"cpu\"\ndevice_type = 1"})
    EXPECT_THAT(refusal(head() + library() + "[kernels]\n" + lines + "\n"),
                StartsWith(": [kernels] over: expected the kinds of devices that the layer"));
}

TEST_F(ManifestTest, kernels_state_the_device_that_they_serve) {
  const auto with = [](const std::string &lines) {
    return head() + library() + "[kernels]\n" + lines + "\n";
  };
  const auto m = read(with("kind = \"npu\"\ndevice_type = 12"));
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->kernels.kind, "npu");
  EXPECT_EQ(m->kernels.device_type, 12);
  EXPECT_TRUE(read(head() + library())->kernels.kind.empty());
  const std::pair<const char *, const char *> cases[] = {
      {"kind = \"npu\"", ": [kernels] device_type: expected the device's type in DLPack"},
      {"device_type = 12", ": [kernels] kind: expected the device's name for device.kind"},
      {"kind = \"auto\"\ndevice_type = 12", ": [kernels] kind: expected the device's name"},
      {"kind = \"N P U\"\ndevice_type = 12", ": [kernels] kind: expected the device's name"},
      {"kind = \"npu\"\ndevice_type = 0", ": [kernels] device_type: expected the device's type"},
      {"kind = \"npu\"\ndevice_type = 1", ": [kernels] device_type: expected 1 for kind \"cpu\""},
      {"kind = \"cpu\"\ndevice_type = 2", ": [kernels] device_type: expected 1 for kind \"cpu\""},
      {"kind = \"npu\"\ndevice_type = 4294967296", ": [kernels] device_type: expected the device"},
  };
  for (const auto &[lines, message] : cases)
    EXPECT_THAT(refusal(with(lines)), StartsWith(message)) << lines;
}

TEST_F(ManifestTest, hashes_are_64_digits) {
  const std::string table =
      std::string("[library]\n") + platform_tuple() + " = { file = \"acme.so\"";
  EXPECT_THAT(refusal(head() + table + ", sha256 = \"00ff\" }\n"),
              HasSubstr("sha256: expected 64 digits of lower-case hex, found \"00ff\""));
  std::string upper = kHash;
  upper[0] = 'E';
  EXPECT_THAT(refusal(head() + table + ", sha256 = \"" + upper + "\" }\n"),
              HasSubstr("sha256: expected 64 digits of lower-case hex"));
  EXPECT_THAT(refusal(head() + library() + "[conformance]\nreport_sha256 = \"1\"\n"),
              HasSubstr("report_sha256: expected 64 digits of lower-case hex, found \"1\""));
}

TEST_F(ManifestTest, built_minor_below_minor) {
  std::string text = head() + "built_minor = 1\n" + library();
  text.replace(text.find("minor = 0"), 9, "minor = 2");
  EXPECT_EQ(refusal(text), ": [abi] built_minor: expected at least minor, 2, found 1");
}

TEST_F(ManifestTest, misspelt_keys_name_the_nearest) {
  const auto n = read(head() + library() + "[provides]\nrecipies = [\"mx\"]\n");
  ASSERT_TRUE(n) << verdicts[0].text;
  EXPECT_THAT(n->warnings, ElementsAre("unknown key \"provides.recipies\" in line 14; did you mean "
                                       "\"provides.recipes\"?"));
}

TEST_F(ManifestTest, unknown_tables_and_keys_of_requires_are_refused) {
  EXPECT_EQ(
      refusal(head() + library() + "[requires.quantum]\n"),
      ": [requires] requires.quantum: not known to this version; a newer liboctavo is needed");
  EXPECT_THAT(refusal(head() + library() + "[requires]\ncpus = [\"avx2\"]\n"),
              HasSubstr("a newer liboctavo is needed; did you mean \"requires.cpu\"?"));
  EXPECT_TRUE(read(head() + library() + "[requires]\n[provides]\n[conformance]\n"));
}

TEST_F(ManifestTest, malformed_requirements) {
  const std::pair<const char *, const char *> cases[] = {
      {"libc = \"musl\"", "libc: expected \"glibc-<major>.<minor>\", found \"musl\""},
      {"libc = \"glibc-2\"", "libc: expected \"glibc-<major>.<minor>\", found \"glibc-2\""},
      {"libraries = [\"../x.so\"]",
       "libraries: expected names without a directory, found \"../x.so\""},
      {"libraries = [\"\"]", "libraries: expected names without a directory, found \"\""},
      {"cpu = [\"warp-drive\"]", "cpu: the feature \"warp-drive\" is not known to this version"},
      {"accelerator = { min_arch = \"sm_89\" }",
       "accelerator.vendor: expected \"nvidia\" with min_arch, min_driver and min_free_mib, "
       "found nothing"},
      {"accelerator = { vendor = \"amd\" }", "accelerator.vendor: expected \"nvidia\""},
      {"accelerator = { vendor = \"nvidia\", min_arch = \"8.9\" }",
       "accelerator.min_arch: expected a text like \"sm_89\", found \"8.9\""},
      {"accelerator = { vendor = \"nvidia\", min_arch = \"sm_9\" }", "accelerator.min_arch: "},
      {"accelerator = { vendor = \"nvidia\", min_free_mib = -1 }",
       "accelerator.min_free_mib: expected MiB, 0 or more, found -1"},
      {"accelerator = { vendor = \"nvidia\", min_driver = \"12\" }",
       "accelerator.min_driver: expected a CUDA version like \"12.4\", found \"12\""},
  };
  for (const auto &[line, message] : cases)
    EXPECT_THAT(refusal(head() + library() + "[requires]\n" + line + "\n"),
                StartsWith(std::string(": [requires] ") + message));
}

TEST_F(ManifestTest, too_many_keys_or_levels) {
  std::string text = head() + library() + "[extra]\n";
  for (int i = 0; i < 1030; ++i) text += "k" + std::to_string(i) + " = 1\n";
  EXPECT_THAT(refusal(text), StartsWith(": expected at most 1024 keys, found 10"));
  EXPECT_THAT(refusal(head() + library() + "[a.b.c.d]\ne = 1\n"),
              HasSubstr("a.b.c.d.e: expected at most 4 levels, found 5"));
}

TEST_F(ManifestTest, pipes_and_directories_are_no_manifests) {
  path = dir / "acme.octavo-plugin.toml";
  ASSERT_EQ(mkfifo(path.c_str(), 0644), 0);
  EXPECT_FALSE(read_manifest(path, verdicts));  // and does not wait for somebody to write
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].text, path + ": expected a regular file, found a FIFO");
  verdicts.clear();
  const std::string other = dir.make_directory("b.octavo-plugin.toml");
  EXPECT_FALSE(read_manifest(other, verdicts));
  EXPECT_EQ(verdicts[0].text, other + ": expected a regular file, found a directory");
}

TEST_F(ManifestTest, library_entries_of_other_forms) {
  const std::string tuple = platform_tuple();
  for (const std::string &odd :
       {"library = 3\n" + head(), head() + "[library." + tuple + ".file]\nx = \"acme.so\"\n",
        head() + "[library]\n", head() + "[library]\nplan9-mips = \"acme.so\"\n"})
    EXPECT_THAT(refusal(odd), HasSubstr("[library]: expected a file for this platform")) << odd;
  const auto m = read(head() + library() + "[library.plan9-mips]\nfile = \"a.so\"\n");
  ASSERT_TRUE(m);
  EXPECT_TRUE(m->warnings.empty());
  const auto other = read(head() + "[library]\n" + tuple + " = { file = \"acme.so\", size = 3 }\n");
  ASSERT_TRUE(other);
  ASSERT_EQ(other->warnings.size(), 1u);
  EXPECT_THAT(other->warnings[0], HasSubstr("unknown key \"library." + tuple + ".size\""));
}

TEST_F(ManifestTest, empty_tables) {
  const auto m = read(head() + library() + "[provides]\n[requires.accelerator]\n[extra]\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  ASSERT_EQ(m->warnings.size(), 1u);
  EXPECT_THAT(m->warnings[0], HasSubstr("unknown key \"extra\""));
  EXPECT_THAT(refusal(head() + library() + "[requires.magic]\n"),
              HasSubstr("[requires] requires.magic: not known to this version"));
}

TEST_F(ManifestTest, library_behind_links_without_end) {
  std::filesystem::remove(dir / "acme.so");
  std::filesystem::create_symlink("acme.so", dir / "acme.so");
  EXPECT_THAT(refusal(head() + library()), HasSubstr(": cannot be read: "));
}

TEST_F(ManifestTest, unknown_keys_of_every_kind) {
  const auto m = read(head() + library() + "[extra]\nday = 1979-05-27\nn = 3\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->warnings.size(), 2u);
}

TEST_F(ManifestTest, wrong_type_of_a_list) {
  EXPECT_THAT(refusal(head() + library() + "[requires]\ncpu = 3\n"),
              HasSubstr("requires.cpu: expected a list of texts, found an integer"));
  EXPECT_THAT(refusal("manifest_version = \"1\"\n"),
              HasSubstr("manifest_version: expected an integer, found a text"));
  EXPECT_THAT(refusal("manifest_version = 1\n[plugin]\nname = 3\n"),
              HasSubstr("plugin.name: expected a text, found an integer"));
}

}  // namespace
}  // namespace octavo
