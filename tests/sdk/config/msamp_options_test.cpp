// Every option of the msamp backend, by file and by override: what its session was opened with.
#include "tests/sdk/config/backend_options.h"

namespace octavo::test {
namespace {

class MsampOptions : public BackendOptions {
 protected:
  MsampOptions()
      : BackendOptions("msamp", "opt_level = \"O3\"\namax_history_len = 5\nweight_cache = true\n") {
  }
};

TEST_F(MsampOptions, defaults) {
  const std::pair<const char *, const char *> expected[] = {
      {"opt_level", "O2"},           {"profile", "msamp-fixed"},
      {"amax_history_len", "16"},    {"optimizer", "adamw"},
      {"amsgrad", "false"},          {"state_format", "level"},
      {"state_rounding", "profile"}, {"state_skip", ""},
      {"state_min_size", "0"},       {"weight_rounding", "nearest"},
      {"rounding_seed", "0"},        {"gradient_accumulation", "fp8"},
      {"prescale", "profile"},       {"one_shot_bytes", "262144"},
      {"weight_cache", "true"},      {"telemetry", "false"},
      {"state_scale", "exact"}};
  for (const auto &[name, value] : expected) {
    Request r;
    EXPECT_EQ(seen(r, name), value) << name;
  }
  // There are no other options.
  Request r;
  r.set("fp8.backend", "msamp").set("plugins.trust", "dev");
  const RunPtr run = r.opened();
  ASSERT_NE(run, nullptr) << r.host.error();
  EXPECT_EQ(octavo_run_session_desc(run.get())->option_count, std::size(expected));
}

TEST_F(MsampOptions, every_legal_value_by_file) {
  const std::pair<const char *, std::vector<const char *>> texts[] = {
      {"opt_level", {"O1", "O2", "O3"}},
      {"profile", {"msamp-fixed", "msamp04"}},
      {"optimizer", {"adamw", "adam"}},
      {"state_format", {"level", "e4m3-block", "coat"}},
      {"state_rounding", {"profile", "shrinking", "nearest", "stochastic"}},
      {"state_scale", {"exact", "bound"}},
      {"state_skip", {"", "*embedding*,head"}},
      {"weight_rounding", {"nearest", "stochastic"}},
      {"gradient_accumulation", {"fp8", "fp32"}},
      {"prescale", {"profile", "auto", "sqrt", "full", "none"}}};
  for (const auto &[name, values] : texts)
    for (const char *v : values)
      EXPECT_EQ(by_file(std::string(name) + " = \"" + v + "\"", name), v) << name;
  for (const char *v : {"1", "16", "65536"})
    EXPECT_EQ(by_file(std::string("amax_history_len = ") + v, "amax_history_len"), v);
  for (const char *v : {"0", "1", "1099511627776"})
    EXPECT_EQ(by_file(std::string("one_shot_bytes = ") + v, "one_shot_bytes"), v);
  for (const char *v : {"0", "4096", "1099511627776"})
    EXPECT_EQ(by_file(std::string("state_min_size = ") + v, "state_min_size"), v);
  for (const char *v : {"0", "4294967295"})
    EXPECT_EQ(by_file(std::string("rounding_seed = ") + v, "rounding_seed"), v);
  for (const char *name : {"weight_cache", "telemetry"})
    for (const char *v : {"true", "false"})
      EXPECT_EQ(by_file(std::string(name) + " = " + v, name), v) << name;
  EXPECT_EQ(by_file("amsgrad = false", "amsgrad"), "false");
}

TEST_F(MsampOptions, every_option_by_override) {
  EXPECT_EQ(by_override("opt_level", "O1"), "O1");
  EXPECT_EQ(by_override("profile", "msamp04"), "msamp04");
  EXPECT_EQ(by_override("amax_history_len", 2), "2");
  EXPECT_EQ(by_override("optimizer", "adam"), "adam");
  EXPECT_EQ(by_override("amsgrad", false), "false");
  EXPECT_EQ(by_override("state_format", "coat"), "coat");
  EXPECT_EQ(by_override("gradient_accumulation", "fp32"), "fp32");
  EXPECT_EQ(by_override("prescale", "none"), "none");
  EXPECT_EQ(by_override("one_shot_bytes", 4096), "4096");
  EXPECT_EQ(by_override("weight_cache", false), "false");
  EXPECT_EQ(by_override("state_rounding", "stochastic"), "stochastic");
  EXPECT_EQ(by_override("state_scale", "bound"), "bound");
  EXPECT_EQ(by_override("state_skip", "wte"), "wte");
  EXPECT_EQ(by_override("state_min_size", 10), "10");
  EXPECT_EQ(by_override("weight_rounding", "stochastic"), "stochastic");
  EXPECT_EQ(by_override("rounding_seed", 7), "7");
}

// Legal for the configuration, impossible for the backend.
TEST_F(MsampOptions, amsgrad) {
  EXPECT_THAT(by_file("amsgrad = true", "amsgrad"),
              testing::HasSubstr("set fp8.msamp.amsgrad = false"));
  EXPECT_THAT(by_override("amsgrad", true), testing::HasSubstr("amsgrad is not possible"));
}

TEST_F(MsampOptions, msamp04_rounds_as_msamp) {
  for (const char *line : {"state_rounding = \"shrinking\"", "state_rounding = \"stochastic\"",
                           "weight_rounding = \"stochastic\""})
    EXPECT_THAT(by_file(std::string("profile = \"msamp04\"\n") + line, "profile"),
                testing::HasSubstr("msamp04 rounds to nearest even"))
        << line;
  EXPECT_EQ(by_file("profile = \"msamp04\"\nstate_rounding = \"nearest\"", "profile"), "msamp04");
}

TEST_F(MsampOptions, msamp04_takes_exact_scales) {
  EXPECT_THAT(by_file("profile = \"msamp04\"\nstate_scale = \"bound\"", "profile"),
              testing::HasSubstr("set fp8.msamp.state_scale = \"exact\""));
}

TEST_F(MsampOptions, out_of_range) {
  EXPECT_EQ(by_file("amax_history_len = 0", "amax_history_len"),
            "octavo.toml:2:1: fp8.msamp.amax_history_len: expected 1 to 65536, found 0");
  EXPECT_EQ(by_override("amax_history_len", 65537),
            "override: fp8.msamp.amax_history_len: expected 1 to 65536, found 65537");
  EXPECT_EQ(by_file("one_shot_bytes = -1", "one_shot_bytes"),
            "octavo.toml:2:1: fp8.msamp.one_shot_bytes: expected 0 to 1099511627776, found -1");
  EXPECT_EQ(by_override("one_shot_bytes", (int64_t{1} << 40) + 1),
            "override: fp8.msamp.one_shot_bytes: expected 0 to 1099511627776, found "
            "1099511627777");
}

TEST_F(MsampOptions, wrong_type) {
  EXPECT_EQ(by_file("opt_level = 2", "opt_level"),
            "octavo.toml:2:1: fp8.msamp.opt_level: expected a text, found an integer (2)");
  EXPECT_EQ(by_file("amax_history_len = \"16\"", "amax_history_len"),
            "octavo.toml:2:1: fp8.msamp.amax_history_len: expected an integer, found a text "
            "(\"16\")");
  for (const char *name : {"profile", "optimizer", "state_format", "state_rounding", "state_scale",
                           "gradient_accumulation", "prescale"})
    EXPECT_EQ(by_override(name, 1), std::string("override: fp8.msamp.") + name +
                                        ": expected a text, found an integer (1)");
  for (const char *name : {"amsgrad", "weight_cache"})
    EXPECT_THAT(
        by_file(std::string(name) + " = 1", name),
        testing::AllOf(testing::HasSubstr(std::string("octavo.toml:2:1: fp8.msamp.") + name),
                       testing::HasSubstr("found an integer (1)")));
  EXPECT_THAT(by_file("one_shot_bytes = 1.5", "one_shot_bytes"),
              testing::HasSubstr("expected an integer, found"));
}

TEST_F(MsampOptions, no_choice) {
  EXPECT_EQ(by_file("opt_level = \"O4\"", "opt_level"),
            "octavo.toml:2:1: fp8.msamp.opt_level: expected \"O1\", \"O2\" or \"O3\", found "
            "\"O4\"; did you mean \"O1\"?");
  EXPECT_EQ(by_file("state_format = \"e4m3-blok\"", "state_format"),
            "octavo.toml:2:1: fp8.msamp.state_format: expected \"level\", \"e4m3-block\" or "
            "\"coat\", found \"e4m3-blok\"; did you mean \"e4m3-block\"?");
  for (const char *name :
       {"profile", "optimizer", "gradient_accumulation", "prescale", "state_format"})
    EXPECT_THAT(by_override(name, "nothing of the kind"),
                testing::AllOf(testing::StartsWith(std::string("override: fp8.msamp.") + name +
                                                   ": expected \""),
                               testing::HasSubstr("found \"nothing of the kind\"")));
}

TEST_F(MsampOptions, unknown) {
  EXPECT_EQ(by_file("opt_levle = \"O2\"", "opt_level"),
            "octavo.toml:2:1: unknown key \"fp8.msamp.opt_levle\"; did you mean "
            "\"fp8.msamp.opt_level\"?");
  EXPECT_EQ(by_file("weight_cash = true", "weight_cache"),
            "octavo.toml:2:1: unknown key \"fp8.msamp.weight_cash\"; did you mean "
            "\"fp8.msamp.weight_cache\"?");
  EXPECT_EQ(by_override("recipe", "delayed"),
            "override: unknown key \"fp8.msamp.recipe\"; backend msamp knows opt_level, profile, "
            "amax_history_len, optimizer, amsgrad, state_format, state_rounding, state_scale, "
            "state_skip, "
            "state_min_size, weight_rounding, rounding_seed, gradient_accumulation, prescale, "
            "one_shot_bytes, weight_cache and telemetry");
}

TEST_F(MsampOptions, misspelt_table) {
  Request r;
  r.text("[fp8.msam]\nopt_level = \"O1\"\n");
  EXPECT_EQ(seen(r, "opt_level"),
            "octavo.toml:2:1: table [fp8.msam]: no backend \"msam\" is installed; did you mean "
            "[fp8.msamp]?");
}

TEST_F(MsampOptions, backend_by_environment) {
  expect_chosen_by_environment();
}

}  // namespace
}  // namespace octavo::test
