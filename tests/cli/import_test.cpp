// octavo init --from: what becomes of each key of Accelerate and DeepSpeed, and what is refused.
#include <algorithm>
#include <filesystem>

#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CliImport : public Cli {
 protected:
  CliImport() : out(dir / "octavo.toml") {}

  // Writes `text` as `name` and imports it.
  Finished import(const std::string &text, std::vector<std::string> more = {},
                  const std::string &name = "config.yaml") {
    source = dir.write(name, text);
    more.insert(more.begin(), {"init", "--from", source, "--output", out});
    return octavo(more);
  }
  Finished kwargs(std::vector<std::string> words) {
    words.insert(words.begin(), {"init", "--output", out, "--force", "--kwargs"});
    return octavo(words);
  }
  // The result without its comments, after `octavo config show` accepted it.
  std::string result() {
    const Finished f = octavo({"config", "show", out});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    std::string lines;
    std::string text = read_text(out);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      if (text[at] != '#' && text[at] != '\n') lines += text.substr(at, end + 1 - at);
      at = end + 1;
    }
    return lines;
  }

  const std::string out;
  std::string source;
};

constexpr const char *kGuide =
    "compute_environment: LOCAL_MACHINE\n"
    "mixed_precision: fp8\n"
    "fp8_config:\n"
    "  amax_compute_algo: most_recent\n"
    "  amax_history_len: 32\n"
    "  backend: TE\n"
    "  fp8_format: E4M3\n"
    "  interval: 1\n"
    "  margin: 2\n"
    "  override_linear_precision: (false, false, true)\n"
    "  use_autocast_during_eval: true\n"
    "use_cpu: true\n";

TEST_F(CliImport, every_key_of_the_guide_arrives) {
  const Finished f = import(kGuide);
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  EXPECT_EQ(result(),
            "schema = 1\nmixed_precision = \"fp8\"\n[fp8]\nbackend = \"te\"\n[fp8.te]\n"
            "recipe = \"delayed\"\namax_compute_algo = \"most_recent\"\namax_history_len = 32\n"
            "fp8_format = \"E4M3\"\ninterval = 1\nmargin = 2\n"
            "override_linear_precision = \"wgrad\"\nuse_autocast_during_eval = true\n"
            "[layers]\nskip = []\n[device]\nkind = \"cpu\"\n");
  EXPECT_THAT(f.out, ContainsRegex("compute_environment +LOCAL_MACHINE +stays: the launcher"));
  EXPECT_THAT(f.out, ContainsRegex("fp8_config.margin +2 +arrives: fp8.te.margin = 2\n"));
  EXPECT_THAT(f.out,
              ContainsRegex("amax_compute_algo +most_recent +translated: .*TE ran with max"));
  EXPECT_THAT(f.out, ContainsRegex("override_linear_precision +\\(false, false, true\\) +transl"));
  EXPECT_THAT(f.out, HasSubstr("Next: octavo check " + out + "\n"));
}

TEST_F(CliImport, a_dry_run_prints_the_file_and_writes_nothing) {
  const Finished f = import(kGuide, {"--dry-run"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, AllOf(HasSubstr("\n[fp8.te]\nrecipe = \"delayed\"\n"),
                           ContainsRegex("\nkey +value +what became of it\n")));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliImport, never_replaces_a_file_without_force) {
  dir.write("octavo.toml", "mine\n");
  const Finished f = import(kGuide);
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err, "error: " + out +
                       " exists already; use --force to overwrite it, or --output to write another "
                       "file\n");
  EXPECT_EQ(read_text(out), "mine\n");
  EXPECT_EQ(import(kGuide, {"--force"}).exit_code, 0);
  EXPECT_THAT(result(), StartsWith("schema = 1\n"));
  size_t files = 0;  // no draft stays
  for (const auto &entry : std::filesystem::directory_iterator(dir.path()))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2);
}

TEST_F(CliImport, the_names_of_the_wizard_and_the_flat_form) {
  EXPECT_EQ(import("mixed_precision: fp8\nfp8_config:\n  amax_history_length: 32\n"
                   "  amax_compute_algorithm: max\n  override_linear_precision: [no, yes, off]\n")
                .exit_code,
            0);
  EXPECT_THAT(result(), HasSubstr("recipe = \"delayed\"\namax_history_len = 32\n"
                                  "amax_compute_algo = \"max\"\n"
                                  "override_linear_precision = \"dgrad\"\n"));
  EXPECT_EQ(import("mixed_precision: fp8\nfp8_config: {backend: MS-AMP, optimization_level: O1}\n",
                   {"--force"})
                .exit_code,
            0);
  EXPECT_THAT(result(), HasSubstr("backend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O1\"\n"));
  EXPECT_THAT(read_text(out), HasSubstr("# the name of the wizard and of the guide"));
  EXPECT_EQ(import("mixed_precision: fp8\nfp8_backend: te\nfp8_margin: 3\nfp8_format: hybrid\n",
                   {"--force"})
                .exit_code,
            0);
  EXPECT_THAT(result(), HasSubstr("margin = 3\nfp8_format = \"HYBRID\"\n"));
  EXPECT_EQ(import("fp16: true\ndistributed_type: 'NO'\n", {"--force"}).exit_code, 0);
  EXPECT_EQ(result(), "schema = 1\nmixed_precision = \"fp16\"\n");
}

TEST_F(CliImport, a_refused_key_stops_the_rest_unless_it_may_be_left_out) {
  const std::string text = "mixed_precision: fp8\nfp8_config:\n  interval: 4\n  margin: 1\n";
  Finished f = import(text);
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.err, HasSubstr(source + ":3:13: fp8_config.interval: refused: TE removed the "
                                        "interval, and computes scales in every step; remove it"));
  EXPECT_FALSE(std::filesystem::exists(out));
  f = import(text, {"--without-refused"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(result(), AllOf(HasSubstr("margin = 1\n"), Not(HasSubstr("interval"))));
  EXPECT_THAT(read_text(out), HasSubstr("# Refused: fp8_config.interval = 4: TE removed"));
}

TEST_F(CliImport, as_json) {
  const auto of = [](const nlohmann::json &j, const std::string &key) {
    for (const auto &one : j["keys"])
      if (one["key"] == key) return one;
    return nlohmann::json();
  };
  Finished f = import(kGuide, {"--dry-run", "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  nlohmann::json j = by_schema("init", f);
  EXPECT_EQ(j["written"], nullptr);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(j["source"], source);
  EXPECT_EQ(of(j, "fp8_config.margin"), nlohmann::json({{"key", "fp8_config.margin"},
                                                        {"value", "2"},
                                                        {"place", source + ":9:11"},
                                                        {"outcome", "arrives"},
                                                        {"to", "fp8.te.margin"},
                                                        {"note", ""}}));
  EXPECT_EQ(of(j, "fp8_config.amax_compute_algo")["outcome"], "translated");
  EXPECT_EQ(of(j, "compute_environment")["to"], nullptr);
  EXPECT_EQ(j["settings"]["fp8.te.margin"], 2);
  EXPECT_EQ(j["settings"]["fp8.te.use_autocast_during_eval"], true);
  f = import(kGuide, {"--json"});
  EXPECT_EQ(by_schema("init", f)["written"], out);
  EXPECT_EQ(j["toml"], read_text(out));
  f = import("mixed_precision: fp8\nfp8_config:\n  interval: 4\n", {"--json", "--force"});
  EXPECT_EQ(f.exit_code, 1);
  j = by_schema("init", f);
  EXPECT_EQ(j["refused"], 1);
  EXPECT_EQ(j["written"], nullptr);
  EXPECT_EQ(of(j, "fp8_config.interval")["outcome"], "refused");
  EXPECT_THAT(f.err, HasSubstr(of(j, "fp8_config.interval")["note"].get<std::string>()));
  f = import("fp8_config: [", {"--json", "--force"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_EQ(octavo({"init", "--list-keys", "--json"}).exit_code, 2);
}

TEST_F(CliImport, keys_that_are_refused_by_name) {
  for (const auto &[key, says] : std::vector<std::pair<std::string, std::string>>{
           {"fp8_format: E5M2", "serve gradients only, and TE also refuses it; set HYBRID"},
           {"enable_fsdp_float8_all_gather: true",
            "gather=\"fp8\") does that, and no key of the file; set it"},
           {"use_mxfp8_block_scaling: true\n  amax_history_len: 32", "mx has no history; remove"},
           {"use_mxfp8_block_scaling: true\n  margin: 1", "mx has no margin; remove it"}}) {
    const Finished f = import("mixed_precision: fp8\nfp8_config:\n  " + key + "\n");
    EXPECT_EQ(f.exit_code, 1) << key;
    EXPECT_THAT(f.err, AllOf(HasSubstr(": refused: "), HasSubstr(says))) << key;
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

// Where a default of Octavo differs, the result states the source's; with AO, it is alike.
TEST_F(CliImport, settings_of_a_script) {
  const std::string every = "[layers]\nskip = []\n";
  for (const auto &[words, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"TERecipeKwargs", "margin=0", "interval=1", "fp8_format='HYBRID'",
             "override_linear_precision=(False, True, True)", "amax_history_len=None"},
            "[fp8]\nbackend = \"te\"\n[fp8.te]\nrecipe = \"delayed\"\nmargin = 0\ninterval = 1\n"
            "fp8_format = \"HYBRID\"\noverride_linear_precision = \"dgrad,wgrad\"\n"
            "amax_history_len = 1024\n" +
                every},
           {{"TERecipeKwargs", "use_mxfp8_block_scaling=True"},
            "[fp8.te]\nrecipe = \"mx\"\n" + every},
           {{"MSAMPRecipeKwargs"}, "[fp8]\nbackend = \"msamp\"\n" + every},
           {{"MSAMPRecipeKwargs", "opt_level=O3"}, "[fp8.msamp]\nopt_level = \"O3\"\n" + every},
           {{"AORecipeKwargs", "pad_inner_dim=True", "enable_fsdp_float8_all_gather=False"},
            "[fp8.te]\nrecipe = \"current\"\n"},
           {{"FP8RecipeKwargs", "backend=\"msamp\"", "optimization_level=\"O2\""},
            "[fp8]\nbackend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O2\"\n" + every}}) {
    const Finished f = kwargs(words);
    EXPECT_EQ(f.exit_code, 0) << words[0] << f.err;
    const std::string toml = result();
    EXPECT_THAT(toml, StartsWith("schema = 1\nmixed_precision = \"fp8\"\n"));
    EXPECT_THAT(toml, testing::EndsWith(says)) << words[0];
  }
  EXPECT_EQ(kwargs({"AORecipeKwargs", "module_filter_func=f"}).exit_code, 1);
  EXPECT_THAT(kwargs({"TERecipeKwargs", "margn=0"}).err, HasSubstr("did you mean \"margin\"?"));
  EXPECT_THAT(kwargs({"TERecipeKwargs", "opt_level=O1"}).err, HasSubstr("unknown key"));
  EXPECT_THAT(kwargs({"TERecipeKwargs", "margin"}).err, HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(kwargs({"TeKwargs"}).err, HasSubstr("expected TERecipeKwargs, MSAMPRecipeKwargs"));
}

TEST_F(CliImport, deepspeed) {
  const auto settings = [&](const std::string &text) {
    return import(text, {"--force"}, "ds_config.json");
  };
  Finished f = settings(
      "{\"bf16\": {\"enabled\": true}, \"msamp\": {\"enabled\": true, \"use_te\": "
      "false}, \"zero_optimization\": {\"stage\": 2}}");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(result(),
            "schema = 1\nmixed_precision = \"fp8\"\n[fp8]\nbackend = \"msamp\"\n"
            "[fp8.msamp]\nopt_level = \"O1\"\n[layers]\nskip = []\n");
  EXPECT_THAT(f.out, ContainsRegex("bf16.enabled +true +stays: what does not run in fp8"));
  EXPECT_THAT(f.out, ContainsRegex("zero_optimization.. +... +stays: DeepSpeed"));
  f = settings("{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": false}}");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(result(), "schema = 1\nmixed_precision = \"bf16\"\n");
  EXPECT_THAT(f.err, HasSubstr("warning: mixed_precision is bf16, so nothing runs in FP8"));
  EXPECT_EQ(settings("{\"fp8\": {\"enabled\": true, \"margin\": 1}}").exit_code, 0);
  EXPECT_THAT(result(), HasSubstr("[fp8.te]\nrecipe = \"delayed\"\nmargin = 1\n"));
  EXPECT_EQ(settings("{\"msamp\": {\"enabled\": true, \"use_te\": true}}").exit_code, 1);
  f = settings("{\"bf16\": {\"enabled\": \"auto\"}}");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("where it is \"auto\", import the config.yaml of the launcher"));
}

TEST_F(CliImport, bad_files_name_the_place) {
  const std::string fp8 = "mixed_precision: fp8\nfp8_config:\n";
  std::string deep;
  for (int i = 0; i < 20000; ++i) deep += "{a: ";
  for (const auto &[text, says] : std::vector<std::pair<std::string, std::string>>{
           {fp8 + "  margin: 99\n",
            ":3:11: fp8_config.margin becomes fp8.te.margin: expected 0 to 30, found 99\n"},
           {fp8 + "  margin: high\n",
            ":3:11: fp8_config.margin: expected an integer, found high\n"},
           {fp8 + "  margn: 1\n",
            ":3:3: unknown key \"fp8_config.margn\"; did you mean \"margin\"?"},
           {fp8 + "  backend: TEE\n", ":3:12: fp8_config.backend: expected \"TE\", \"MSAMP\" or"},
           {fp8 + "  override_linear_precision: [true]\n", "expected three booleans for fprop"},
           {fp8 + "  margin: 1\n  margin: 2\n", ":4:11: fp8_config.margin: expected one value"},
           {fp8 + "  opt_level: O1\n  optimization_level: O2\n", "sets already; keep one of them"},
           {"mixed_precision: fp8\nfp8_config: 3\n",
            ":2:13: fp8_config: expected keys with values, found 3\n"},
           {"mixed_precision: &a fp8\n", ":1:18: expected a value, found an anchor"},
           {"mixed_precision: *a\n", ":1:18: not valid YAML: "},
           {fp8 + "  margin: !!int 3\n", ":3:11: expected a plain value, found the tag"},
           {"a: [1\nb: }\n", ":2:2: not valid YAML: "},
           {"mixed_precision: fp8\n---\na: 1\n", "expected one document, found a second"},
           {"text\n", ":1:1: expected keys with values, found only a text\n"},
           {"- a\n", ":1:1: expected keys with values, found a list\n"},
           {"", "expected an Accelerate config.yaml or a DeepSpeed JSON file, found no keys"},
           {"services: {a: 1}\n", "found the key \"services.a\""},
           {"a: " + deep, "expected at most 32 levels, found more\n"},
           {"num_processes: 2\n", "which means mixed_precision: no; there is nothing to import\n"},
           {std::string("ab\n\0c", 5), ":2:1: expected text in UTF-8, found the byte 0;"},
           {std::string(1200000, '#'), "expected at most 1048576 bytes, found more;"},
           {"{\"bf16\": 1,\n \"b\" 3}", ":2:6: not valid JSON: "},
           {"{\"bf16\": 1, \"bf16\": 2}", "bf16: expected each key once, found it twice\n"}}) {
    const Finished f = import(text);
    EXPECT_EQ(f.exit_code, 2) << f.err;
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, AllOf(StartsWith("error: " + source + ":"), HasSubstr(says)));
  }
  EXPECT_THAT(octavo({"init", "--from", dir.path(), "--dry-run"}).err,
              HasSubstr(": expected a regular file, found a directory"));
  EXPECT_THAT(octavo({"init", "--from", dir / "none", "--dry-run"}).err,
              HasSubstr("/none: cannot be read: No such file or directory; "));
  EXPECT_THAT(octavo({"init", "--from", "/dev/zero", "--dry-run"}).err,
              HasSubstr("expected a regular file, found a device"));
  EXPECT_EQ(octavo({"init", "--dry-run"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliImport, a_folder_that_is_not_there_or_is_the_output) {
  source = dir.write("config.yaml", kGuide);
  EXPECT_THAT(octavo({"init", "--from", source, "--output", dir / "no/octavo.toml"}).err,
              HasSubstr("no/octavo.toml: cannot be written: No such file or directory; "));
  EXPECT_THAT(octavo({"init", "--from", source, "--force", "--output", dir.path()}).err,
              HasSubstr(": expected the name of a file, found a directory; "));
}

TEST_F(CliImport, precision_no_is_a_warning) {
  const Finished f = import("mixed_precision: 'no'\ndebug: false\ndebug: false\n");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.err, StartsWith("warning: mixed_precision is no, so nothing runs in FP8; "));
  EXPECT_EQ(result(), "schema = 1\nmixed_precision = \"no\"\n");
}

// The rows of a table in Markdown as CSV.
std::string csv_of(const std::string &table) {
  std::string csv;
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    const std::string line = table.substr(at, end - at);
    at = end + 1;
    if (line.size() < 4 || line.rfind("|---", 0) == 0) continue;
    const std::string cells = line.substr(2, line.size() - 4);
    for (size_t from = 0, to = 0; to != std::string::npos; from = to + 3) {
      to = cells.find(" | ", from);
      std::string quoted;
      for (char c : cells.substr(from, to - from)) quoted += c == '"' ? "\"\"" : std::string(1, c);
      if (quoted.find_first_of("\",") != std::string::npos) quoted = '"' + quoted + '"';
      csv += quoted + (to == std::string::npos ? "\n" : ",");
    }
  }
  return csv;
}

TEST_F(CliImport, the_table_of_keys_is_import_keys_csv) {
  const Finished f = octavo({"init", "--list-keys"});
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.out, StartsWith("| Key | Where | Becomes | Note |\n|---|---|---|---|\n"));
  EXPECT_EQ(csv_of(f.out), read_text(OCTAVO_SOURCE_DIR "/docs/import_keys.csv"));
}

}  // namespace
}  // namespace octavo::test
