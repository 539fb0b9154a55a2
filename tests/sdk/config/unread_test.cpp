// Settings that nobody would read: refused, or a warning where machines may share a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/environment.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class Unread : public testing::Test {
 protected:
  // "" for a request that opens.
  std::string failure() {
    run.reset();
    const octavo_status status = request.open(run);
    if (status == OCTAVO_OK) return "";
    EXPECT_EQ(status, OCTAVO_INVALID);
    return request.host.error();
  }
  std::vector<std::string> warnings() { return request.host.texts(OCTAVO_SEVERITY_WARNING); }

  Environment environment;
  Request request;
  RunPtr run;
  std::deque<std::string> names;  // of what was added
};

struct Variable {
  const char *name;
  const char *words;
};

class UnreadVariable : public Unread, public testing::WithParamInterface<Variable> {};

TEST_P(UnreadVariable, is_refused_by_name) {
  ASSERT_EQ(failure(), "");
  environment.set(GetParam().name, "1");
  EXPECT_THAT(failure(), AllOf(HasSubstr(std::string("environment variable ") + GetParam().name),
                               HasSubstr(GetParam().words)));
}

INSTANTIATE_TEST_SUITE_P(
    All, UnreadVariable,
    testing::Values(Variable{"OCTAVO_MIXED_PRECISON", "did you mean OCTAVO_MIXED_PRECISION?"},
                    Variable{"OCTAVO_PLUGIN_DIR", "did you mean OCTAVO_PLUGIN_PATH?"},
                    Variable{"OCTAVO_LIBRARY_PATH", "did you mean OCTAVO_LIBRARY_DIR?"},
                    Variable{"OCTAVO_BACKEN", "did you mean OCTAVO_BACKEND?"},
                    Variable{"OCTAVO_CUDA_TUNED", "did you mean OCTAVO_CUDA_TUNE?"},
                    Variable{"OCTAVO_CUDA_GEMM_SM", "did you mean OCTAVO_CUDA_GEMM_SMS?"},
                    Variable{"OCTAVO_PLUGINS_PATH",
                             "no variable sets plugins.path; expected it in octavo.toml"},
                    Variable{"OCTAVO_PLUGINS_TRUST", "no variable sets plugins.trust"},
                    Variable{"OCTAVO_FP8_REQUIRE_NATIVE", "--set fp8.require.native=..."},
                    Variable{"OCTAVO_FP8_FALLBACK", "no variable sets fp8.fallback"},
                    Variable{"OCTAVO_LAYERS_SKIP", "no variable sets layers.skip"},
                    Variable{"OCTAVO_FP8_TEE_MARGIN",
                             "of an installed backend, found none of this name"},
                    Variable{"OCTAVO_FP8_TE_MARGN", "did you mean OCTAVO_FP8_TE_MARGIN?"}),
    [](const testing::TestParamInfo<Variable> &each) { return std::string(each.param.name); });

TEST_F(Unread, variables_of_others_are_theirs) {
  environment.set("OCTAVO_FP8_MSAMP_OPT_LEVEL", "O3");  // an installed backend that is not in use
  environment.set("OCTAVO_TORCH_ENV", "/nowhere");
  environment.set("OCTAVO_VECTORS", "/nowhere");
  environment.set("OCTAVO_PLUGIN_PATH", "");
  EXPECT_EQ(failure(), "");
}

TEST_F(Unread, protections_need_their_trust) {
  const std::string pin = "[plugins]\npins = [\"te:" + std::string(64, '0') + "\"]\n";
  request.text(pin);
  EXPECT_THAT(failure(),
              HasSubstr("plugins.pins: expected plugins.trust = \"pinned\", the only value "
                        "that reads them, found \"owner\" (default)"));
  request.text("[plugins]\nkeys = [\"some.pub\"]\ntrust = \"pinned\"\n");
  EXPECT_THAT(failure(), HasSubstr("plugins.keys: expected plugins.trust = \"signed\""));
  // Who overrides the trust of a shared file knows, and is told.
  request.text(pin + "trust = \"pinned\"\n").set("plugins.trust", "dev");
  EXPECT_EQ(failure(), "");
  EXPECT_THAT(warnings(), Contains(HasSubstr("plugins.pins: expected plugins.trust = \"pinned\"")));
}

TEST_F(Unread, a_precision_in_capitals_is_no_backend) {
  request.text("[fp8]\nfallback = [\"reference\", \"BF16\"]");
  EXPECT_THAT(failure(), HasSubstr("fp8.fallback: expected \"bf16\", found \"BF16\""));
}

TEST_F(Unread, names_that_nobody_has_are_warnings) {
  request.text("[fp8]\npreference = [\"tee\", \"te\", \"msampp\"]\nfallback = [\"nope-at-all\"]");
  EXPECT_EQ(failure(), "");
  const std::vector<std::string> expected = {
      "fp8.preference: no plugin \"tee\" is installed here; did you mean \"te\"?",
      "fp8.preference: no plugin \"msampp\" is installed here; did you mean \"msamp\"?",
      "fp8.fallback: no plugin \"nope-at-all\" is installed here"};
  EXPECT_EQ(warnings(), expected);
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
  for (const std::string &warning : expected) EXPECT_THAT(report, HasSubstr(warning));
}

TEST_F(Unread, patterns_without_a_layer_and_runs_without_fp8) {
  request.text("layers.skip = [\"head\", \"haed*\", \"weight_of_*\"]").set("fp8.backend", "te");
  ASSERT_EQ(failure(), "");
  const auto add = [this](const char *weight, const char *linear) {
    uint32_t id = 0;
    auto p = octavo_parameter_desc{};
    p.size = sizeof p;
    p.kind = OCTAVO_KIND_PARAMETER_DESC;
    p.name = borrow(names.emplace_back(weight));
    p.rows = p.cols = 16;
    p.dtype = p.gradient_dtype = OCTAVO_F32;
    p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    EXPECT_EQ(octavo_add_parameter(run.get(), &p, nullptr, &id), OCTAVO_OK);
    auto l = octavo_linear_desc{};
    l.size = sizeof l;
    l.kind = OCTAVO_KIND_LINEAR_DESC;
    l.name = borrow(names.emplace_back(linear));
    l.weight = id;
    EXPECT_EQ(octavo_add_linear(run.get(), &l, nullptr, &id), OCTAVO_OK);
    EXPECT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  };
  add("head_weight", "head");
  EXPECT_THAT(
      warnings(),
      ElementsAre("layers.skip: no layer or weight matches \"haed*\"",
                  "layers.skip: no layer or weight matches \"weight_of_*\"",
                  HasSubstr("no layer runs in FP8: 1 linear layers are not converted, head: ")));
  add("weight_of_body", "body");  // the second seal says nothing, and the report is up to date
  add("other", "another");
  EXPECT_THAT(warnings(), testing::SizeIs(3));
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
  EXPECT_THAT(report,
              AllOf(HasSubstr("matches \"haed*\""), testing::Not(HasSubstr("weight_of_*\"\n")),
                    testing::Not(HasSubstr("no layer runs in FP8"))));
}

}  // namespace
}  // namespace octavo::test
