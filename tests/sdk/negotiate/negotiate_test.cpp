// What is chosen, what is refused and with which words; nothing is ever chosen that was not named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/draft/gradients.h"
#include "octavo/kernels.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Negotiate : public testing::Test {
 protected:
  Request &request() { return request_.set("plugins.trust", "dev"); }
  octavo_status open() { return request_.open(run); }
  std::string chosen() { return run ? text_of(octavo_run_backend_id(run.get())) : "(none)"; }
  std::string precision() { return run ? text_of(octavo_run_precision(run.get())) : "(none)"; }
  std::string error() { return request_.host.error(); }
  std::vector<std::string> warnings() { return request_.host.texts(OCTAVO_SEVERITY_WARNING); }

  Environment environment;
  TempDir dir;
  Request request_;
  RunPtr run;
};

TEST_F(Negotiate, auto_takes_te_by_default) {
  request();
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "te");
  EXPECT_EQ(precision(), "fp8");
  EXPECT_THAT(warnings(), ElementsAre());
}

TEST_F(Negotiate, a_required_recipe_is_compared_with_the_one_that_runs) {
  const std::string lines = "[fp8]\nbackend = \"te\"\nte.use_mxfp8_block_scaling = true\n";
  request().text(lines + "require.recipes = [\"delayed\"]\n");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("one of delayed is required, backend te would run mx"));
  request().text(lines + "require.recipes = [\"mx\"]\n");
  EXPECT_EQ(open(), OCTAVO_OK) << error();
}

TEST_F(Negotiate, a_reason_of_a_backend_that_accepts_is_a_warning) {
  request().text("[fp8]\nbackend = \"te\"\nte.recipe = \"mx\"\nte.fp8_format = \"HYBRID\"\n");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "te");
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("backend te: gradients in E5M2 with MX scales")));
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
  EXPECT_THAT(report, HasSubstr("gradients in E5M2 with MX scales"));
  EXPECT_THAT(report, HasSubstr("fp8.te.fp8_format = \"E4M3\""));
}

TEST_F(Negotiate, auto_follows_the_preference) {
  request().text("[fp8]\npreference = [\"reference\", \"te\"]");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "reference");
}

TEST_F(Negotiate, auto_goes_past_one_that_is_missing) {
  request().text("[fp8]\npreference = [\"msamp9\", \"reference\"]");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "reference");
}

TEST_F(Negotiate, auto_goes_past_one_that_declines) {
  put_fake(dir, "plugins", "check_declines");
  request().text("[fp8]\npreference = [\"fake\", \"te\"]").plugins(dir / "plugins");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "te");
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
  EXPECT_THAT(report, HasSubstr("session decline: the fake needs a full moon"));
}

TEST_F(Negotiate, a_recipe_named_as_a_backend) {
  // Next to a manifest that takes another one's place and cannot be read, and one without options.
  dir.write("reference.octavo-plugin.toml", "no manifest");
  dir.write("fake.octavo-plugin.toml", fake_manifest());
  request().set("fp8.backend", "block").plugins(dir.path());
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("remedy: \"block\" is a value of fp8.te.recipe: set fp8.backend = "
                                 "\"te\" and fp8.te.recipe = \"block\""));
}

TEST_F(Negotiate, named_backend_that_is_missing) {
  request().set("fp8.backend", "tte").plugins(dir.path());
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), StartsWith("tte: no backend \"tte\" is installed; found "));
  EXPECT_THAT(error(), HasSubstr("reference"));
  EXPECT_THAT(error(), HasSubstr("\n    found: looked for tte.octavo-plugin.toml in " + dir.path() +
                                 " (given by the host)"));
  EXPECT_THAT(error(), HasSubstr("octavo/plugins (next to liboctavo)"));
  EXPECT_THAT(error(), HasSubstr("\n    remedy: did you mean \"te\"?"));
  EXPECT_THAT(error(), HasSubstr("\n  fp8.fallback is empty, so nothing else was tried"));
}

TEST_F(Negotiate, nothing_falls_back_unless_it_is_named) {
  request().set("fp8.backend", "absent");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(warnings(), ElementsAre());
}

TEST_F(Negotiate, fallback_to_bf16_is_reported) {
  request().text("[fp8]\nbackend = \"absent\"\nfallback = [\"bf16\"]");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(precision(), "bf16");
  EXPECT_EQ(chosen(), "");
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
  EXPECT_THAT(report, HasSubstr("the host's own linears run in bf16; no FP8"));
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_THAT(warnings()[0], StartsWith("falling back to \"bf16\" as fp8.fallback permits: "));
  EXPECT_THAT(warnings()[0], HasSubstr("absent: no backend \"absent\" is installed"));
}

TEST_F(Negotiate, fallback_to_another_backend_is_reported) {
  request().text("[fp8]\nbackend = \"absent\"\nfallback = [\"te\", \"bf16\"]");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "te");
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_THAT(warnings()[0], StartsWith("falling back to \"te\" as fp8.fallback permits: "));
}

TEST_F(Negotiate, precision_is_no_backend) {
  request().set("fp8.backend", "bf16");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("bf16: no backend \"bf16\" is installed"));
}

TEST_F(Negotiate, other_precisions_keep_every_linear_in_the_host) {
  for (const char *wanted : {"no", "fp16", "bf16"}) {
    Request r;
    r.set("mixed_precision", wanted);
    RunPtr plain;
    ASSERT_EQ(r.open(plain), OCTAVO_OK) << r.host.error();
    EXPECT_EQ(text_of(octavo_run_precision(plain.get())), wanted);
    EXPECT_EQ(text_of(octavo_run_backend_id(plain.get())), "");
    EXPECT_EQ(octavo_run_backend(plain.get()), nullptr);
    EXPECT_EQ(static_cast<const octavo_optimizer *>(
                  octavo_run_interface(plain.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID))),
              nullptr);
    EXPECT_EQ(static_cast<const octavo_gradients *>(
                  octavo_run_interface(plain.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID))),
              nullptr);
    EXPECT_EQ(octavo_run_session(plain.get()), nullptr);
    EXPECT_EQ(octavo_run_session_desc(plain.get()), nullptr);
    const Answer w = add_weight(plain.get(), "w", 4, 8);
    EXPECT_EQ(w.status, OCTAVO_OK);
    EXPECT_EQ(w.id, 0u);
    const Answer l = add_linear(plain.get(), "l", w.id);
    EXPECT_EQ(l.status, OCTAVO_OK);
    EXPECT_EQ(l.id, OCTAVO_NONE);
    EXPECT_EQ(l.verdict.decision, uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(l.verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
    EXPECT_EQ(text_of(l.verdict.text), std::string("runs in the host: precision is ") + wanted);
    EXPECT_EQ(octavo_seal(plain.get()), OCTAVO_OK);
    EXPECT_EQ(octavo_run_slot_count(plain.get()), 0u);
    EXPECT_THAT(r.host.texts(OCTAVO_SEVERITY_WARNING), ElementsAre());
  }
}

TEST_F(Negotiate, cuda_is_refused_with_a_reason) {
  request().set("device.kind", "cuda");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), testing::AnyOf(
                           HasSubstr("te: kernels kernels-cuda: kernels-cuda requires an NVIDIA "),
                           HasSubstr("te: no kernels for cuda are installed")));
  EXPECT_THAT(error(), HasSubstr("remedy: set device.kind = \"cpu\" or \"auto\""));
}

TEST_F(Negotiate, device_of_the_caller_wins) {
  request().set("device.kind", "cuda");
  octavo_open_desc d = request_.desc();
  d.device.type = OCTAVO_DEVICE_CPU;
  octavo_run *raw = nullptr;
  ASSERT_EQ(octavo_open(&d, &raw), OCTAVO_OK) << error();
  run.reset(raw);
  EXPECT_EQ(octavo_run_session_desc(raw)->device.type, uint32_t{OCTAVO_DEVICE_CPU});
  d.device.type = 77;
  EXPECT_EQ(octavo_open(&d, &raw), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("no kernels for device type 77 are installed"));
}

TEST_F(Negotiate, deterministic_results_are_demanded_of_kernels_and_backend) {
  request();
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(octavo_run_session_desc(run.get())->flags, 0u);
  request().text("[fp8.require]\ndeterministic = true");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  const octavo_session_desc *desc = octavo_run_session_desc(run.get());
  EXPECT_EQ(desc->flags, uint64_t{OCTAVO_SESSION_DETERMINISTIC});
  EXPECT_NE(desc->caps->flags & OCTAVO_CAPS_DETERMINISTIC, 0u);
}

TEST_F(Negotiate, requirement_that_is_not_met_is_refused) {
  request().text("[fp8.require]\nnative = true");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("te: fp8.require.native: FP8 units are required, none are "
                                 "here\n    found: kernels cpu."));
  EXPECT_THAT(error(), HasSubstr("\n    remedy: set fp8.require.native = false, or run where the "
                                 "requirement is met\n"));
  std::string report;
  EXPECT_EQ(request_.print(octavo_explain, "text", report), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(report, HasSubstr("\n      apply: replace line 2 of octavo.toml by `native = false`\n"
                                "      reason: require, see page reasons#require\n"));
}

TEST_F(Negotiate, requirements_do_not_bind_a_fallback_to_another_precision) {
  request().text("[fp8]\nfallback = [\"bf16\"]\nrequire.native = true");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(precision(), "bf16");
}

TEST_F(Negotiate, empty_table_of_requirements_says_nothing) {
  request().text("[fp8.require]\n");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
}

TEST_F(Negotiate, kernels_that_cannot_be_opened_are_a_reason) {
  environment.set("OCTAVO_FORCE_KERNELS", "mmx");
  request();
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("OCTAVO_FORCE_KERNELS"));
  EXPECT_THAT(error(), HasSubstr("\n    remedy: run `unset OCTAVO_FORCE_KERNELS`"));
}

TEST_F(Negotiate, manifest_warnings_reach_the_host) {
  put_fake(dir, "plugins");
  dir.write("plugins/fake.octavo-plugin.toml", fake_manifest() + "[extra]\nx = 1\n");
  request().set("fp8.backend", "fake").plugins(dir / "plugins");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_THAT(warnings(), ElementsAre((dir / "plugins/fake.octavo-plugin.toml") +
                                      ": unknown key \"extra.x\" in line 12"));
}

TEST_F(Negotiate, misspelt_fallback_has_a_remedy) {
  request().text("[fp8]\nbackend = \"nothing_like_it\"\nfallback = [\"referense\", \"bf16x\"]");
  std::string out;
  EXPECT_EQ(request_.print(octavo_explain, "text", out), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(out, HasSubstr("did you mean \"reference\"?"));
  EXPECT_THAT(out, HasSubstr("fallback = [\"reference\", \"bf16x\"]"));
}

TEST_F(Negotiate, refusal_without_evidence_and_remedy) {
  put_fake(dir, "plugins", "check_silent");
  request().text("[fp8]\nbackend = \"fake\"").plugins(dir / "plugins");
  EXPECT_EQ(open(), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(error(), "fake: no\n  fp8.fallback is empty, so nothing else was tried");
}

TEST_F(Negotiate, empty_table_of_a_backend_that_is_not_installed) {
  request().text("[fp8.nothing_like_it]");
  EXPECT_EQ(open(), OCTAVO_INVALID);
  EXPECT_THAT(error(), StartsWith("octavo.toml: table [fp8.nothing_like_it]: no backend "));
}

TEST_F(Negotiate, backend_that_cannot_list_its_options) {
  put_fake(dir, "plugins", "list_options");
  request().text("[fp8]\nbackend = \"fake\"\nfallback = [\"te\"]").plugins(dir / "plugins");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(chosen(), "te");
  std::string out;
  EXPECT_EQ(request_.print(octavo_explain, "text", out), OCTAVO_OK);
  EXPECT_THAT(out, HasSubstr("backend fake: list_options failed with status 7"));
  EXPECT_THAT(out, HasSubstr("install a corrected build of the plugin"));
}

TEST_F(Negotiate, relative_search_path_is_ignored_with_a_warning) {
  request().set("fp8.backend", "te").plugins("here/plugins");
  ASSERT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_THAT(warnings(), ElementsAre(StartsWith("here/plugins (given by the host) is ignored: ")));
}

TEST_F(Negotiate, configuration_without_fp8_asks_nobody) {
  request().text("mixed_precision = \"bf16\"\n[fp8]\nbackend = \"nothing_like_it\"");
  std::string out;
  EXPECT_EQ(request_.print(octavo_check_config, "text", out), OCTAVO_OK);
  EXPECT_THAT(out, HasSubstr("nothing_like_it"));
}

// Each backend once, whichever list names it; precisions are no backends.
TEST_F(Negotiate, lock_of_lists_that_repeat) {
  put_fake(dir, "plugins");
  const std::string file =
      dir.write("octavo.toml",
                "[fp8]\npreference = [\"fake\", \"fake\"]\nfallback = [\"no\", \"fp16\", \"bf16\", "
                "\"fake\"]\n[plugins]\ntrust = \"dev\"\n");
  request_.path(file).plugins(dir / "plugins");
  const octavo_open_desc d = request_.desc();
  std::string out;
  ASSERT_EQ(octavo_lock(&d, Request::append_line, &out), OCTAVO_OK) << error();
  EXPECT_EQ(out.find("fake 1.2.3"), 0u);
  EXPECT_EQ(out.find("fake 1.2.3", 1), std::string::npos);
  EXPECT_THAT(warnings(), ElementsAre());
}

TEST_F(Negotiate, lock_without_what_cannot_be_loaded) {
  put_fake(dir, "plugins");
  request_.path(dir.write(
      "octavo.toml", "[fp8]\npreference = [\"absent\", \"fake\"]\n[plugins]\ntrust = \"dev\"\n"));
  request_.plugins(dir / "plugins");
  const octavo_open_desc d = request_.desc();
  std::string out;
  ASSERT_EQ(octavo_lock(&d, Request::append_line, &out), OCTAVO_OK) << error();
  EXPECT_EQ(out.find("fake 1.2.3"), 0u);
  EXPECT_THAT(warnings(), ElementsAre(StartsWith("absent is not locked: absent: no backend ")));
}

}  // namespace
}  // namespace octavo::test
