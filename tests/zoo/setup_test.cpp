// Plugins that load and then fail while they are asked or set up.
#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

class ZooSetup : public OpenCage {
 protected:
  // Without the helper, which finds the same.
  void expect_open_fails(octavo_status status, const std::string &error) {
    request().set("plugins.probe", "never");
    EXPECT_EQ(request().open(run), status);
    EXPECT_EQ(run, nullptr);
    EXPECT_EQ(host().error(), error);
  }
};

TEST_F(ZooSetup, list_options_fails) {
  put("list_options");
  expect_refusal("backend fake: list_options failed with status 7; this is a defect of the plugin",
                 library(), "install a corrected build of the plugin");
}

TEST_F(ZooSetup, option_without_a_name) {
  put("nameless_option");
  expect_refusal("backend fake: list_options failed with status 2; this is a defect of the plugin",
                 library(), "install a corrected build of the plugin");
}

TEST_F(ZooSetup, broken_options_do_not_stop_the_next_candidate) {
  put("list_options");
  request().set("fp8.backend", "auto").text("[fp8]\npreference = [\"fake\", \"reference\"]");
  ASSERT_EQ(request().open(run), OCTAVO_UNSUPPORTED);  // request() asks for the fake again
  Request both;
  both.text("[fp8]\npreference = [\"fake\", \"reference\"]\n[plugins]\ntrust = \"dev\"")
      .plugins(dir / "plugins");
  ASSERT_EQ(both.open(run), OCTAVO_OK) << both.host.error();
  EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "reference");
}

// A configuration is checked without the plugin, so that a broken one is no matter.
TEST_F(ZooSetup, options_that_a_plugin_cannot_list_are_not_checked) {
  put("list_options");
  const std::string start = "fp8.backend = \"fake\"\nplugins.trust = \"dev\"\n";
  Request named, with_table;
  named.text(start).plugins(dir / "plugins");
  with_table.text(start + "fp8.fake.window = 16\n").plugins(dir / "plugins");
  std::string out;
  EXPECT_EQ(named.print(octavo_check_config, "text", out), OCTAVO_OK) << named.host.error();
  EXPECT_EQ(with_table.print(octavo_check_config, "text", out), OCTAVO_OK);
  EXPECT_THAT(out, testing::HasSubstr("warning: the options of backend fake, such as "
                                      "fp8.fake.window (octavo.toml:3:10), were not checked: "));
}

TEST_F(ZooSetup, check_session_declines_with_a_reason) {
  put("check_declines");
  expect_refusal("the fake needs a full moon", "waning crescent", "wait two weeks");
}

TEST_F(ZooSetup, check_session_fails) {
  put("check_fails");
  expect_refusal("check_session failed with status 7", "", "see the diagnostics of the plugin");
}

TEST_F(ZooSetup, check_session_gives_no_verdict) {
  put("check_no_verdict");
  expect_refusal("check_session gave no verdict; expected one or more", "",
                 "install a corrected build of the plugin");
}

TEST_F(ZooSetup, check_session_gives_an_unknown_decision) {
  put("check_decision");
  expect_refusal(
      "the plugin answered decision 7; expected 0 (decline), 1 (accept) or 2 (accept emulated)",
      "the fake accepts everything", "install a corrected build of the plugin");
}

TEST_F(ZooSetup, parameter_with_an_unknown_decision) {
  request().set("plugins.probe", "never");
  open("parameter_decision");
  uint32_t id = 5;
  EXPECT_EQ(add_weight("w", &id), OCTAVO_INTERNAL);
  EXPECT_EQ(host().error(),
            "backend fake gave parameter \"w\" the decision 7; expected 0 (decline), 1 "
            "(accept) or 2 (accept emulated)");
  EXPECT_EQ(octavo_seal(run.get()), OCTAVO_WRONG_STATE);
}

TEST_F(ZooSetup, open_session_fails) {
  put("open_fails");
  expect_open_fails(OCTAVO_NO_RESOURCE,
                    "backend fake accepted the session and then failed to open it: status 6");
}

TEST_F(ZooSetup, open_session_gives_nothing) {
  put("open_null");
  expect_open_fails(OCTAVO_INTERNAL,
                    "backend fake accepted the session and then failed to open it: status 0");
}

TEST_F(ZooSetup, parameter_id_out_of_order) {
  request().set("plugins.probe", "never");
  open("parameter_id");
  uint32_t id = 0;
  EXPECT_EQ(add_weight("w", &id), OCTAVO_INTERNAL);
  EXPECT_EQ(host().error(), "backend fake gave parameter \"w\" id 3, expected 0");
  EXPECT_EQ(octavo_seal(run.get()), OCTAVO_WRONG_STATE);
  EXPECT_EQ(host().error(),
            "backend fake: an earlier call broke the session; close the run and correct the "
            "plugin");
}

TEST_F(ZooSetup, linear_id_out_of_order) {
  request().set("plugins.probe", "never");
  open("linear_id");
  uint32_t weight = 9, id = 0;
  ASSERT_EQ(add_weight("w", &weight), OCTAVO_OK);
  EXPECT_EQ(add_linear("a", weight, &id), OCTAVO_INTERNAL);
  EXPECT_EQ(host().error(), "backend fake gave linear \"a\" id 3, expected 0");
  EXPECT_EQ(octavo_seal(run.get()), OCTAVO_WRONG_STATE);
  EXPECT_EQ(host().error(),
            "backend fake: an earlier call broke the session; close the run and correct the "
            "plugin");
}

TEST_F(ZooSetup, declined_parameter_uses_up_no_id) {
  open("parameter_declines");
  uint32_t id = 5;
  EXPECT_EQ(add_weight("w", &id), OCTAVO_OK);
  EXPECT_EQ(id, OCTAVO_NONE);
  uint32_t linear = 5;
  EXPECT_EQ(add_linear("a", 0, &linear), OCTAVO_INVALID);
  EXPECT_EQ(host().error(), "linear \"a\": expected a parameter id below 0, found 0");
}

}  // namespace
}  // namespace octavo::test
