// What programs ask instead of reading reports: settings, options, the plugin, keys of slots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "5 of octavo.toml:6:1"
std::string shown(const octavo_setting &s) {
  EXPECT_EQ(s.size, sizeof(octavo_setting));
  EXPECT_EQ(s.kind, uint32_t{OCTAVO_KIND_SETTING});
  EXPECT_EQ(s.text_count == 0 || s.value.type == OCTAVO_VALUE_LIST, true) << text_of(s.name);
  std::string text;
  switch (s.value.type) {
    case OCTAVO_VALUE_INT: text = std::to_string(s.value.integer); break;
    case OCTAVO_VALUE_REAL: text = "real " + std::to_string(s.value.real); break;
    case OCTAVO_VALUE_BOOL: text = s.value.integer == 0 ? "false" : "true"; break;
    case OCTAVO_VALUE_TEXT: text = '"' + text_of(s.value.text) + '"'; break;
    case OCTAVO_VALUE_LIST:
      for (uint64_t i = 0; i < s.text_count; ++i) text += "[" + text_of(s.texts[i]) + "]";
      break;
    default: ADD_FAILURE() << text_of(s.name) << " has type " << s.value.type;
  }
  return text + " of " + text_of(s.origin);
}

class AnswersTest : public testing::Test {
 protected:
  Request &configure(const std::string &toml) {
    put_fake(dir, "plugins");
    return request.text("plugins.trust = \"dev\"\n" + toml)
        .set("fp8.backend", "fake")
        .plugins(dir / "plugins");
  }
  octavo_status ask() {
    const octavo_open_desc d = request.desc();
    return octavo_settings(&d, take, this);
  }
  static void take(void *ctx, const octavo_setting *s) {
    auto *self = static_cast<AnswersTest *>(ctx);
    EXPECT_TRUE(self->settings.emplace(text_of(s->name), shown(*s)).second) << text_of(s->name);
  }
  std::vector<std::string> options(uint32_t linear) {
    std::vector<std::string> all;
    const uint32_t count = octavo_run_option_count(run.get(), linear);
    for (uint32_t i = 0; i < count; ++i) {
      const octavo_setting &s = *octavo_run_option(run.get(), linear, i);
      all.push_back(text_of(s.name) + " = " + shown(s));
    }
    EXPECT_EQ(octavo_run_option(run.get(), linear, count), nullptr);
    return all;
  }
  std::string setting(const std::string &key) {
    const octavo_setting *s = octavo_run_setting(run.get(), borrow(key));
    return s == nullptr ? "null" : shown(*s);
  }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
  std::map<std::string, std::string> settings;
};

TEST_F(AnswersTest, every_key_once_with_its_value_and_origin) {
  environment.set("OCTAVO_FP8_FAKE_NOTE", "n");
  configure(
      "layers.skip = [\"a\", \"b*\"]\ndistributed.timeout_s = 7\nplugins.pins = []\n"
      "[fp8.fake]\ncount = 5\nratio = 1.0\n[[layers.rule]]\nmatch = \"m\"\nfp8.fake.count = 9\n")
      .set("plugins.probe", "never");
  ASSERT_EQ(ask(), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(settings.at("layers.skip"), "[a][b*] of octavo.toml:2:8");
  EXPECT_EQ(settings.at("distributed.timeout_s"), "7 of octavo.toml:3:13");
  EXPECT_EQ(settings.at("plugins.pins"), " of octavo.toml:4:9");
  EXPECT_EQ(settings.at("plugins.probe"), "\"never\" of override");
  EXPECT_EQ(settings.at("fp8.backend"), "\"fake\" of override");
  EXPECT_EQ(settings.at("plugins.locked"), "false of default");
  EXPECT_EQ(settings.at("fp8.fake.count"), "5 of octavo.toml:6:1");
  EXPECT_EQ(settings.at("fp8.fake.ratio"), "real 1.000000 of octavo.toml:7:1");
  EXPECT_EQ(settings.at("fp8.fake.note"), "\"n\" of OCTAVO_FP8_FAKE_NOTE");
  EXPECT_EQ(settings.at("fp8.fake.mode"), "\"exact\" of default");
  EXPECT_EQ(settings.at("layers.rule.0.match"), "[m] of octavo.toml:9:1");
  EXPECT_EQ(settings.at("layers.rule.0.fp8.fake.count"), "9 of octavo.toml:10:10");
  // An open run gives the same ones.
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  for (const auto &[key, value] : settings) EXPECT_EQ(setting(key), value) << key;
  for (const char *key : {"", "fp8", "fp8.fake", "fp8.fake.cuont", "distributed.timeout", "count"})
    EXPECT_EQ(setting(key), "null") << key;
  EXPECT_EQ(octavo_run_setting(run.get(), {nullptr, 3}), nullptr);
}

TEST_F(AnswersTest, a_missing_backend_comes_after_the_settings) {
  request.set("fp8.backend", "absent").set("distributed.timeout_s", 9);
  EXPECT_EQ(ask(), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(settings.at("distributed.timeout_s"), "9 of override");
  EXPECT_THAT(request.host.error(), testing::HasSubstr("absent"));
}

TEST_F(AnswersTest, a_wrong_configuration_has_no_settings) {
  for (const char *toml : {"mixed_precision = 3", "layers.skp = []", "x ="}) {
    request.text(toml);
    EXPECT_EQ(ask(), OCTAVO_INVALID) << toml;
    EXPECT_THAT(settings, IsEmpty()) << toml;
  }
  request.text("");
  octavo_open_desc d = request.desc();
  EXPECT_EQ(octavo_settings(&d, nullptr, nullptr), OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::HasSubstr("\"take\""));
  d.kind = OCTAVO_KIND_HOST;
  EXPECT_EQ(octavo_settings(&d, take, this), OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::HasSubstr("octavo_settings: expected a struct of"));
  EXPECT_THAT(settings, IsEmpty());
  d.size = 0;  // the defaults
  EXPECT_EQ(octavo_settings(&d, take, this), OCTAVO_OK);
  EXPECT_EQ(settings.at("distributed.timeout_s"), "600 of default");
  settings.clear();
  EXPECT_EQ(octavo_settings(nullptr, take, this), OCTAVO_OK);
  EXPECT_EQ(settings.at("mixed_precision"), "\"fp8\" of default");
}

TEST_F(AnswersTest, options_of_the_session_and_of_linears_that_differ) {
  configure(
      "[fp8.fake]\ncount = 5\n[[layers.rule]]\nmatch = \"ruled*\"\nfp8.fake.mode = \"fast\"\n"
      "fp8.fake.count = 7\n[[layers.rule]]\nmatch = \"same\"\nfp8.fake.count = 5\n"
      "[[layers.rule]]\nmatch = \"host\"\nplace = \"host\"\n");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  EXPECT_THAT(options(OCTAVO_NONE),
              ElementsAre("count = 5 of octavo.toml:3:1", "ratio = real 0.500000 of default",
                          "verbose = false of default", "mode = \"exact\" of default",
                          "note = \"\" of default"));
  const uint32_t weight = add_weight(run.get(), "w", 16, 16).id;
  EXPECT_EQ(octavo_run_option_count(run.get(), 0), 0u);  // there is no linear yet
  EXPECT_EQ(add_linear(run.get(), "plain", weight).id, 0u);
  EXPECT_EQ(add_linear(run.get(), "host", weight).id, OCTAVO_NONE);
  EXPECT_EQ(add_linear(run.get(), "ruled", weight).id, 1u);
  EXPECT_EQ(add_linear(run.get(), "same", weight).id, 2u);
  // What the host gives is above the rule; a whole number is one of `ratio`, too.
  octavo_value count{}, ratio{};
  count.type = ratio.type = OCTAVO_VALUE_INT;
  count.integer = 5, ratio.integer = 1;
  const octavo_option_value given[] = {{borrow("count"), count}, {borrow("ratio"), ratio}};
  octavo_linear_desc d{};
  d.size = sizeof(d), d.kind = OCTAVO_KIND_LINEAR_DESC;
  d.name = borrow("ruled.too"), d.weight = weight;
  d.options = given, d.option_count = 2;
  uint32_t id = OCTAVO_NONE;
  ASSERT_EQ(octavo_add_linear(run.get(), &d, nullptr, &id), OCTAVO_OK);
  EXPECT_EQ(id, 3u);
  // Before the seal as after it.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(options(0), IsEmpty());
    EXPECT_THAT(options(1), ElementsAre("count = 7 of octavo.toml:7:10",
                                        "mode = \"fast\" of octavo.toml:6:10"));
    EXPECT_THAT(options(2), IsEmpty());
    EXPECT_THAT(options(3), ElementsAre("ratio = real 1.000000 of host",
                                        "mode = \"fast\" of octavo.toml:6:10"));
    EXPECT_THAT(options(4), IsEmpty());
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << request.host.error();
  }
}

// As strict as octavo.toml; what equals the session's is left out.
TEST_F(AnswersTest, options_that_the_host_gives_one_linear_are_checked) {
  configure("");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  const uint32_t weight = add_weight(run.get(), "w", 16, 16).id;
  const auto add = [&](const char *name, octavo_value value) {
    const octavo_option_value given = {borrow(name), value};
    octavo_linear_desc d{};
    d.size = sizeof(d), d.kind = OCTAVO_KIND_LINEAR_DESC;
    d.name = borrow("l"), d.weight = weight;
    d.options = &given, d.option_count = 1;
    uint32_t id = OCTAVO_NONE;
    return octavo_add_linear(run.get(), &d, nullptr, &id);
  };
  octavo_value text{};
  text.type = OCTAVO_VALUE_TEXT, text.text = borrow("zzz");
  EXPECT_EQ(add("mode", text), OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::HasSubstr("linear \"l\".fp8.fake.mode"));
  EXPECT_THAT(request.host.error(), testing::HasSubstr("zzz"));
  EXPECT_EQ(add("count", text), OCTAVO_INVALID);
  text.text = borrow("exact");
  EXPECT_EQ(add("mode", text), OCTAVO_OK);
  EXPECT_THAT(options(0), IsEmpty());
}

TEST_F(AnswersTest, the_plugin_is_its_file) {
  configure("");
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  const octavo_plugin_info *plugin = octavo_run_plugin(run.get());
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin->size, sizeof(octavo_plugin_info));
  EXPECT_EQ(plugin->kind, uint32_t{OCTAVO_KIND_PLUGIN_INFO});
  EXPECT_EQ(text_of(plugin->id), "fake");
  EXPECT_EQ(text_of(plugin->version), "1.2.3");
  EXPECT_EQ(text_of(plugin->library), dir / "plugins/fake.so");
  std::FILE *pipe = popen(("sha256sum " + (dir / "plugins/fake.so")).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char digest[65] = {};
  EXPECT_EQ(std::fread(digest, 1, 64, pipe), 64u);
  pclose(pipe);
  EXPECT_EQ(text_of(plugin->sha256), digest);
}

TEST_F(AnswersTest, without_a_backend) {
  request.set("mixed_precision", "bf16");
  ASSERT_EQ(request.open(run), OCTAVO_OK);
  EXPECT_EQ(octavo_run_plugin(run.get()), nullptr);
  EXPECT_EQ(setting("mixed_precision"), "\"bf16\" of override");
  EXPECT_THAT(options(OCTAVO_NONE), IsEmpty());
  EXPECT_THAT(options(0), IsEmpty());
  EXPECT_EQ(text_of(octavo_run_slot_key(run.get(), 0)), "");
}

TEST_F(AnswersTest, a_closed_run_answers_nothing) {
  configure("");
  ASSERT_EQ(request.open(run), OCTAVO_OK);
  const octavo_run *closed = run.get();
  run.reset();
  EXPECT_EQ(octavo_run_plugin(closed), nullptr);
  EXPECT_EQ(octavo_run_setting(closed, borrow("mixed_precision")), nullptr);
  EXPECT_EQ(octavo_run_option_count(closed, OCTAVO_NONE), 0u);
  EXPECT_EQ(octavo_run_option(closed, OCTAVO_NONE, 0), nullptr);
  EXPECT_EQ(text_of(octavo_run_slot_key(closed, 0)), "");
}

}  // namespace
}  // namespace octavo::test
