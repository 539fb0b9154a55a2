// Configurations of transformers: the names of its keys and its defaults, as the classes
// GPT2Config, LlamaConfig, MistralConfig and Qwen2Config of huggingface/transformers have them.
#include "sdk/cli/estimate/shapes.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::estimate {
namespace {

void linear(Shapes &s, const std::string &name, int64_t n, int64_t k, bool bias,
            const std::string &input) {
  s.tensors.push_back({name + ".weight", n, k, name, input});
  if (bias) s.tensors.push_back({name + ".bias", 1, n});
}

void plain(Shapes &s, const std::string &name, int64_t rows, int64_t cols) {
  s.tensors.push_back({name, rows, cols});
}

void gpt2(const std::string &path, const Json &j, Shapes &s) {
  const int64_t width = whole(path, j, "n_embd"), layers = whole(path, j, "n_layer"),
                inner = whole(path, j, "n_inner", 4 * width), words = whole(path, j, "vocab_size"),
                places = whole(path, j, "n_positions");
  plain(s, "wte.weight", words, width);
  plain(s, "wpe.weight", places, width);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string h = concat("h.", i, ".");
    for (const char *norm : {"ln_1", "ln_2"}) {
      plain(s, h + norm + ".weight", 1, width);
      plain(s, h + norm + ".bias", 1, width);
    }
    linear(s, h + "attn.c_attn", 3 * width, width, true, h + "ln_1");
    linear(s, h + "attn.c_proj", width, width, true, h + "attn");
    linear(s, h + "mlp.c_fc", inner, width, true, h + "ln_2");
    linear(s, h + "mlp.c_proj", width, inner, true, h + "mlp");
  }
  plain(s, "ln_f.weight", 1, width);
  plain(s, "ln_f.bias", 1, width);
  // A tied head is the embedding, which is not converted.
  if (!truth(path, j, "tie_word_embeddings", true))
    linear(s, "lm_head", words, width, false, "ln_f");
}

// qkv_bias: of q, k and v where no key says it.
void llama(const std::string &path, const Json &j, Shapes &s, bool qkv_bias) {
  const int64_t width = whole(path, j, "hidden_size"), inner = whole(path, j, "intermediate_size"),
                layers = whole(path, j, "num_hidden_layers"),
                heads = whole(path, j, "num_attention_heads"),
                pairs = whole(path, j, "num_key_value_heads", heads),
                words = whole(path, j, "vocab_size"),
                head = whole(path, j, "head_dim", width / heads == 0 ? 1 : width / heads);
  const bool bias = truth(path, j, "attention_bias", false);
  const bool mlp_bias = truth(path, j, "mlp_bias", false);
  plain(s, "embed_tokens.weight", words, width);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string l = concat("layers.", i, ".");
    plain(s, l + "input_layernorm.weight", 1, width);
    plain(s, l + "post_attention_layernorm.weight", 1, width);
    const std::string in = l + "input_layernorm", after = l + "post_attention_layernorm";
    linear(s, l + "self_attn.q_proj", heads * head, width, bias || qkv_bias, in);
    linear(s, l + "self_attn.k_proj", pairs * head, width, bias || qkv_bias, in);
    linear(s, l + "self_attn.v_proj", pairs * head, width, bias || qkv_bias, in);
    linear(s, l + "self_attn.o_proj", width, heads * head, bias, l + "self_attn");
    linear(s, l + "mlp.gate_proj", inner, width, mlp_bias, after);
    linear(s, l + "mlp.up_proj", inner, width, mlp_bias, after);
    linear(s, l + "mlp.down_proj", width, inner, mlp_bias, l + "mlp");
  }
  plain(s, "norm.weight", 1, width);
  if (!truth(path, j, "tie_word_embeddings", false))
    linear(s, "lm_head", words, width, false, "norm");
}

}  // namespace

bool is_huggingface(const Json &j) {
  return j.contains("model_type") || j.contains("architectures");
}

Shapes huggingface_shapes(const std::string &path, const Json &j) {
  const Json type = j.contains("model_type") ? j["model_type"] : Json();
  Shapes s;
  if (type == "gpt2")
    gpt2(path, j, s);
  else if (type == "llama" || type == "mistral")
    llama(path, j, s, false);
  else if (type == "qwen2")
    llama(path, j, s, true);
  else
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path,
                  ": model_type: expected \"gpt2\", \"llama\", \"mistral\" or \"qwen2\", found ",
                  type.is_null() ? "nothing" : type.dump(),
                  "; a shapes file works for every model (page estimate)");
  s.kind = type;
  return s;
}

}  // namespace octavo::cli::estimate
