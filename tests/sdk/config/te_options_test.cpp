// Every option of the te backend, by file and by override: what its session was opened with.
#include "tests/sdk/config/backend_options.h"

namespace octavo::test {
namespace {

class TeOptions : public BackendOptions {
 protected:
  TeOptions() : BackendOptions("te") {}
};

// One option: its default, and other legal values with the recipe that accepts them.
struct Legal {
  const char *value;  // as in the file, without quotes
  const char *recipe = "delayed";
};
struct OptionRow {
  const char *name;
  const char *initial;
  bool is_text;
  std::vector<Legal> legal;
};
void PrintTo(const OptionRow &row, std::ostream *out) {
  *out << row.name;
}

const std::vector<OptionRow> &rows() {
  static const std::vector<OptionRow> all = {
      {"recipe",
       "delayed",
       true,
       {{"delayed"},
        {"current", "current"},
        {"block", "block"},
        {"mx", "mx"},
        {"rowwise", "rowwise"}}},
      {"profile",
       "default",
       true,
       {{"default"},
        {"te2-delayed-fused"},
        {"te2-delayed-unfused"},
        {"te2-current", "current"},
        {"te2-block", "block"},
        {"te2-mx", "mx"},
        {"ocp-mx", "mx"},
        {"torchao-rowwise", "rowwise"}}},
      {"fp8_format", "default", true, {{"default"}, {"HYBRID"}, {"E4M3"}}},
      {"margin", "0", false, {{"0"}, {"3"}, {"30"}}},
      {"interval", "1", false, {{"1"}}},
      {"amax_history_len", "16", false, {{"1"}, {"1024"}, {"65536"}}},
      {"amax_compute_algo", "max", true, {{"max"}, {"most_recent"}}},
      {"amax_overflow", "te", true, {{"te"}, {"recover"}}},
      {"scaling_factor_compute_algo", "", true, {{""}}},
      {"reduce_amax", "true", false, {{"true"}, {"false"}}},
      {"override_linear_precision",
       "none",
       true,
       {{"none"},
        {"fprop"},
        {"dgrad"},
        {"wgrad"},
        {"fprop,dgrad"},
        {"fprop,wgrad"},
        {"dgrad,wgrad"},
        {"fprop,dgrad,wgrad"}}},
      {"backward_override",
       "none",
       true,
       {{"none"}, {"high_precision", "current"}, {"dequantized", "block"}}},
      {"use_autocast_during_eval", "false", false, {{"true"}, {"false"}}},
      {"use_mxfp8_block_scaling", "false", false, {{"true"}, {"true", "mx"}, {"false"}}},
      {"mxfp8_2d_quantization", "false", false, {{"true", "mx"}, {"false"}}},
      {"current_scaling_power_2_scales", "false", false, {{"true", "current"}, {"false"}}},
      {"block_scaling_fp32_scales", "false", false, {{"true", "block"}, {"false"}}},
      {"amax_epsilon", "0.000000", false, {{"0.25", "current"}, {"0.5", "block"}, {"0.0"}}},
      {"disable_rht", "false", false, {{"true", "nvfp4"}, {"false"}}},
      {"disable_stochastic_rounding", "false", false, {{"true", "nvfp4"}, {"false"}}},
      {"disable_2d_quantization", "false", false, {{"true", "nvfp4"}, {"false"}}},
      {"gradient_rounding",
       "default",
       true,
       {{"default"}, {"nearest"}, {"nearest", "nvfp4"}, {"stochastic"}, {"stochastic", "mx"}}},
      {"rounding_seed", "0", false, {{"7", "nvfp4"}, {"4294967295", "nvfp4"}, {"0"}}},
      {"fp8_dpa", "false", false, {{"false"}}},
      {"fp8_mha", "false", false, {{"false"}}},
      {"telemetry", "false", false, {{"true"}, {"false"}}},
  };
  return all;
}

class EachTeOption : public TeOptions, public testing::WithParamInterface<OptionRow> {
 protected:
  static std::string shown(const OptionRow &row, const std::string &value) {
    return std::string(row.initial).find('.') == std::string::npos
               ? value
               : std::to_string(std::stod(value));
  }
  // The value as an override of the option's type.
  static void put(Request &r, const OptionRow &row, const std::string &value) {
    const std::string key = std::string("fp8.te.") + row.name;
    if (row.is_text)
      r.set(key, value);
    else if (value == "true" || value == "false")
      r.set(key, value == "true");
    else if (value.find('.') != std::string::npos)
      r.set(key, std::stod(value));
    else
      r.set(key, static_cast<int64_t>(std::stoll(value)));
  }
};

TEST_P(EachTeOption, by_default) {
  Request r;
  EXPECT_EQ(seen(r, GetParam().name), GetParam().initial);
}

TEST_P(EachTeOption, every_legal_value_by_file) {
  for (const Legal &legal : GetParam().legal) {
    const std::string quote = GetParam().is_text ? "\"" : "";
    std::string lines = std::string(GetParam().name) + " = " + quote + legal.value + quote;
    if (std::string(GetParam().name) != "recipe")
      lines += std::string("\nrecipe = \"") + legal.recipe + "\"";
    EXPECT_EQ(by_file(lines, GetParam().name), shown(GetParam(), legal.value)) << lines;
  }
}

TEST_P(EachTeOption, every_legal_value_by_override) {
  for (const Legal &legal : GetParam().legal) {
    // The override wins over a file that sets something else.
    Request r;
    r.text("[fp8.te]\nrecipe = \"current\"\n").set("fp8.te.recipe", legal.recipe);
    put(r, GetParam(), legal.value);
    EXPECT_EQ(seen(r, GetParam().name), shown(GetParam(), legal.value)) << legal.value;
  }
}

// The variable wins over the file, and an override over the variable.
TEST_P(EachTeOption, every_legal_value_by_environment) {
  std::string variable = std::string("OCTAVO_FP8_TE_") + GetParam().name;
  for (char &c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const Legal &legal : GetParam().legal) {
    if (*legal.value == '\0') continue;  // an empty variable is one that is not set
    environment.set("OCTAVO_FP8_TE_RECIPE", legal.recipe);
    environment.set(variable, legal.value);
    Request r;
    EXPECT_EQ(seen(r.text("[fp8.te]\nrecipe = \"current\"\n"), GetParam().name),
              shown(GetParam(), legal.value))
        << variable << "=" << legal.value;
    environment.unset(variable);
    environment.unset("OCTAVO_FP8_TE_RECIPE");
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachTeOption, testing::ValuesIn(rows()),
                         [](const testing::TestParamInfo<OptionRow> &each) {
                           return std::string(each.param.name);
                         });

TEST_F(TeOptions, the_table_above_has_every_option) {
  Request r;
  const RunPtr run = base(r).opened();
  ASSERT_NE(run, nullptr) << r.host.error();
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  ASSERT_EQ(d->option_count, rows().size());
  for (uint64_t i = 0; i < d->option_count; ++i)
    EXPECT_EQ(text_of(d->options[i].name), rows()[i].name);
}

TEST_F(TeOptions, an_override_stands_above_the_environment) {
  environment.set("OCTAVO_FP8_TE_MARGIN", "3");
  EXPECT_EQ(by_override("margin", int64_t{5}), "5");
  EXPECT_EQ(by_file("margin = 4", "margin"), "3");
}

TEST_F(TeOptions, variables_that_are_wrong_are_refused) {
  environment.set("OCTAVO_FP8_TE_MARGIN", "3x");
  EXPECT_EQ(by_file("", "margin"),
            "environment variable OCTAVO_FP8_TE_MARGIN: expected an integer, found \"3x\"");
  environment.set("OCTAVO_FP8_TE_MARGIN", "31");
  EXPECT_EQ(by_file("", "margin"),
            "OCTAVO_FP8_TE_MARGIN: fp8.te.margin: expected 0 to 30, found 31");
  environment.unset("OCTAVO_FP8_TE_MARGIN");
  environment.set("OCTAVO_FP8_TE_REDUCE_AMAX", "maybe");
  EXPECT_EQ(by_file("", "reduce_amax"),
            "environment variable OCTAVO_FP8_TE_REDUCE_AMAX: expected true or false (also 1, yes, "
            "on, 0, no, off), found \"maybe\"");
  environment.set("OCTAVO_FP8_TE_REDUCE_AMAX", "Off");
  EXPECT_EQ(by_file("", "reduce_amax"), "false");
  environment.unset("OCTAVO_FP8_TE_REDUCE_AMAX");
  environment.set("OCTAVO_FP8_TE_AMAX_EPSILON", "1e");
  EXPECT_EQ(by_file("", "amax_epsilon"),
            "environment variable OCTAVO_FP8_TE_AMAX_EPSILON: expected a number, found \"1e\"");
  environment.unset("OCTAVO_FP8_TE_AMAX_EPSILON");
  environment.set("OCTAVO_FP8_TE_AMAX_HISTORY_LENGTH", "16");
  EXPECT_EQ(by_file("", "amax_history_len"),
            "environment variable OCTAVO_FP8_TE_AMAX_HISTORY_LENGTH: backend te has no such "
            "option; did you mean OCTAVO_FP8_TE_AMAX_HISTORY_LEN?");
}

TEST_F(TeOptions, out_of_range) {
  EXPECT_EQ(by_file("margin = -1", "margin"),
            "octavo.toml:2:1: fp8.te.margin: expected 0 to 30, found -1");
  EXPECT_EQ(by_override("margin", 31), "override: fp8.te.margin: expected 0 to 30, found 31");
  EXPECT_EQ(by_file("amax_epsilon = -0.5", "amax_epsilon").substr(0, 56),
            "octavo.toml:2:1: fp8.te.amax_epsilon: expected 0.0 to 1e");
  EXPECT_EQ(by_file("interval = 0", "interval"),
            "octavo.toml:2:1: fp8.te.interval: expected 1 to 1000000, found 0");
  EXPECT_EQ(by_file("amax_history_len = 0", "amax_history_len"),
            "octavo.toml:2:1: fp8.te.amax_history_len: expected 1 to 65536, found 0");
  EXPECT_EQ(by_override("amax_history_len", int64_t{1} << 40),
            "override: fp8.te.amax_history_len: expected 1 to 65536, found 1099511627776");
}

TEST_F(TeOptions, wrong_type_and_no_choice) {
  EXPECT_EQ(by_file("margin = \"3\"", "margin"),
            "octavo.toml:2:1: fp8.te.margin: expected an integer, found a text (\"3\")");
  EXPECT_EQ(by_file("recipe = 1", "recipe"),
            "octavo.toml:2:1: fp8.te.recipe: expected a text, found an integer (1)");
  EXPECT_EQ(by_file("recipe = \"delay\"", "recipe"),
            "octavo.toml:2:1: fp8.te.recipe: expected \"delayed\", \"current\", \"block\", "
            "\"mx\", \"nvfp4\" or \"rowwise\", found \"delay\"; "
            "did you mean \"delayed\"?");
  EXPECT_EQ(by_override("fp8_format", "hybrid"),
            "override: fp8.te.fp8_format: expected \"default\", \"HYBRID\", \"E4M3\" or "
            "\"E5M2\", found \"hybrid\"");
  EXPECT_EQ(by_file("override_linear_precision = \"dgrad,fprop\"", "override_linear_precision"),
            "octavo.toml:2:1: fp8.te.override_linear_precision: expected \"none\", \"fprop\", "
            "\"dgrad\", \"wgrad\", \"fprop,dgrad\", \"fprop,wgrad\", \"dgrad,wgrad\" or "
            "\"fprop,dgrad,wgrad\", found \"dgrad,fprop\"");
}

TEST_F(TeOptions, unknown) {
  EXPECT_EQ(by_file("amax_histroy_len = 4", "margin"),
            "octavo.toml:2:1: unknown key \"fp8.te.amax_histroy_len\"; did you mean "
            "\"fp8.te.amax_history_len\"?");
  EXPECT_EQ(by_file("opt_level = \"O2\"", "margin"),
            "octavo.toml:2:1: unknown key \"fp8.te.opt_level\"; backend te knows recipe, "
            "profile, fp8_format, margin, interval, amax_history_len, amax_compute_algo, "
            "amax_overflow, "
            "scaling_factor_compute_algo, reduce_amax, override_linear_precision, "
            "backward_override, use_autocast_during_eval, use_mxfp8_block_scaling, "
            "mxfp8_2d_quantization, current_scaling_power_2_scales, block_scaling_fp32_scales, "
            "amax_epsilon, disable_rht, disable_stochastic_rounding, disable_2d_quantization, "
            "gradient_rounding, rounding_seed, fp8_dpa, fp8_mha and telemetry");
}

TEST_F(TeOptions, misspelt_table) {
  Request r;
  r.text("[fp8.tee]\nmargin = 1\n");
  EXPECT_EQ(seen(r, "margin"),
            "octavo.toml:2:1: table [fp8.tee]: no backend \"tee\" is installed; did you mean "
            "[fp8.te]?");
}

TEST_F(TeOptions, backend_by_environment) {
  expect_chosen_by_environment();
}

}  // namespace
}  // namespace octavo::test
