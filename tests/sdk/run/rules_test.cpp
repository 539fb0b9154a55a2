// [[layers.rule]] in a run: which rule decides, what the backend is given, and what reports say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class RulesTest : public testing::Test {
 protected:
  octavo_status open(const std::string &toml, const std::string &backend = "fake") {
    put_fake(dir, "plugins");
    request.text("plugins.trust = \"dev\"\n" + toml)
        .set("fp8.backend", backend)
        .plugins(dir / "plugins");
    return request.open(run);
  }
  // A layer with a weight of its own.
  Answer add(const std::string &name) {
    const Answer weight = add_weight(run.get(), name + ".weight", 16, 16);
    return add_linear(run.get(), name, weight.id);
  }
  std::vector<std::string> warnings() const { return request.host.texts(OCTAVO_SEVERITY_WARNING); }
  // What the fake says of the options of single linears; those of the session come first.
  std::vector<std::string> linear_options() const {
    std::vector<std::string> all = request.host.texts(OCTAVO_SEVERITY_INFO);
    if (!all.empty()) all.erase(all.begin());
    return all;
  }
  std::string report(const std::string &format) {
    std::string out;
    EXPECT_EQ(octavo_report(run.get(), borrow(format), Request::append_line, &out), OCTAVO_OK);
    return out;
  }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
};

constexpr const char *kRules =
    "[[layers.rule]]\nmatch = [\"*.0.*\", \"tail\"]\nplace = \"host\"\n"
    "[[layers.rule]]\nmatch = \"*.mlp\"\nfp8.fake.count = 7\nfp8.fake.mode = \"fast\"\n"
    "[[layers.rule]]\nmatch = \"*.attn\"\nplace = \"fp8\"\n"
    "[[layers.rule]]\nmatch = \"*.same\"\nfp8.fake.count = 4\n";

TEST_F(RulesTest, the_first_rule_decides) {
  ASSERT_EQ(open(kRules), OCTAVO_OK) << request.host.error();
  const Answer host = add("h.0.mlp");
  EXPECT_EQ(host.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(host.verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
  EXPECT_EQ(text_of(host.verdict.text), "runs in the host: layers.rule.0 names it");
  EXPECT_EQ(text_of(host.verdict.evidence), "match = [\"*.0.*\", \"tail\"], octavo.toml:3:1");
  EXPECT_EQ(add("h.1.mlp").id, 0u);
  EXPECT_EQ(add("h.1.attn").id, 1u);
  EXPECT_EQ(add("h.1.same").id, 2u);  // equal to the session's: nothing differs
  EXPECT_EQ(add("last").id, 3u);
  EXPECT_THAT(linear_options(), ElementsAre("count=7 mode=fast"));
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  EXPECT_THAT(warnings(), ElementsAre("layers.rule.0.match: no layer or weight matches \"tail\""));
}

TEST_F(RulesTest, reports_name_the_rule_of_each_layer) {
  ASSERT_EQ(open(kRules), OCTAVO_OK) << request.host.error();
  for (const char *name : {"h.0.mlp", "h.1.mlp", "h.1.attn", "last"}) add(name);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  const json j = json::parse(report("json"));
  EXPECT_EQ(j["rules"].size(), 4u);
  EXPECT_EQ(j["rules"][1]["match"], json({"*.mlp"}));
  EXPECT_EQ(j["rules"][1]["options"]["count"]["origin"], "octavo.toml:7:10");
  EXPECT_EQ(j["layers"][0]["rule"],
            json({{"rule", "layers.rule.0"}, {"origin", "octavo.toml:3:1"}, {"place", "host"}}));
  EXPECT_EQ(j["layers"][0]["verdict"]["apply"],
            "replace line 4 of octavo.toml by `place = \"fp8\"`");
  EXPECT_EQ(j["layers"][1]["rule"]["options"]["mode"]["value"], "fast");
  EXPECT_FALSE(j["layers"][3].contains("rule"));
  const std::string text = report("text");
  EXPECT_THAT(text, HasSubstr("rule       layers.rule.1: *.mlp: count = 7, mode = \"fast\"  "
                              "(octavo.toml:6:1)\n"));
  EXPECT_THAT(text, HasSubstr("  h.1.mlp   [16, 16]      fp8   as you like; by layers.rule.1: "
                              "count = 7, mode = \"fast\"\n"));
  EXPECT_THAT(text, HasSubstr("as you like; by layers.rule.2: place = \"fp8\"\n"));
}

TEST_F(RulesTest, skip_comes_before_rules) {
  ASSERT_EQ(open("layers.skip = \"h.*\"\n[[layers.rule]]\nmatch = \"h.*\"\nplace = \"fp8\"\n"),
            OCTAVO_OK);
  EXPECT_EQ(text_of(add("h.1").verdict.text), "runs in the host: layers.skip names it");
}

TEST_F(RulesTest, min_gain_comes_after_rules) {
  ASSERT_EQ(open("layers.min_gain = \"torchao\"\n"
                 "[[layers.rule]]\nmatch = \"a\"\nplace = \"fp8\"\n"
                 "[[layers.rule]]\nmatch = \"b\"\nplace = \"host\"\n"),
            OCTAVO_OK);
  EXPECT_EQ(add("a").verdict.reason, uint32_t{OCTAVO_REASON_TOO_SMALL});
  EXPECT_EQ(add("b").verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
  const json j = json::parse(report("json"));
  EXPECT_FALSE(j["layers"][0].contains("rule"));
  EXPECT_EQ(j["layers"][1]["rule"]["rule"], "layers.rule.1");
}

TEST_F(RulesTest, a_variable_sets_the_session_and_not_the_rule) {
  environment.set("OCTAVO_FP8_FAKE_COUNT", "9");
  ASSERT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.fake.count = 7\n"), OCTAVO_OK);
  add("a");
  EXPECT_THAT(linear_options(), ElementsAre("count=7"));
  EXPECT_THAT(report("text"), HasSubstr("option     count = 9  (OCTAVO_FP8_FAKE_COUNT)\n"));
}

TEST_F(RulesTest, a_weight_that_a_rule_keeps_keeps_its_layers) {
  ASSERT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nplace = \"fp8\"\n"
                 "[[layers.rule]]\nmatch = \"*.weight\"\nplace = \"host\"\n"),
            OCTAVO_OK);
  EXPECT_EQ(text_of(add("a").verdict.text), "runs in the host: layers.rule.1 names it");
}

TEST_F(RulesTest, options_are_checked_as_those_of_the_session) {
  EXPECT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.fake.cuont = 1\n"), OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(),
            "octavo.toml:4:10: unknown key \"layers.rule.0.fp8.fake.cuont\"; did you mean "
            "\"layers.rule.0.fp8.fake.count\"?");
}

TEST_F(RulesTest, options_out_of_range_name_the_rule) {
  EXPECT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.fake.count = 0\n"), OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(),
            "octavo.toml:4:10: layers.rule.0.fp8.fake.count: expected at least 1, found 0");
}

TEST_F(RulesTest, a_backend_that_is_not_installed) {
  EXPECT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.fkae.count = 1\n"), OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(),
              HasSubstr("octavo.toml:4:10: table [layers.rule.0.fp8.fkae]: no backend \"fkae\" is "
                        "installed; did you mean [layers.rule.0.fp8.fake]?"));
}

TEST_F(RulesTest, the_hosts_own_options_stand_above_the_rule) {
  ASSERT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.fake.count = 7\nfp8.fake.ratio = 1\n"),
            OCTAVO_OK);
  add_weight(run.get(), "w", 16, 16);
  const std::string name = "count";
  octavo_option_value own{borrow(name), {}};
  own.value.type = OCTAVO_VALUE_INT;
  own.value.integer = 9;
  octavo_linear_desc d{};
  d.size = sizeof d;
  d.kind = OCTAVO_KIND_LINEAR_DESC;
  const std::string layer = "a";
  d.name = borrow(layer);
  d.options = &own;
  d.option_count = 1;
  uint32_t id = 0;
  ASSERT_EQ(octavo_add_linear(run.get(), &d, nullptr, &id), OCTAVO_OK);
  EXPECT_THAT(linear_options(), ElementsAre("count=9 ratio=1"));
  d.name = OCTAVO_STR("b");
  d.options = nullptr;
  EXPECT_EQ(octavo_add_linear(run.get(), &d, nullptr, &id), OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(), "linear \"b\": expected the address of 1 options, found null");
}

TEST_F(RulesTest, required_recipes_are_those_of_rules_too) {
  EXPECT_EQ(open("fp8.require.recipes = \"current\"\nfp8.te.recipe = \"current\"\n"
                 "[[layers.rule]]\nmatch = \"a\"\nfp8.te.recipe = \"block\"\n",
                 "te"),
            OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("backend te would run block"));
}

TEST_F(RulesTest, a_backend_without_options_for_linears_declines_by_name) {
  ASSERT_EQ(open("[[layers.rule]]\nmatch = \"a\"\nfp8.msamp.amax_history_len = 4\n", "msamp"),
            OCTAVO_OK)
      << request.host.error();
  const Answer a = add("a");
  EXPECT_EQ(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(a.verdict.reason, uint32_t{OCTAVO_REASON_OPTION});
  EXPECT_THAT(text_of(a.verdict.remedy), HasSubstr("in layers.rule.0: "));
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  EXPECT_THAT(
      warnings(),
      testing::Contains(HasSubstr("layers.rule.0: no layer runs in FP8 with its options; a: ")));
}

}  // namespace
}  // namespace octavo::test
