// [[layers.rule]]: what is read, and each fault with its exact message and remedy.
#include "sdk/src/config/layer_rules.h"

#include <gtest/gtest.h>

#include "sdk/src/config/remedy.h"
#include "tests/support/environment.h"
#include "tests/support/request.h"

namespace octavo {
namespace {

using test::Environment;
using test::Request;

class LayerRules : public testing::Test {
 protected:
  static Config read(const std::string &toml) { return load_config(Request().text(toml).desc()); }
  static void expect(const std::string &toml, const std::string &message,
                     const std::string &remedy) {
    try {
      read(toml);
      ADD_FAILURE() << "accepted: " << toml;
    } catch (const Failure &f) {
      EXPECT_EQ(f.text(), message) << toml;
      EXPECT_EQ(f.fix().question.empty() ? Source("octavo.toml", toml).apply(f.fix())
                                         : "? " + f.fix().question,
                remedy)
          << toml;
    }
  }
  Environment environment;
};

TEST_F(LayerRules, in_order_with_places_and_origins) {
  const Config c = read(
      "[[layers.rule]]\nmatch = \"*.mlp.*\"\nfp8.te.recipe = \"block\"\n"
      "[[layers.rule]]\nplace = \"host\"\nmatch = [\"*.0.*\", \"*.11.*\"]\n"
      "[[layers.rule]]\nmatch = \"*\"\n[layers.rule.fp8.te]\nmargin = 2\n[layers]\nskip = \"a\"\n");
  ASSERT_EQ(c.layer_rules.size(), 3u);
  EXPECT_EQ(c.layer_rules[0].key, "layers.rule.0");
  EXPECT_EQ(c.layer_rules[0].match.origin, "octavo.toml:2:1");
  EXPECT_FALSE(c.layer_rules[0].place);
  const Setting &recipe = options_for(c.layer_rules[0], "te").at("recipe");
  EXPECT_EQ(show(recipe.value) + " " + recipe.origin, "\"block\" octavo.toml:3:8");
  EXPECT_TRUE(options_for(c.layer_rules[0], "msamp").empty());
  EXPECT_TRUE(c.layer_rules[1].is_of_host());
  EXPECT_EQ(show(c.layer_rules[1].match.value), "[\"*.0.*\", \"*.11.*\"]");
  EXPECT_EQ(show(options_for(c.layer_rules[2], "te").at("margin").value), "2");
}

TEST_F(LayerRules, the_first_rule_decides_by_layer_or_weight) {
  const Config c = read(
      "[[layers.rule]]\nmatch = \"a*\"\nplace = \"fp8\"\n"
      "[[layers.rule]]\nmatch = [\"*.w\", \"ab\"]\nplace = \"host\"\n");
  EXPECT_EQ(rule_for(c.layer_rules, "ab", "x"), &c.layer_rules[0]);
  EXPECT_EQ(rule_for(c.layer_rules, "b", "b.w"), &c.layer_rules[1]);
  EXPECT_EQ(rule_for(c.layer_rules, "b", "c"), nullptr);
}

TEST_F(LayerRules, overrides_set_single_members) {
  Request r;
  r.text("[[layers.rule]]\nmatch = \"a\"\nplace = \"host\"\n")
      .set("layers.rule.0.match", "b")
      .set("layers.rule.1.match", "c")
      .set("layers.rule.1.fp8.te.margin", 3);
  const Config c = load_config(r.desc());
  ASSERT_EQ(c.layer_rules.size(), 2u);
  EXPECT_EQ(show(c.layer_rules[0].match.value), "[\"b\"]");
  EXPECT_EQ(c.layer_rules[0].match.origin, "override");
  EXPECT_EQ(show(options_for(c.layer_rules[1], "te").at("margin").value), "3");
}

TEST_F(LayerRules, what_is_no_rule) {
  const std::string ask = "? choose [[layers.rule]] for layers.rule, or remove the rule";
  expect(
      "[layers.rule]\nmatch = \"a\"",
      "octavo.toml:2:1: layers.rule: expected tables, each under [[layers.rule]], found a single "
      "table",
      ask);
  expect("layers.rule = \"a\"",
         "octavo.toml:1:8: layers.rule: expected tables, each under [[layers.rule]], found a text "
         "(\"a\")",
         ask);
  expect(
      "[[layers.rule]]\n",
      "octavo.toml:1:1: layers.rule.0: expected match, the patterns of the layers that it is for, "
      "found none",
      "? choose patterns of layer names, as \"*.mlp.*\", for layers.rule.0.match, or remove the "
      "rule");
  expect("[[layers.rule]]\nmacth = \"a\"",
         "octavo.toml:2:1: unknown key \"layers.rule.0.macth\"; did you mean "
         "\"layers.rule.0.match\"?",
         "replace line 2 of octavo.toml by `match = \"a\"`");
  expect("[[layers.rule]]\nmatch = \"a\"\nprecision = \"bf16\"",
         "octavo.toml:3:1: unknown key \"layers.rule.0.precision\"; a rule has match, place and "
         "fp8.<backend>.<option>",
         "delete line 3 of octavo.toml");
}

TEST_F(LayerRules, patterns) {
  const std::string ask =
      "? choose patterns of layer names, as \"*.mlp.*\", for layers.rule.0.match, or remove the "
      "rule";
  const std::string key = "octavo.toml:2:1: layers.rule.0.match: expected ";
  expect("[[layers.rule]]\nmatch = 3",
         key + "a pattern or a list of patterns, found an integer (3)", ask);
  expect("[[layers.rule]]\nmatch = [\"a\", 1]",
         key + "a pattern or a list of patterns, found a list with something other than text", ask);
  expect("[[layers.rule]]\nmatch = []", key + "patterns of layer or weight names, found none", ask);
  expect("[[layers.rule]]\nmatch = [\"a\", \"\"]",
         key + "patterns of layer or weight names, found an empty one", ask);
}

TEST_F(LayerRules, one_effect_each) {
  expect("[[layers.rule]]\nmatch = \"a\"",
         "octavo.toml:2:1: layers.rule.0: expected place or options of a backend "
         "(fp8.<backend>.<option>), found neither",
         "? choose a place or options for layers.rule.0, or remove the rule");
  expect("[[layers.rule]]\nmatch = \"a\"\nplace = \"fp8\"\nfp8.te.margin = 1",
         "octavo.toml:2:1: layers.rule.0: expected place or options of a backend "
         "(fp8.<backend>.<option>), found both",
         "? choose a place or options for layers.rule.0, or remove the rule");
  expect(
      "[[layers.rule]]\nmatch = \"a\"\nplace = \"hots\"",
      "octavo.toml:3:1: layers.rule.0.place: expected \"host\" or \"fp8\", found \"hots\"; did you "
      "mean \"host\"?",
      "replace line 3 of octavo.toml by `place = \"host\"`");
  expect(
      "[[layers.rule]]\nmatch = \"a\"\nplace = true",
      "octavo.toml:3:1: layers.rule.0.place: expected \"host\" or \"fp8\", found a boolean (true)",
      "? choose \"host\" or \"fp8\" for layers.rule.0.place, or remove the rule");
  const std::string option =
      ": expected an option of a backend, fp8.<backend>.<option>, found a text (\"te\")";
  expect("[[layers.rule]]\nmatch = \"a\"\nfp8.backend = \"te\"",
         "octavo.toml:3:5: layers.rule.0.fp8.backend" + option, "delete line 3 of octavo.toml");
  expect("[[layers.rule]]\nmatch = \"a\"\nfp8.require.speed = \"te\"",
         "octavo.toml:3:13: layers.rule.0.fp8.require.speed" + option,
         "delete line 3 of octavo.toml");
}

TEST_F(LayerRules, that_can_never_match) {
  const std::string first = "[[layers.rule]]\nmatch = [\"a\", \"*.b\"]\nplace = \"host\"\n";
  const std::string decides = " (octavo.toml:2:1) decides: the first rule that matches counts";
  expect(first + "[[layers.rule]]\nmatch = [\"c\", \"*.b\"]\nplace = \"fp8\"",
         "octavo.toml:5:1: layers.rule.1.match: expected patterns that no rule before has, found "
         "\"*.b\", and layers.rule.0" +
             decides,
         "replace line 5 of octavo.toml by `match = [\"c\"]`");
  expect(
      "[[layers.rule]]\nmatch = \"*\"\nplace = \"host\"\n[[layers.rule]]\nmatch = \"a\"\n"
      "place = \"fp8\"",
      "octavo.toml:5:1: layers.rule.1.match: expected patterns that no rule before has, found "
      "\"a\", and layers.rule.0" +
          decides,
      "? choose a place before layers.rule.0 for layers.rule.1, or remove the rule");
  expect("[[layers.rule]]\nmatch = [\"a\", \"a\"]\nplace = \"host\"",
         "octavo.toml:2:1: layers.rule.0.match: expected patterns that no rule before has, found "
         "\"a\", and layers.rule.0" +
             decides,
         "replace line 2 of octavo.toml by `match = [\"a\"]`");
}

TEST_F(LayerRules, numbers_of_overrides_have_no_gap) {
  try {
    load_config(
        Request().set("layers.rule.1.match", "a").set("layers.rule.1.place", "host").desc());
    ADD_FAILURE();
  } catch (const Failure &f) {
    EXPECT_EQ(
        f.text(),
        "override: layers.rule.1: expected rules that are numbered from 0 without a gap, found "
        "0 before it");
    EXPECT_EQ(f.fix().question, "choose the next number for layers.rule.1, or remove the rule");
  }
}

}  // namespace
}  // namespace octavo
