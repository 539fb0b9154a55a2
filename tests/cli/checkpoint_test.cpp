// octavo checkpoint: what it says about a whole checkpoint, a damaged one and two different ones.
#include "tests/cli/schema.h"
#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/sealed_checkpoint.h"

namespace octavo::test {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

class CliCheckpoint : public CheckpointTest {
 protected:
  static Finished octavo(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {OCTAVO_CLI, "checkpoint"});
    return run_program(arguments, false);
  }
  // Another bit in the last byte of a file of the checkpoint.
  static void damage(const std::string &path) {
    std::string file = whole_file(path);
    file.back() = static_cast<char>(file.back() ^ 1);
    put_file(path, file);
  }
  const std::string one = "/rank-0001-of-0002.safetensors";
};

TEST_F(CliCheckpoint, verify_counts_what_is_whole) {
  const std::string directory = saved("c", 2, 7);
  const Finished f = octavo({"verify", directory});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  EXPECT_THAT(f.out,
              ContainsRegex(directory + ": step 7 of run [0-9a-f]+: 2 files, [0-9]+ tensors, "
                                        "[0-9]+ bytes, all as saved\n"));
}

TEST_F(CliCheckpoint, verify_names_everything_that_is_damaged) {
  const std::string directory = saved("c", 2, 7);
  damage(directory + "/rank-0000-of-0002.safetensors");
  damage(directory + one);
  Finished f = octavo({"verify", directory});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_EQ(f.out, "");
  EXPECT_THAT(f.err, ContainsRegex("error: .*rank-0000-of-0002.safetensors: tensor \".*\": "
                                   "expected bytes with the XXH3 hash .*\n"
                                   "error: .*rank-0001-of-0002.safetensors: tensor \".*\": "));
  fs::remove(directory + one);
  f = octavo({"verify", directory});
  EXPECT_EQ(f.exit_code, 3);
  EXPECT_THAT(f.err, HasSubstr("found no rank-0001-of-0002.safetensors"));
  damage(directory + "/manifest.json");
  f = octavo({"verify", directory});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.err, HasSubstr("manifest: "));
}

TEST_F(CliCheckpoint, show_lists_the_tensors_of_every_rank) {
  const std::string directory = saved("c", 2, 7);
  const Finished f = octavo({"show", directory});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, ContainsRegex("run +[0-9a-f]+\nstep +7\nranks +2\nbackend +msamp, saved by"));
  for (const std::string rank : {"0", "1"}) {
    const std::string file = whole_file(directory + "/rank-000" + rank + "-of-0002.safetensors");
    const auto header = nlohmann::json::parse(header_of(file));
    const auto &texts = header["__metadata__"];
    for (const auto &[key, t] : header.items()) {
      if (key == "__metadata__") continue;
      const size_t at = f.out.find("\n   " + rank + "  " + key + " ");
      ASSERT_NE(at, std::string::npos) << key;
      const std::string line = f.out.substr(at + 1, f.out.find('\n', at + 1) - at - 1);
      for (const auto &word :
           {t["dtype"], texts["octavo.role." + key], texts["octavo.xxh3_128." + key]})
        EXPECT_THAT(line, HasSubstr(" " + word.get<std::string>()));
    }
  }
}

TEST_F(CliCheckpoint, diff_lists_what_differs) {
  const std::string a = saved("a", 2, 7), b = saved("b", 2, 7), whole = saved("whole", 1, 8);
  Finished f = octavo({"diff", a, b});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, ContainsRegex("\n[0-9]+ tensors equal, 0 different\n"));
  // Another number of ranks: each tensor once.
  f = octavo({"diff", a, whole});
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
  const std::string c = saved("c", 2, 7, 2);
  f = octavo({"diff", a, c});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, ContainsRegex("session/x/scale: rank 1: F32 \\[1, 3\\] [0-9a-f]+, and F32"));
  CheckpointModel m;
  m.hash = "blake2b";
  f = octavo({"diff", a, saved("blake2b", 2, 7, 1, m)});
  EXPECT_EQ(f.exit_code, 0) << f.out << f.err;
  f = octavo({"diff", saved("blake2b_2", 2, 7, 2, m), a});
  EXPECT_EQ(f.exit_code, 1);
  m = {};
  m.with_bias = false;
  f = octavo({"diff", saved("d", 1, 8, 1, m), whole});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("parameter/bias/exp_avg: rank 0, only in " + whole));
}

TEST_F(CliCheckpoint, verify_as_json) {
  const std::string directory = saved("c", 2, 7);
  Finished f = octavo({"verify", directory, "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  nlohmann::json j = by_schema("checkpoint_verify", f);
  EXPECT_EQ(j["ok"], true);
  EXPECT_EQ(j["step"], 7);
  EXPECT_EQ(j["world"], 2);
  EXPECT_EQ(j["failures"], nlohmann::json::array());
  const std::string text = octavo({"verify", directory}).out;
  EXPECT_THAT(text, HasSubstr("run " + j["run_id"].get<std::string>() + ": 2 files, " +
                              j["tensors"].dump() + " tensors, " + j["bytes"].dump() + " bytes"));
  damage(directory + "/rank-0000-of-0002.safetensors");
  fs::remove(directory + one);
  f = octavo({"verify", directory, "--json"});
  EXPECT_EQ(f.exit_code, 3);
  j = by_schema("checkpoint_verify", f);
  EXPECT_EQ(j["ok"], false);
  ASSERT_EQ(j["failures"].size(), 2u);
  EXPECT_EQ(j["failures"][0]["file"], "rank-0000-of-0002.safetensors");
  EXPECT_TRUE(j["failures"][0]["tensor"].is_string());
  EXPECT_EQ(j["failures"][0]["status"], "OCTAVO_INVALID");
  EXPECT_EQ(j["failures"][1]["file"], "rank-0001-of-0002.safetensors");
  EXPECT_EQ(j["failures"][1]["tensor"], nullptr);
  EXPECT_EQ(j["failures"][1]["status"], "OCTAVO_NO_RESOURCE");
  for (const auto &failure : j["failures"])
    EXPECT_THAT(f.err, HasSubstr("error: " + failure["text"].get<std::string>() + "\n"));
  damage(directory + "/manifest.json");
  f = octavo({"verify", directory, "--json"});
  EXPECT_EQ(f.exit_code, 1);
  j = by_schema("checkpoint_verify", f);
  EXPECT_EQ(j["run_id"], nullptr);
  EXPECT_EQ(j["failures"][0]["file"], nullptr);
}

TEST_F(CliCheckpoint, show_as_json) {
  const std::string directory = saved("c", 2, 7);
  const nlohmann::json j = by_schema("checkpoint_show", octavo({"show", directory, "--json"}));
  EXPECT_EQ(j["directory"], directory);
  EXPECT_EQ(j["backend"], "msamp");
  std::map<std::string, nlohmann::json> of_one;
  for (const auto &t : j["tensors"])
    if (t["rank"] == 1) of_one[t["key"]] = t;
  const auto header = nlohmann::json::parse(header_of(whole_file(directory + one)));
  EXPECT_EQ(of_one.size() + 1, header.size());
  for (const auto &[key, t] : of_one) {
    EXPECT_EQ(t["dtype"], header[key]["dtype"]);
    EXPECT_EQ(t["shape"], header[key]["shape"]);
    EXPECT_EQ(t["role"], header["__metadata__"]["octavo.role." + key]);
    EXPECT_EQ(t["hash"], header["__metadata__"]["octavo.xxh3_128." + key]);
  }
  dir.make_directory("empty");
  const Finished f = octavo({"show", dir / "empty", "--json"});
  EXPECT_EQ(f.exit_code, 3);
  EXPECT_EQ(f.out, "");
}

TEST_F(CliCheckpoint, diff_as_json) {
  const std::string a = saved("a", 2, 7), c = saved("c", 2, 7, 2);
  Finished f = octavo({"diff", a, a, "--json"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  nlohmann::json j = by_schema("checkpoint_diff", f);
  EXPECT_EQ(j["different"], nlohmann::json::array());
  const nlohmann::json all = j["equal"];
  f = octavo({"diff", a, c, "--json"});
  EXPECT_EQ(f.exit_code, 1);
  j = by_schema("checkpoint_diff", f);
  EXPECT_EQ(j["right"]["directory"], c);
  EXPECT_EQ(j["different"].size() + j["equal"].get<size_t>(), all.get<size_t>());
  for (const auto &d : j["different"]) EXPECT_NE(d["left"]["hash"], d["right"]["hash"]);
  CheckpointModel m;
  m.with_bias = false;
  j = by_schema("checkpoint_diff",
                octavo({"diff", saved("d", 1, 8, 1, m), saved("whole", 1, 8), "--json"}));
  bool has_bias = false;
  for (const auto &d : j["different"]) {
    if (d["key"] != "parameter/bias/exp_avg") continue;
    has_bias = true;
    EXPECT_EQ(d["left"], nullptr);
    EXPECT_EQ(d["right"]["key"], d["key"]);
  }
  EXPECT_TRUE(has_bias);
}

TEST_F(CliCheckpoint, wrong_arguments) {
  EXPECT_EQ(octavo({}).exit_code, 2);
  EXPECT_EQ(octavo({"verify"}).exit_code, 2);
  EXPECT_EQ(octavo({"diff", dir / "."}).exit_code, 2);
  EXPECT_THAT(octavo({"show", dir / "none"}).err, HasSubstr("does not exist"));
  dir.make_directory("empty");
  const Finished f = octavo({"show", dir / "empty"});
  EXPECT_EQ(f.exit_code, 3);
  EXPECT_THAT(f.err, HasSubstr("expected files such as rank-0000-of-0001.safetensors"));
  const Finished help = octavo({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 done; 1 something is damaged"));
}

// Keys come from a file: what a terminal would obey does not reach it.
TEST_F(CliCheckpoint, keys_with_control_characters) {
  const std::string directory = saved("c", 1, 1), name = "rank-0000-of-0001.safetensors";
  const std::string key = "session/dy/scale", evil = "session/dy/\\u001b[2J";
  for (const std::string &text : {"\"octavo.role." + key, "\"octavo.xxh3_128." + key, "\"" + key})
    edit_header(directory, name, text + "\"",
                text.substr(0, text.size() - key.size()) + evil + "\"");
  const Finished f = octavo({"show", directory});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.out.find('\x1b'), std::string::npos);
  const Finished raw = octavo({"show", directory, "--json"});
  EXPECT_THAT(raw.out, HasSubstr(evil)) << "JSON has it, escaped";
  EXPECT_EQ(raw.out.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace octavo::test
