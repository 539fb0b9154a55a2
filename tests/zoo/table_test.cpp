// Plugins whose tables are not what the contract says.
#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

class ZooTable : public Cage {
 protected:
  void expect_refusal_of_library(const std::string &text, const std::string &remedy) {
    expect_refusal(library() + ": " + text, library(), remedy);
  }
  static constexpr const char *kRebuild = "rebuild the plugin against this version's headers";
};

TEST_F(ZooTable, other_major_in_the_table) {
  put("abi_major");
  expect_refusal("the plugin needs ABI 2.0, this host has ABI 1.0", library(),
                 "install a build of the plugin for ABI major 1");
}

TEST_F(ZooTable, minor_that_is_too_new) {
  put("abi_minor");
  expect_refusal("the plugin needs ABI 1.7, this host has ABI 1.0", library(),
                 "upgrade liboctavo, or build the plugin with a lower OCTAVO_TARGET_MINOR");
}

TEST_F(ZooTable, manifest_states_another_major) {
  put("good");
  std::string text = fake_manifest();
  text.replace(text.find("major = 1"), 9, "major = 2");
  dir.write("plugins/fake.octavo-plugin.toml", text);
  expect_refusal("the manifest states ABI 2.0, this host has ABI 1.0", library(),
                 "install a build of the plugin for ABI major 1");
}

TEST_F(ZooTable, manifest_states_a_newer_minor) {
  put("good");
  std::string text = fake_manifest();
  text.replace(text.find("minor = 0"), 9, "minor = 3");
  dir.write("plugins/fake.octavo-plugin.toml", text);
  expect_refusal("the manifest states ABI 1.3, this host has ABI 1.0", library(),
                 "upgrade liboctavo, or build the plugin with a lower OCTAVO_TARGET_MINOR");
}

TEST_F(ZooTable, wrong_kind) {
  put("plugin_kind");
  expect_refusal_of_library(
      "its table is not an octavo_plugin: size 56, kind 4; expected size 56, kind 6", kRebuild);
}

TEST_F(ZooTable, too_small) {
  put("plugin_size");
  expect_refusal_of_library(
      "its table is not an octavo_plugin: size 48, kind 6; expected size 56, kind 6", kRebuild);
}

// Only the minor that it needs counts, not that of the headers which it was built with.
TEST_F(ZooTable, built_with_a_later_minor) {
  put("good");
  std::string text = fake_manifest();
  text.insert(text.find("minor = 0"), "built_minor = 7\n");
  dir.write("plugins/fake.octavo-plugin.toml", text);
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
}

TEST_F(ZooTable, null_get_interface) {
  put("null_get_interface");
  expect_refusal_of_library("its get_interface is null", kRebuild);
}

TEST_F(ZooTable, query_returns_an_error) {
  put("query_fails");
  expect_refusal(OCTAVO_PLUGIN_SYMBOL " answered status 7 and no table; this host has ABI 1.0",
                 library(), "install a build of the plugin for this host");
}

TEST_F(ZooTable, query_refuses_the_version) {
  put("query_version");
  expect_refusal(OCTAVO_PLUGIN_SYMBOL " answered status 4 and no table; this host has ABI 1.0",
                 library(), "install a build of the plugin for this host");
}

TEST_F(ZooTable, query_gives_no_table) {
  put("query_no_table");
  expect_refusal(OCTAVO_PLUGIN_SYMBOL " answered status 0 and no table; this host has ABI 1.0",
                 library(), "install a build of the plugin for this host");
}

TEST_F(ZooTable, id_differs_from_the_manifest) {
  put("other_id");
  expect_refusal_of_library("expected the id \"fake\" of its manifest, found \"imposter\"",
                            "reinstall the plugin: library and manifest do not belong together");
}

TEST_F(ZooTable, no_backend_interface) {
  put("no_backend");
  expect_refusal_of_library("expected the interface octavo.backend/1, found none",
                            "the plugin is not an FP8 backend for this host");
}

TEST_F(ZooTable, backend_table_of_another_kind) {
  put("backend_kind");
  expect_refusal_of_library(
      "expected the interface octavo.backend/1, found a table of another kind",
      "the plugin is not an FP8 backend for this host");
}

constexpr const char *kImplement =
    "implement what is missing; page abi lists the required functions";

TEST_F(ZooTable, without_a_required_function) {
  put("null_forward");
  expect_refusal_of_library(
      "the table of octavo.backend/1 lacks linear_forward, which every plugin "
      "with this interface must have",
      kImplement);
}

TEST_F(ZooTable, that_ends_before_a_required_function) {
  put("short_backend");
  expect_refusal_of_library(
      "the table of octavo.backend/1 lacks close_session, which every plugin "
      "with this interface must have",
      kImplement);
}

TEST_F(ZooTable, without_a_required_function_of_another_interface) {
  put("null_stage");
  expect_refusal_of_library(
      "the table of octavo.gradients/1 lacks run_stage, which every plugin with "
      "this interface must have",
      kImplement);
}

TEST_F(ZooTable, entry_that_refuses_this_minor) {
  put("target_minor");
  expect_refusal("the plugin needs ABI 1.7, this host has ABI 1.0", library(),
                 "upgrade liboctavo, or build the plugin with a lower OCTAVO_TARGET_MINOR");
}

class ZooStubs : public OpenCage {};

TEST_F(ZooStubs, functions_that_no_slot_needs) {
  request().set("plugins.probe", "never");
  open("null_functions");
  const octavo_backend *b = octavo_run_backend(run.get());
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->quantize_weight(octavo_run_session(run.get()), nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(b->end_step(octavo_run_session(run.get()), nullptr), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(b->linear_backward(octavo_run_session(run.get()), nullptr), OCTAVO_OK);
  model();
  EXPECT_EQ(octavo_seal(run.get()), OCTAVO_INTERNAL);
  EXPECT_EQ(
      host().error(),
      "backend fake: seal failed: slot 0 \"nonfinite\": has an access for end_step, which the "
      "backend's table lacks");
}

}  // namespace
}  // namespace octavo::test
