// octavo init: answers by options and on standard input, and how they arrive at the backend.
#include <filesystem>

#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class CliInit : public Cli {
 protected:
  CliInit() : out(dir / "octavo.toml") {}

  Finished init(std::vector<std::string> more) {
    more.insert(more.begin(), {"init", "--output", out});
    return octavo(more);
  }
  // With these lines on standard input.
  Finished asked(const std::string &lines, const std::string &options = "") {
    return run_program(
        {"/bin/sh", "-c",
         "printf '" + lines + "' | " OCTAVO_CLI " init --output " + out + " " + options});
  }
  // What the session of the backend got; every option from the file has its line as its origin.
  json options() {
    const Finished f = octavo({"check", "--json", out});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    const json report = json::parse(f.out);
    json values = {{"backend", report["backend"]["id"]}};
    for (const auto &[name, option] : report["options"].items())
      if (option["origin"].get<std::string>().starts_with(out + ":"))
        values[name] = option["value"];
    return values;
  }
  json core(const std::string &key) {
    return json::parse(octavo({"config", "show", "--json", out}).out)["settings"][key]["value"];
  }

  const std::string out;
};

TEST_F(CliInit, defaults_run_here) {
  const Finished f = init({"--yes"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  EXPECT_EQ(options(), json({{"backend", "te"},
                             {"recipe", "delayed"},
                             {"fp8_format", "default"},
                             {"amax_history_len", 16},
                             {"amax_compute_algo", "max"},
                             {"margin", 0},
                             {"use_autocast_during_eval", false}}));
  EXPECT_THAT(f.out, HasSubstr(read_text(out)));
  EXPECT_THAT(f.out, ContainsRegex("\nwanted +fp8, backend te\nruns +fp8\ndevice +cpu "));
  EXPECT_THAT(f.out, HasSubstr("\n" + out + " is written. Next: octavo check " + out + "\n"));
  EXPECT_THAT(read_text(out),
              HasSubstr("# How the scales of FP8 tensors are computed.\nrecipe = "));
}

// One recommendation: what init writes, what the samples have, what docs/recipes.md says.
TEST_F(CliInit, defaults_are_those_of_the_samples) {
  const auto values = [&](const std::string &file) {
    const json checked = json::parse(octavo({"config", "show", "--json", file}).out);
    json found = json::object();
    for (const auto &[key, setting] : checked["settings"].items()) found[key] = setting["value"];
    return found;
  };
  ASSERT_EQ(init({"--yes"}).exit_code, 0);
  const json written = values(out);
  EXPECT_EQ(written["fp8.te.amax_history_len"], 16);
  EXPECT_EQ(written["layers.skip"], json({"*head*"}));
  for (const char *sample : {"samples/train_gpt/octavo.toml", "samples/python/octavo.toml"})
    EXPECT_EQ(values(std::string(OCTAVO_SOURCE_DIR "/") + sample), written) << sample;
}

TEST_F(CliInit, options_arrive_at_te) {
  const Finished f = init({"--yes",        "--device",    "cpu",         "--backend", "te",
                           "--recipe",     "delayed",     "--format",    "E4M3",      "--history",
                           "32",           "--algorithm", "most_recent", "--margin",  "3",
                           "--interval",   "1",           "--eval",      "yes",       "--skip",
                           "*head*, lm.*", "--engine",    "mpi"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(options(), json({{"backend", "te"},
                             {"recipe", "delayed"},
                             {"fp8_format", "E4M3"},
                             {"amax_history_len", 32},
                             {"amax_compute_algo", "most_recent"},
                             {"margin", 3},
                             {"interval", 1},
                             {"use_autocast_during_eval", true}}));
  EXPECT_EQ(core("device.kind"), "cpu");
  EXPECT_EQ(core("layers.skip"), json({"*head*", "lm.*"}));
  EXPECT_EQ(core("distributed.engine"), "mpi");
}

TEST_F(CliInit, options_arrive_at_msamp_and_at_a_backend_of_others) {
  EXPECT_EQ(init({"--yes", "--backend", "msamp", "--level", "O3", "--history", "8"}).exit_code, 0);
  EXPECT_EQ(options(), json({{"backend", "msamp"}, {"opt_level", "O3"}, {"amax_history_len", 8}}));
  const Finished f = with_fake({"init", "--yes", "--force", "--output", out, "--backend", "fake"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  const json checked = json::parse(with_fake({"config", "show", "--json", out}).out);
  EXPECT_EQ(checked["settings"]["fp8.backend"]["value"], "fake");
}

TEST_F(CliInit, as_json) {
  Finished f = init({"--yes", "--json", "--recipe", "current", "--skip", "*head*"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  json j = by_schema("init", f);
  EXPECT_EQ(j["written"], out);
  EXPECT_EQ(j["backend"], "te");
  EXPECT_EQ(j["recipe"], "current");
  EXPECT_EQ(j["settings"]["layers.skip"], json({"*head*"}));
  for (const auto &[key, value] : j["settings"].items()) EXPECT_EQ(core(key), value) << key;
  j = by_schema("init", init({"--yes", "--json", "--force", "--backend", "msamp"}));
  EXPECT_EQ(j["recipe"], nullptr);
  f = init({"--yes", "--json", "--force", "--interval", "2"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_EQ(f.out, "");
  f = asked("1\\n", "--json --force");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("--yes"));
}

TEST_F(CliInit, questions_take_numbers_words_and_defaults) {
  const Finished f = asked("2\\n\\ncurrent\\n3\\nmaybe\\nyes\\n*head*\\n");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(options(), json({{"backend", "te"},
                             {"recipe", "current"},
                             {"fp8_format", "E4M3"},
                             {"use_autocast_during_eval", true}}));
  EXPECT_EQ(core("device.kind"), "cpu");
  EXPECT_EQ(core("layers.skip"), json({"*head*"}));
  for (const char *unasked : {"engine", "interval"}) EXPECT_THAT(f.out, Not(HasSubstr(unasked)));
  EXPECT_THAT(f.out, AllOf(HasSubstr("\nOn which device?\n  1  auto "),
                           HasSubstr("\n  2  current "), HasSubstr("\n[delayed]: "),
                           HasSubstr("--eval: expected yes or no, found \"maybe\"\n[no]: "),
                           Not(HasSubstr("margin"))));
}

TEST_F(CliInit, what_this_machine_refuses_is_shown_with_the_reason) {
  const Finished f = asked("\\n\\n\\nE5M2\\n\\n\\n\\n40\\n2\\n\\n\\n");
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("\n  -  E5M2         not here: pure E5M2 training is not"));
  EXPECT_THAT(f.out, HasSubstr("\n[default]: not here: pure E5M2 training is not supported"));
  EXPECT_THAT(f.out, HasSubstr("not here: fp8.te.margin: expected 0 to 30, found 40\n[0]: "));
  EXPECT_EQ(options()["margin"], 2);
}

TEST_F(CliInit, an_option_that_is_refused_writes_nothing) {
  for (const auto &[words, exit, says] :
       std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{"--interval", "2"}, 1, "error: --interval 2: scales are computed in every step"},
           {{"--format", "E5M2"}, 1, "error: --format E5M2: pure E5M2 training is not"},
           {{"--margin", "99"}, 1, "error: --margin 99: fp8.te.margin: expected 0 to 30"},
           {{"--recipe", "delay"}, 2, "did you mean \"delayed\"?"},
           {{"--backend", "tee"}, 2, "error: --backend: expected "},
           {{"--history", "many"}, 2, "--history: expected a whole number, found \"many\""},
           {{"--level", "O1"}, 2, "error: --level O1: backend te with recipe delayed has no such"},
           {{"--recipe", "mx", "--margin", "1"}, 2, "backend te with recipe mx has no such"}}) {
    std::vector<std::string> all = words;
    all.insert(all.begin(), "--yes");
    const Finished f = init(all);
    EXPECT_EQ(f.exit_code, exit) << words[0] << f.err;
    EXPECT_THAT(f.err, HasSubstr(says));
    EXPECT_EQ(f.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliInit, the_end_of_standard_input_is_no_answer) {
  const Finished f = asked("1\\n");
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.err,
            "error: expected an answer to \"Which backend?\", found the end of standard input; "
            "--backend answers it, and --yes takes every default\n");
  EXPECT_FALSE(std::filesystem::exists(out));
  const Finished endless =
      run_program({"/bin/sh", "-c", OCTAVO_CLI " init --output " + out + " < /dev/zero"});
  EXPECT_EQ(endless.exit_code, 2);
  EXPECT_THAT(endless.err, HasSubstr("expected an answer of at most 4096 bytes, found a longer"));
}

TEST_F(CliInit, never_replaces_a_file_without_force) {
  dir.write("octavo.toml", "mine\n");
  const Finished f = init({"--yes"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr(" exists already; use --force to overwrite it"));
  EXPECT_EQ(read_text(out), "mine\n");
  EXPECT_EQ(init({"--yes", "--force"}).exit_code, 0);
  EXPECT_EQ(options()["backend"], "te");
}

}  // namespace
}  // namespace octavo::test
