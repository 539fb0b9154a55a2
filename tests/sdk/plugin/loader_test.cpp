// The loader alone, without the checks that come before it.
#include "sdk/src/plugin/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "sdk/src/base/resource_unavailable.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/recording_host.h"

namespace octavo {
namespace {

using testing::HasSubstr;

class LoaderTest : public testing::Test {
 protected:
  LoaderTest() {
    manifest.name = "fake";
    manifest.abi_major = OCTAVO_ABI_MAJOR;
  }
  const LoadedPlugin *load(const std::string &fault, const octavo_host *host = nullptr) {
    // A name of its own for every copy, since an opened library stays.
    manifest.library = dir.copy(test::fake_library(fault), name_of(++copies_));
    verdicts.clear();
    return load_plugin(manifest, "a hash", host, verdicts);
  }
  void expect_refused(uint32_t reason, const std::string &stage, const std::string &words) {
    ASSERT_EQ(verdicts.size(), 1u);
    EXPECT_EQ(verdicts[0].reason, reason);
    EXPECT_EQ(stage_name(verdicts[0].stage), stage);
    EXPECT_THAT(verdicts[0].text, HasSubstr(words));
  }

  test::TempDir dir;
  Manifest manifest;
  std::vector<Verdict> verdicts;

 private:
  static std::string name_of(int copy) {
    std::string name = "plugins/fake_of_";
    return name.append(std::to_string(copy)).append(".so");
  }
  int copies_ = 0;
};

TEST_F(LoaderTest, gives_the_same_plugin_again) {
  const LoadedPlugin *first = load("good");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(load_plugin(manifest, "a hash", nullptr, verdicts), first);
  EXPECT_TRUE(opened_in_this_process(manifest.library));
  EXPECT_FALSE(opened_in_this_process(dir / "other.so"));
}

TEST_F(LoaderTest, manifests_of_other_versions) {
  for (const auto &[major, minor] : {std::pair(OCTAVO_ABI_MAJOR + 1, 0),
                                     {OCTAVO_ABI_MAJOR, OCTAVO_ABI_MINOR + 1},
                                     {OCTAVO_ABI_MAJOR, -1}}) {
    manifest.abi_major = major;
    manifest.abi_minor = minor;
    EXPECT_EQ(load("good"), nullptr);
    expect_refused(OCTAVO_REASON_ABI, "plugin", "the manifest states ABI ");
  }
}

TEST_F(LoaderTest, library_without_the_symbol) {
  EXPECT_EQ(load("no_symbol"), nullptr);
  expect_refused(OCTAVO_REASON_LIBRARY, "load",
                 "expected the symbol " OCTAVO_PLUGIN_SYMBOL ", found none");
}

TEST_F(LoaderTest, library_that_is_gone) {
  manifest.library = dir / "none.so";
  EXPECT_EQ(load_plugin(manifest, "a hash", nullptr, verdicts), nullptr);
  expect_refused(OCTAVO_REASON_LIBRARY, "load", "cannot be loaded: ");
}

TEST_F(LoaderTest, name_that_the_systems_loader_would_expand) {
  manifest.library = dir.copy(test::fake_library("good"), "$LIB/fake.so");
  EXPECT_EQ(load_plugin(manifest, "a hash", nullptr, verdicts), nullptr);
  expect_refused(OCTAVO_REASON_LIBRARY, "load", "cannot be opened by its path");
}

// A verdict would be remembered as the plugin's fault.
TEST_F(LoaderTest, no_descriptor_is_left) {
  manifest.library = dir.copy(test::fake_library("good"), "full/fake.so");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(load_plugin(manifest, "a hash", nullptr, verdicts), ResourceUnavailable);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(verdicts, testing::IsEmpty());
  EXPECT_NE(load_plugin(manifest, "a hash", nullptr, verdicts), nullptr);
}

TEST_F(LoaderTest, status_beside_a_table) {
  EXPECT_EQ(load("query_both"), nullptr);
  expect_refused(OCTAVO_REASON_LIBRARY, "plugin",
                 OCTAVO_PLUGIN_SYMBOL " answered status 7; this host has ABI ");
}

TEST_F(LoaderTest, another_file_than_the_checked_one) {
  manifest.checked = std::make_shared<const CheckedFile>(dir.write("other", "x"), "test");
  EXPECT_EQ(load("good"), nullptr);
  expect_refused(OCTAVO_REASON_TRUST, "load", "expected the mapping of the checked file");
}

// Messages of a plugin while it is asked go to the host that asks, if it takes them.
TEST_F(LoaderTest, diagnostics_of_the_handshake) {
  EXPECT_NE(load("query_speaks"), nullptr);
  octavo_host deaf{};
  EXPECT_NE(load("query_speaks", &deaf), nullptr);
  const test::RecordingHost host;
  EXPECT_NE(load("query_speaks", host.get()), nullptr);
  EXPECT_THAT(host.texts(OCTAVO_SEVERITY_INFO), testing::ElementsAre("asked"));
}

}  // namespace
}  // namespace octavo
