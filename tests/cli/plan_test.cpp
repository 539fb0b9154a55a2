// octavo estimate --mesh: meshes, the bytes that fully_shard was measured with, and what is
// refused. Against ranks that train: tests/samples/train_gpt_plan_test.cpp.
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliPlan : public Cli {
 protected:
  CliPlan() {
    dir.write("model.json", R"({"linears": [{"name": "fc", "n": 256, "k": 512, "count": 3}]})");
    dir.write("odd.json",
              R"({"linears": [{"name": "fc", "n": 100, "k": 64, "bias": true}],
                  "parameters": [{"name": "embed", "rows": 1001, "cols": 64}]})");
    dir.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12,
                               "vocab_size": 50257, "n_positions": 1024})");
  }
  Finished plan(const std::string &model, std::vector<std::string> more) {
    more.insert(more.begin(), {"estimate", dir / model});
    return octavo(more);
  }
  // The first plan.
  json planned(const std::string &model, std::vector<std::string> more) {
    more.push_back("--json");
    const Finished f = plan(model, more);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return json::parse(f.out, nullptr, false)["columns"][0];
  }
  static json operation(const json &of, const std::string &what, const std::string &collective) {
    for (const json &o : of["wire"])
      if (o["what"] == what && o["collective"] == collective) return o;
    ADD_FAILURE() << "no " << what << " by " << collective << " in " << of;
    return json::object();
  }
};

// The table docs/results/fsdp_gather.csv, which fsdp_wire.py measures on two ranks.
TEST_F(CliPlan, has_the_measured_bytes_of_gathers) {
  const std::pair<const char *, std::vector<std::string>> rows[] = {
      {"values, float32", {}},
      {"values, bfloat16", {"--dtype", "bfloat16"}},
      {"codes, delayed", {"--gather", "fp8"}},
      {"codes, current", {"--gather", "fp8", "--backend", "te:recipe=current"}},
      {"codes, block", {"--gather", "fp8", "--backend", "te:recipe=block"}},
      {"codes, mx", {"--gather", "fp8", "--backend", "te:recipe=mx"}},
      {"codes, mx with `mxfp8_2d_quantization`",
       {"--gather", "fp8", "--backend", "te:recipe=mx,mxfp8_2d_quantization=true"}}};
  std::ifstream file(OCTAVO_SOURCE_DIR "/docs/results/fsdp_gather.csv");
  std::ostringstream table;
  table << file.rdbuf();
  for (const auto &[name, options] : rows) {
    const std::string text = table.str(), begin = "\n\"" + std::string(name) + "\",";
    const size_t at = text.find(begin);
    ASSERT_NE(at, std::string::npos) << name;
    const std::string rest = text.substr(at + begin.size()),
                      number = rest.substr(0, rest.find(','));
    std::vector<std::string> all = {"--mesh", "2", "--parallel", "fsdp"};
    all.insert(all.end(), options.begin(), options.end());
    EXPECT_EQ(operation(planned("model.json", all), "weights", "all_gather")["given"],
              std::stoull(number))
        << name;
  }
}

TEST_F(CliPlan, shards_replicas_and_padding) {
  // 1001 rows in 4 shards: 251 each, the last one padded. Vectors are divided along their elements.
  const uint64_t embed = 251 * 64, weight = 25 * 64, bias = 25, shard = embed + weight + bias;
  for (const auto &[mesh, replicas] : {std::pair("4", 1), std::pair("8x4", 8)}) {
    const json p = planned("odd.json", {"--mesh", mesh, "--parallel", "fsdp"});
    EXPECT_EQ(p["fullest"]["bytes"]["weight"], 4 * shard);
    EXPECT_EQ(p["fullest"]["bytes"]["exp_avg"], 4 * shard);
    EXPECT_EQ(p["fullest"]["bytes"]["weight_cache"], 0);
    EXPECT_EQ(operation(p, "weights", "all_gather")["given"], 2 * 4 * shard);
    EXPECT_EQ(operation(p, "weights", "all_gather")["sent"], 2 * 3 * 4 * shard);
    EXPECT_EQ(operation(p, "gradients", "reduce_scatter_sum")["given"], 4 * 4 * shard);
    EXPECT_EQ(operation(p, "gradients", "reduce_scatter_sum")["sent"], 3 * 4 * shard);
    if (replicas > 1) {
      const json o = operation(p, "gradients", "all_reduce_sum");
      EXPECT_EQ(o["ranks"], 8);
      EXPECT_EQ(o["given"], 4 * shard);
    }
    EXPECT_EQ(operation(p, "maxima and counts", "all_reduce_max")["ranks"], 4 * replicas);
  }
  // 100 rows do not divide by 8 ranks: their values are gathered.
  EXPECT_EQ(planned("odd.json", {"--mesh", "8", "--parallel", "fsdp", "--gather",
                                 "fp8"})["weights_gathered_as_codes"],
            0);
}

// What one rank has, and what stays equal on any number of them.
TEST_F(CliPlan, more_ranks_than_this_machine) {
  const json one = planned("gpt2.json", {"--mesh", "1", "--backend", "msamp:opt_level=O3"});
  EXPECT_EQ(one["wire"], json::array());
  uint64_t before = UINT64_MAX;
  for (const char *mesh : {"8", "64", "512"}) {
    const json p = planned("gpt2.json", {"--mesh", mesh, "--backend", "msamp:opt_level=O3"});
    const uint64_t ranks = std::stoull(mesh), most = p["fullest"]["total"];
    for (const char *part : {"exp_avg", "exp_avg_sq", "master_weight"})
      EXPECT_EQ(p["all"]["bytes"][part], one["fullest"]["bytes"][part]) << mesh << " " << part;
    for (const char *part : {"weight", "gradient", "weight_cache"})
      EXPECT_EQ(p["fullest"]["bytes"][part], one["fullest"]["bytes"][part]) << mesh << " " << part;
    EXPECT_LE(most, before) << mesh;
    EXPECT_LE(p["least"]["total"], most);
    EXPECT_LE(p["all"]["total"], ranks * most);
    before = most;
  }
  const json te = planned("gpt2.json", {"--mesh", "512", "--backend", "te"});
  const json o = operation(te, "gradients", "all_reduce_sum");
  EXPECT_EQ(o["given"], 4 * 124439808ull);
  EXPECT_NEAR(o["sent"].get<double>(), 2.0 * 511 / 512 * 4 * 124439808, 200);
  EXPECT_EQ(te["fullest"]["total"], te["least"]["total"]);
}

// Three weights of 131072 elements, each of another rank: 4 buckets of one exchange or two.
TEST_F(CliPlan, means_that_owners_alone_get) {
  const uint64_t elements = 3 * 131072;
  for (const auto &[exchange, given] :
       {std::pair("0", elements / 4), std::pair("1099511627776", elements)}) {
    const std::string backend = std::string("msamp:one_shot_bytes=") + exchange;
    const json all = planned("model.json", {"--mesh", "4", "--backend", backend});
    EXPECT_EQ(operation(all, "gradients", "all_gather")["sent"], 3 * given);
    const json owner =
        planned("model.json", {"--mesh", "4", "--backend", backend, "--gradients", "owner"});
    const json o = operation(owner, "gradients", "gather");
    EXPECT_EQ(o["calls"], 3);
    EXPECT_EQ(o["given"], given);
    EXPECT_EQ(o["sent"], given * 3 / 4);
    for (const json &other : owner["wire"])
      EXPECT_FALSE(other["what"] == "gradients" && other["collective"] == "all_gather") << owner;
    for (const char *what : {"fullest", "least", "all"}) EXPECT_EQ(owner[what], all[what]);
  }
  // MS-AMP's own scale of a reduction is on every rank, so all of them get the mean.
  const json parity = planned(
      "model.json", {"--mesh", "4", "--backend", "msamp:profile=msamp04", "--gradients", "owner"});
  EXPECT_GT(operation(parity, "gradients", "all_gather")["sent"], 0);
}

TEST_F(CliPlan, prints_ranks_and_wire) {
  const Finished f = plan("model.json", {"--mesh", "8x8", "--gather", "fp8"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("64 ranks, hsdp: 8 replicas of 8 shards"));
  EXPECT_THAT(f.out, HasSubstr("Memory of the rank that holds most"));
  EXPECT_THAT(f.out, HasSubstr("On the wire, bytes of a rank in a step: te"));
  EXPECT_THAT(f.out, HasSubstr("3 of 3 weights are gathered as codes"));
  std::istringstream lines(f.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(CliPlan, refuses_what_is_not_there_by_name) {
  const auto refused = [&](std::vector<std::string> more, int code, const std::string &text) {
    const Finished f = plan("model.json", more);
    EXPECT_EQ(f.exit_code, code) << f.out << f.err;
    EXPECT_THAT(std::regex_replace(f.out + f.err, std::regex("\\s+"), " "), HasSubstr(text));
  };
  refused({"--mesh", "2x2x2"}, 2, "found 3; tensor and pipeline parallelism are not planned");
  for (const char *mesh : {"0", "8x", "x", "-1", "8,8", "4097"})
    refused({"--mesh", mesh}, 2, "expected sizes from 1 to 4096");
  refused({"--mesh", "128x64"}, 2, "expected at most 4096 ranks, found 8192");
  refused({"--mesh", "8", "--gather", "fp8"}, 2, "add --parallel fsdp");
  refused({"--mesh", "8", "--dtype", "bfloat16"}, 2, "add --parallel fsdp");
  refused({"--mesh", "8x8", "--gradients", "owner"}, 2, "add --parallel ddp");
  refused({"--mesh", "8x8", "--backend", "msamp"}, 1,
          "msamp keeps them in slots; choose the backend te, or --parallel ddp");
  refused({"--mesh", "8x8", "--gather", "fp8", "--backend", "reference"}, 1,
          "octavo.shard/1, reference has none; choose the backend te, or --gather values");
  refused({"--mesh", "8", "--backend", "absent"}, 1, "absent");
  EXPECT_EQ(plan("model.json", {"--parallel", "ddp"}).exit_code, 2);
  EXPECT_EQ(octavo({"plan"}).err, "error: octavo plan is now octavo estimate, with --mesh\n");
}

}  // namespace
}  // namespace octavo::test
