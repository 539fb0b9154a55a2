// Reports: JSON that parses, and the same facts as text and as a tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
  }
  std::string print(Request::Report function, const std::string &format,
                    octavo_status expected = OCTAVO_OK) {
    std::string out;
    EXPECT_EQ(request.print(function, format, out), expected) << request.host.error();
    return out;
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

TEST_F(ReportTest, explain_as_json) {
  request.set("fp8.fake.count", 2);
  const json j = json::parse(print(octavo_explain, "json"));
  EXPECT_EQ(j["octavo"], text_of(octavo_version()));
  EXPECT_EQ(j["wanted"]["mixed_precision"], "fp8");
  EXPECT_EQ(j["wanted"]["backend"], "fake");
  EXPECT_EQ(j["runs"], "fp8");
  const json &b = j["backend"];
  EXPECT_EQ(b["id"], "fake");
  EXPECT_EQ(b["version"], "1.2.3");
  EXPECT_EQ(b["abi"], "1.0");
  EXPECT_EQ(b["library"], dir / "plugins/fake.so");
  EXPECT_THAT(b["sha256"].get<std::string>(), testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(j["options"]["count"]["value"], 2);
  EXPECT_EQ(j["options"]["count"]["origin"], "override");
  EXPECT_EQ(j["options"]["mode"]["origin"], "default");
  ASSERT_EQ(j["candidates"].size(), 1u);
  const json &c = j["candidates"][0];
  EXPECT_EQ(c["chosen"], true);
  EXPECT_EQ(c["manifest"], dir / "plugins/fake.octavo-plugin.toml");
  EXPECT_EQ(c["found"], "given by the host");
  EXPECT_EQ(c["verdicts"][0]["level"], "session");
  EXPECT_EQ(c["verdicts"][0]["decision"], "accept");
  EXPECT_FALSE(j.contains("layers"));
}

TEST_F(ReportTest, explain_of_a_refusal_has_the_reasons) {
  put_fake(dir, "plugins", "check_declines");
  const json j = json::parse(print(octavo_explain, "json", OCTAVO_UNSUPPORTED));
  EXPECT_TRUE(j["runs"].is_null());
  EXPECT_FALSE(j.contains("backend"));
  const json &v = j["candidates"][0]["verdicts"][0];
  EXPECT_EQ(v["decision"], "decline");
  EXPECT_EQ(v["reason"], "device");
  EXPECT_EQ(v["text"], "the fake needs a full moon");
  EXPECT_EQ(v["evidence"], "waning crescent");
  EXPECT_EQ(v["remedy"], "wait two weeks");
  EXPECT_THAT(print(octavo_explain, "text", OCTAVO_UNSUPPORTED), HasSubstr("runs       nothing\n"));
}

TEST_F(ReportTest, explain_as_text_and_tree_names_what_json_names) {
  const json j = json::parse(print(octavo_explain, "json"));
  const std::string text = print(octavo_explain, "text");
  EXPECT_THAT(text, HasSubstr("backend    fake 1.2.3, ABI 1.0\n"));
  EXPECT_THAT(text, HasSubstr("library    " + (dir / "plugins/fake.so") + "\n"));
  EXPECT_THAT(text, HasSubstr("sha256     " + j["backend"]["sha256"].get<std::string>() + "\n"));
  EXPECT_THAT(text, HasSubstr("  fake  <- chosen\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("option     count = 4")));
  EXPECT_THAT(text, HasSubstr(" more have their defaults; octavo config show prints all\n"));
  EXPECT_EQ(print(octavo_explain, ""), text);  // no format: text
  const std::string tree = print(octavo_explain, "tree");
  EXPECT_THAT(tree, HasSubstr("├─ backend\n│  ├─ id: fake\n"));
  EXPECT_THAT(tree, HasSubstr("library: " + (dir / "plugins/fake.so") + "\n"));
  EXPECT_THAT(tree, HasSubstr("└─ candidates\n"));
}

TEST_F(ReportTest, report_lists_every_layer_with_its_verdict) {
  request.text("layers.skip = [\"*head*\"]");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  add_weight(run.get(), "w", 4, 8);
  add_weight(run.get(), "u", 2, 3);
  add_linear(run.get(), "fc", 0);
  add_linear(run.get(), "lm_head", 1);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  const json j = json::parse(report("json"));
  ASSERT_EQ(j["layers"].size(), 2u);
  EXPECT_EQ(j["layers"][0]["name"], "fc");
  EXPECT_EQ(j["layers"][0]["shape"], json({4, 8}));
  EXPECT_EQ(j["layers"][0]["placed"], "fp8");
  EXPECT_EQ(j["layers"][0]["verdict"]["decision"], "accept");
  EXPECT_EQ(j["layers"][1]["name"], "lm_head");
  EXPECT_EQ(j["layers"][1]["placed"], "host");
  EXPECT_EQ(j["layers"][1]["verdict"]["reason"], "policy");
  EXPECT_EQ(j["layers"][1]["verdict"]["evidence"], "pattern \"*head*\", octavo.toml:1:8");
  EXPECT_EQ(j["slot_bytes"]["nonfinite"], 4);
  EXPECT_EQ(j["slot_bytes"]["counter"], 48);
  EXPECT_EQ(j["slot_bytes"]["weight_cache"], 32 + 6);
  EXPECT_EQ(j["slot_bytes"]["amax"], 4);
  const std::string text = report("text");
  EXPECT_THAT(text, HasSubstr("  fc       [4, 8]        fp8   as you like\n"));
  EXPECT_THAT(text, HasSubstr("  lm_head  [2, 3]        host  runs in the host: layers.skip names "
                              "it (pattern \"*head*\", octavo.toml:1:8)\n"));
}

TEST_F(ReportTest, names_that_are_not_utf8_do_not_break_a_report) {
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  add_weight(run.get(), "w", 4, 8);
  add_linear(run.get(), "fc\xff", 0);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  EXPECT_EQ(json::parse(report("json"))["layers"][0]["name"], "fc\xEF\xBF\xBD");
  EXPECT_THAT(report("text"), HasSubstr("fc\\xff"));
  EXPECT_THAT(report("tree"), HasSubstr("fc\\xff"));
}

TEST_F(ReportTest, list_names_the_winner_and_the_shadowed) {
  put_fake(dir, "first");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "first");
  const json j = json::parse(print(octavo_list, "json"));
  std::vector<json> fakes;
  for (const json &p : j["plugins"])
    if (p["name"] == "fake") fakes.push_back(p);
  ASSERT_EQ(fakes.size(), 2u);
  EXPECT_EQ(fakes[0]["manifest"], dir / "first/fake.octavo-plugin.toml");
  EXPECT_FALSE(fakes[0].contains("shadowed_by"));
  EXPECT_EQ(fakes[0]["usable"], true);
  EXPECT_EQ(fakes[0]["version"], "1.2.3");
  EXPECT_EQ(fakes[1]["shadowed_by"], dir / "first/fake.octavo-plugin.toml");
  EXPECT_EQ(j["searched"][0]["directory"], dir / "first");
  EXPECT_EQ(j["searched"][0]["exists"], true);
}

TEST_F(ReportTest, probe_describes_this_machine) {
  const json j = json::parse(print(octavo_probe, "json"));
  EXPECT_GE(j["cpu"]["cores"].get<int>(), 1);
  EXPECT_GT(j["cpu"]["memory_bytes"].get<uint64_t>(), uint64_t{1} << 20);
  EXPECT_TRUE(j["cuda"]["devices"].is_array());
  EXPECT_FALSE(j["cuda"]["text"].get<std::string>().empty());
  EXPECT_THAT(print(octavo_probe, "text"), HasSubstr("cores      "));
}

TEST_F(ReportTest, check_config_names_every_origin) {
  request.text("[fp8.fake]\ncount = 7\n[layers]\nskip = [\"a\"]\n");
  const json j = json::parse(print(octavo_check_config, "json"));
  EXPECT_EQ(j["settings"]["layers.skip"]["value"], json({"a"}));
  EXPECT_EQ(j["settings"]["layers.skip"]["origin"], "octavo.toml:4:1");
  EXPECT_EQ(j["settings"]["fp8.fake.count"]["value"], 7);
  EXPECT_EQ(j["settings"]["fp8.fake.count"]["origin"], "octavo.toml:2:1");
  EXPECT_EQ(j["settings"]["fp8.backend"]["origin"], "override");
  EXPECT_EQ(j["settings"]["device.kind"]["origin"], "default");
}

// The stages of candidate `index` as "discovery passed, manifest refused, ...".
std::string stages_of(const json &report, size_t index = 0) {
  std::string text;
  for (const json &s : report["candidates"][index]["stages"])
    text += (text.empty() ? "" : ", ") + s["stage"].get<std::string>() + " " +
            s["result"].get<std::string>();
  return text;
}

TEST_F(ReportTest, every_stage_of_every_candidate) {
  request.text("[fp8]\nfallback = [\"te\", \"bf16\"]");
  json j = json::parse(print(octavo_explain, "json"));
  EXPECT_EQ(stages_of(j),
            "discovery passed, manifest passed, trust passed, elf passed, probe passed, load "
            "passed, plugin passed, device passed, session passed");
  ASSERT_EQ(j["candidates"].size(), 3u);
  EXPECT_EQ(j["candidates"][1]["id"], "te");
  EXPECT_EQ(j["candidates"][1]["tried"], false);
  EXPECT_EQ(j["candidates"][1]["stages"][0]["result"], "not-reached");
  EXPECT_EQ(stages_of(j, 2), "session not-reached");
  EXPECT_FALSE(j.contains("first_refusal"));
  // A loaded library stays what it was, so each other one has a path of its own.
  put_fake(dir, "second", "check_declines");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "second");
  j = json::parse(print(octavo_explain, "json"));
  EXPECT_THAT(stages_of(j), testing::EndsWith("plugin passed, device passed, session refused"));
  EXPECT_EQ(j["candidates"][1]["chosen"], true);
  EXPECT_EQ(j["first_refusal"]["reason"], "device");
  EXPECT_EQ(j["first_refusal"]["candidate"], "fake");
  put_fake(dir, "third");
  dir.write("third/fake.so", "no ELF");
  environment.set("OCTAVO_PLUGIN_PATH", dir / "third");
  j = json::parse(print(octavo_explain, "json"));
  EXPECT_THAT(stages_of(j),
              testing::StartsWith("discovery passed, manifest passed, trust passed, "
                                  "elf refused, probe not-reached, load not-reached"));
  EXPECT_EQ(j["first_refusal"]["stage"], "elf");
  EXPECT_EQ(j["first_refusal"]["page"], "docs/reasons.md#library");
  EXPECT_THAT(print(octavo_explain, "text"),
              HasSubstr("    stages: discovery, manifest and trust passed; elf refused\n"));
}

TEST_F(ReportTest, wrong_configuration_is_reported_in_every_format) {
  request.text("[fp8]\nbakend = \"te\"");
  const std::string text =
      "octavo.toml:2:1: unknown key \"fp8.bakend\"; did you mean "
      "\"fp8.backend\"?";
  const std::string apply = "replace line 2 of octavo.toml by `backend = \"te\"`";
  const json j = json::parse(print(octavo_explain, "json", OCTAVO_INVALID));
  EXPECT_TRUE(j["runs"].is_null());
  EXPECT_EQ(j["first_refusal"]["reason"], "config");
  EXPECT_EQ(j["first_refusal"]["page"], "docs/reasons.md#config");
  EXPECT_EQ(j["first_refusal"]["text"], text);
  EXPECT_EQ(j["first_refusal"]["apply"], apply);
  EXPECT_EQ(print(octavo_explain, "text", OCTAVO_INVALID),
            "FP8        no: the configuration is refused\noctavo     " + text_of(octavo_version()) +
                "\nconfig     octavo.toml\nruns       nothing\nrefused    config decline: " + text +
                "\n      remedy: correct the configuration\n      apply: " + apply +
                "\n      reason: config, see page reasons#config\n");
  EXPECT_THAT(print(octavo_explain, "tree", OCTAVO_INVALID), HasSubstr("apply: " + apply));
  EXPECT_EQ(request.host.error(), text);
}

TEST_F(ReportTest, layers_say_how_to_bring_them_to_fp8) {
  request.text("[layers]\nskip = [\"*head*\", \"x\"]");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  add_weight(run.get(), "u", 2, 3);
  add_linear(run.get(), "lm_head", 0);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  const json v = json::parse(report("json"))["layers"][0]["verdict"];
  EXPECT_EQ(v["apply"], "replace line 2 of octavo.toml by `skip = [\"x\"]`");
  EXPECT_EQ(v["page"], "docs/reasons.md#policy");
  EXPECT_THAT(report("text"), HasSubstr("  to run lm_head in FP8: replace line 2 of octavo.toml by "
                                        "`skip = [\"x\"]`  (policy, see page reasons#policy)\n"));
}

TEST_F(ReportTest, layers_of_a_fallback_say_what_was_refused) {
  request.text("[fp8]\nfallback = [\"bf16\"]\nrequire.native = true");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  add_weight(run.get(), "u", 2, 3);
  add_linear(run.get(), "fc", 0);
  EXPECT_EQ(json::parse(report("json"))["layers"][0]["verdict"]["apply"],
            "replace line 3 of octavo.toml by `require.native = false`");
}

TEST_F(ReportTest, options_that_nothing_sets_have_an_origin_too) {
  environment.set("OCTAVO_FP8_FAKE_NOTE", "hello");
  const json j = json::parse(print(octavo_check_config, "json"));
  environment.unset("OCTAVO_FP8_FAKE_NOTE");
  EXPECT_EQ(j["settings"]["fp8.fake.count"]["origin"], "default");
  EXPECT_EQ(j["settings"]["fp8.fake.note"]["value"], "hello");
  EXPECT_EQ(j["settings"]["fp8.fake.note"]["origin"], "OCTAVO_FP8_FAKE_NOTE");
}

TEST_F(ReportTest, unknown_format) {
  EXPECT_EQ(print(octavo_explain, "xml", OCTAVO_INVALID), "");
  EXPECT_EQ(request.host.error(), "format: expected \"text\", \"tree\" or \"json\", found \"xml\"");
}

}  // namespace
}  // namespace octavo::test
