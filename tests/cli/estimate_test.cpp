// octavo estimate: the sizes of known models, and what is refused. Against a real training:
// tests/samples/train_gpt_estimate_test.cpp.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliEstimate : public Cli {
 protected:
  std::string model(const json &j) { return dir.write("model.json", j.dump()); }
  json estimate(const json &of, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"estimate", model(of), "--json"});
    const Finished f = octavo(more);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return json::parse(f.out, nullptr, false);
  }
  static const json &column(const json &of, const std::string &name) {
    for (const json &c : of["columns"])
      if (c["name"] == name) return c;
    static const json none = json::object();
    ADD_FAILURE() << "no column " << name;
    return none;
  }

  const json gpt2 = {{"model_type", "gpt2"}, {"n_embd", 768},       {"n_layer", 12},
                     {"vocab_size", 50257},  {"n_positions", 1024}, {"n_inner", nullptr}};
};

json llama(const char *type, int64_t width, int64_t inner, int64_t layers, int64_t heads,
           int64_t pairs, int64_t words, bool tied = false) {
  return {{"model_type", type},           {"hidden_size", width},
          {"intermediate_size", inner},   {"num_hidden_layers", layers},
          {"num_attention_heads", heads}, {"num_key_value_heads", pairs},
          {"vocab_size", words},          {"tie_word_embeddings", tied}};
}

// The parameter counts that the models are published with.
TEST_F(CliEstimate, counts_the_parameters_of_known_models) {
  const std::pair<json, uint64_t> known[] = {
      {gpt2, 124439808},                                                  // gpt2
      {llama("llama", 4096, 11008, 32, 32, 32, 32000), 6738415616},       // Llama-2-7b
      {llama("llama", 4096, 14336, 32, 32, 8, 128256), 8030261248},       // Llama-3-8B
      {llama("llama", 2048, 8192, 16, 32, 8, 128256, true), 1235814400},  // Llama-3.2-1B
      {llama("mistral", 4096, 14336, 32, 32, 8, 32000), 7241732096},      // Mistral-7B-v0.1
      {llama("qwen2", 3584, 18944, 28, 28, 4, 152064), 7615616512},       // Qwen2-7B
  };
  for (const auto &[config, parameters] : known)
    EXPECT_EQ(estimate(config, {"--backend", "te"})["parameters"], parameters) << config;
}

TEST_F(CliEstimate, compares_what_hosts_and_backends_keep) {
  const json j = estimate(gpt2);
  const uint64_t all = j["parameters"], linear = j["parameters_of_linears"], rest = all - linear;
  EXPECT_EQ(linear, 12 * 12 * 768 * 768);
  ASSERT_EQ(j["columns"].size(), 6u);
  EXPECT_EQ(column(j, "fp32")["total"], 16 * all);
  EXPECT_EQ(column(j, "bf16")["total"], 16 * all + 2 * linear);
  EXPECT_EQ(column(j, "te")["linears_in_fp8"], 48);
  EXPECT_EQ(column(j, "te")["bytes"]["weight_cache"], 2 * linear);
  // docs/config.md: bytes per element of a linear's weight by level, and of the rest.
  for (const auto &[level, weight, moments, master] :
       {std::tuple("O1", 2, 8, 0), std::tuple("O2", 2, 3, 0), std::tuple("O3", 1, 3, 2)}) {
    const json b = column(j, std::string("msamp:opt_level=") + level)["bytes"];
    EXPECT_EQ(b["weight"], weight * linear + 4 * rest) << level;
    EXPECT_EQ(b["gradient"], linear + 4 * rest) << level;
    EXPECT_EQ(b["exp_avg"].get<uint64_t>() + b["exp_avg_sq"].get<uint64_t>(), moments * all)
        << level;
    EXPECT_EQ(b["master_weight"], master * linear) << level;
  }
  for (const json &c : j["columns"]) EXPECT_EQ(c["bytes"]["saved"], 0);
}

TEST_F(CliEstimate, a_shared_input_is_saved_once_by_a_host) {
  const json config = llama("llama", 64, 128, 1, 4, 4, 100, true);
  const json j = estimate(config, {"--batch", "2", "--sequence", "16"});
  // norm -> q, k, v; attention -> o; norm -> gate, up; the product -> down.
  EXPECT_EQ(column(j, "fp32")["bytes"]["saved"], 32 * (64 + 64 + 64 + 128) * 4);
  EXPECT_EQ(column(j, "bf16")["bytes"]["saved"], 32 * (64 + 64 + 64 + 128) * 2);
  // te saves the codes of each linear, a byte an element, and their scale: f32, of 7 linears.
  EXPECT_EQ(column(j, "te")["bytes"]["saved"], 32 * (3 * 64 + 64 + 2 * 64 + 128) + 7 * 4);
}

TEST_F(CliEstimate, the_configuration_and_other_backends_count) {
  const std::string file = dir.write("octavo.toml", "[layers]\nskip = [\"*mlp*\"]\n");
  json j = estimate(gpt2, {"--config", file, "--backend", "te:recipe=block"});
  ASSERT_EQ(j["columns"].size(), 3u);
  EXPECT_EQ(column(j, "te:recipe=block")["linears_in_fp8"], 24);
  // One without an optimizer and without memory of its own: weights, gradients and AdamW are the
  // host's.
  j = estimate(gpt2, {"--backend", "reference"});
  const json b = column(j, "reference")["bytes"];
  for (const char *part : {"weight", "gradient", "exp_avg", "exp_avg_sq"})
    EXPECT_EQ(b[part], 4 * j["parameters"].get<uint64_t>()) << part;
}

TEST_F(CliEstimate, page_of_80_columns_with_bars) {
  const Finished f = octavo({"estimate", model(gpt2)});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("\nMiB                    weights gradients optimizer    caches     "
                               "saved       sum\n"));
  EXPECT_THAT(f.out, HasSubstr("\nfp32                     474.7     474.7     949.4       0.0     "
                               "    -    1898.8\n"));
  std::string bar;
  // Of 60 columns for te's 2061.4 MiB.
  for (int i = 0; i < 14; ++i) bar += "█";
  EXPECT_THAT(f.out, HasSubstr("\nfp32                " + bar + "▓"));
  std::istringstream all(f.out);
  for (std::string line; std::getline(all, line);) {
    size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    EXPECT_TRUE(columns <= 80 || line.find(dir.path()) != std::string::npos) << line;
  }
}

TEST_F(CliEstimate, a_backend_that_does_not_run) {
  const Finished f = octavo({"estimate", model(gpt2), "--backend", "absent", "--backend", "te"});
  EXPECT_EQ(f.exit_code, 1);
  EXPECT_THAT(f.out, HasSubstr("\nabsent                does not run here\n"));
  EXPECT_THAT(f.out, HasSubstr("\nrefused    absent: "));
  EXPECT_THAT(f.out, HasSubstr("\nte  "));
}

TEST_F(CliEstimate, refuses_what_it_cannot_estimate) {
  const auto refused = [&](const std::string &text, const std::string &words,
                           std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"estimate", dir.write("model.json", text)});
    const Finished f = octavo(more);
    EXPECT_EQ(f.exit_code, 2) << text;
    EXPECT_EQ(f.out, "") << text;
    EXPECT_THAT(f.err, HasSubstr("error: ")) << text;
    EXPECT_THAT(f.err, HasSubstr(words)) << text;
  };
  refused(
      "{\"model_type\": \"mixtral\"}",
      "model_type: expected \"gpt2\", \"llama\", \"mistral\" or \"qwen2\", found \"mixtral\"; a "
      "shapes file works for every model (page estimate)");
  refused("{\"architectures\": [\"X\"]}", "found nothing; a shapes file");
  refused("{\"model_type\": \"gpt2\"}",
          "n_embd: expected a whole number from 1 to 2147483648, "
          "found nothing");
  refused("{\"model_type\": \"gpt2\", \"n_embd\": \"768\"}", "found \"768\"");
  refused("{\"model_type\": \"gpt2\", \"n_embd\": 0}", "found 0");
  refused("{", "not valid JSON: parse error at line 1, column 2");
  refused("[]", "expected an object, found array");
  refused("{}", "found none of them");
  refused("{\"linears\": []}", "expected a tensor, found none");
  refused("{\"linears\": [{\"name\": \"a\", \"n\": 4, \"k\": 4, \"bais\": true}]}",
          "linears[0]: unknown key \"bais\"; expected name, n, k, bias, input or count");
  refused(
      "{\"linears\": [{\"name\": \"a\", \"n\": 4, \"k\": 4}, {\"name\": \"a\", \"n\": 4, "
      "\"k\": 4}]}",
      "two tensors have the name \"a.weight\"");
  refused("{\"linears\": [{\"n\": 4, \"k\": 4}]}", "linears[0].name: expected a text, found none");
  refused("{\"parameters\": [{\"name\": \"a\", \"rows\": 2147483648, \"cols\": 2147483648}]}",
          "expected fewer than 2^56 elements");
  refused("{\"parameters\": [{\"name\": \"a\", \"cols\": 1, \"count\": 2147483648}]}",
          "expected at most 100000 tensors");
  refused(gpt2.dump(), "expected NAME or NAME:KEY=VALUE", {"--backend", "msamp:O3"});
  refused(gpt2.dump(), "opt_level", {"--backend", "msamp:opt_level=O9"});
  const Finished f = octavo({"estimate", dir / "none.json"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("cannot be read: No such file or directory; check the path and its "
                               "permissions; a Hugging Face config.json"));
  EXPECT_EQ(octavo({"estimate", model(gpt2), "--batch", "4"}).exit_code, 2);
}

}  // namespace
}  // namespace octavo::test
