// Manifests: every field, and everything that is refused before the library is touched.
#include "sdk/src/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

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
  EXPECT_EQ(m->library, dir / "acme.so");
  EXPECT_EQ(m->sha256, "");
  EXPECT_THAT(m->warnings, ElementsAre());
}

TEST_F(ManifestTest, library_as_a_table_with_a_hash) {
  const auto m = read(head() + "[library]\n" + platform_tuple() +
                      " = { file = \"acme.so\", sha256 = \"00ff\" }\nplan9-mips = \"x.so\"\n");
  ASSERT_TRUE(m) << verdicts[0].text;
  EXPECT_EQ(m->library, dir / "acme.so");
  EXPECT_EQ(m->sha256, "00ff");
  EXPECT_THAT(m->warnings, ElementsAre());
}

TEST_F(ManifestTest, library_in_a_folder_below_or_by_absolute_path) {
  dir.write("lib/acme.so", "");
  const auto below = read(head() + library("lib/acme.so"));
  ASSERT_TRUE(below) << verdicts[0].text;
  EXPECT_EQ(below->library, dir / "lib/acme.so");
  const test::TempDir other;
  const auto absolute = read(head() + library(other.write("acme.so", "")));
  ASSERT_TRUE(absolute) << verdicts[0].text;
  EXPECT_EQ(absolute->library, other / "acme.so");
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
  const std::string outside = std::filesystem::path(dir.path()).parent_path().string();
  EXPECT_EQ(refusal(head() + library("../x.so")),
            ": [library]: expected a file inside " + dir.path() + ", found " + outside + "/x.so");
  EXPECT_THAT(refusal(head() + library("a/../../x.so")), HasSubstr("expected a file inside"));
}

TEST_F(ManifestTest, symlink_that_escapes) {
  const test::TempDir other;
  std::filesystem::create_symlink(other.write("real.so", ""), dir / "link.so");
  EXPECT_EQ(refusal(head() + library("link.so")),
            ": [library]: expected a file inside " + dir.path() + ", found " + (other / "real.so"));
}

TEST_F(ManifestTest, missing_library) {
  EXPECT_EQ(refusal(head() + library("gone.so")),
            ": names " + (dir / "gone.so") +
                ", which does not exist or is no regular file; install the library beside its "
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
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, '#')), HasSubstr("at most 1 MiB of TOML"));
  verdicts.clear();
  EXPECT_FALSE(read_manifest(dir / "none.octavo-plugin.toml", verdicts));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_THAT(verdicts[0].text, HasSubstr("cannot be read: No such file or directory"));
}

}  // namespace
}  // namespace octavo
