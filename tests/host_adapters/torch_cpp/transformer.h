// A small transformer as a user writes one: no word of Octavo in it.
#ifndef TESTS_TORCH_CPP_TRANSFORMER_H
#define TESTS_TORCH_CPP_TRANSFORMER_H

#include <gtest/gtest.h>
#include <octavo/torch/prepare.h>
#include <torch/torch.h>

#include <string>

namespace testing_torch {

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t heads, double drop)
      : heads_(heads),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", nn::Linear(width, 3 * width))),
        proj(register_module("proj", nn::Linear(nn::LinearOptions(width, width).bias(false)))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
        fc1(register_module("fc1", nn::Linear(width, 4 * width))),
        fc2(register_module("fc2", nn::Linear(4 * width, width))),
        dropout(register_module("dropout", nn::Dropout(drop))) {}

  at::Tensor forward(at::Tensor x) {
    const int64_t b = x.size(0);
    const int64_t t = x.size(1);
    const int64_t width = x.size(2);
    const at::Tensor all = qkv(norm1(x)).view({b, t, 3, heads_, width / heads_});
    const std::vector<at::Tensor> parts = all.permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor mixed =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + dropout(proj(mixed.transpose(1, 2).reshape({b, t, width})));
    return x + dropout(fc2(torch::gelu(fc1(norm2(x)))));
  }

  int64_t heads_;
  nn::LayerNorm norm1;
  nn::Linear qkv, proj;
  nn::LayerNorm norm2;
  nn::Linear fc1, fc2;
  nn::Dropout dropout;
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  explicit TransformerImpl(double drop = 0.0, int64_t vocabulary = 64, int64_t width = 32)
      : tokens(register_module("tokens", nn::Embedding(vocabulary, width))),
        positions(register_module("positions", nn::Embedding(16, width))),
        blocks(register_module("blocks", nn::ModuleList())),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        head(register_module("head", nn::Linear(width, vocabulary))) {
    for (int i = 0; i < 2; ++i) blocks->push_back(Block(width, 2, drop));
  }

  at::Tensor forward(const at::Tensor &ids) {
    at::Tensor x = tokens(ids) + positions(torch::arange(ids.size(1)));
    for (const auto &block : *blocks) x = block->as<Block>()->forward(x);
    return head(norm(x));
  }

  nn::Embedding tokens, positions;
  nn::ModuleList blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};
TORCH_MODULE(Transformer);

constexpr int64_t kLinears = 9;  // of a Transformer

// Each token follows from the one before it, so the task can be learned.
inline at::Tensor batch_of(int64_t rows, int64_t step, int64_t vocabulary = 64) {
  const at::Tensor start = (torch::arange(rows) * 7 + step * 3) % vocabulary;
  const at::Tensor offsets = torch::arange(17) * 5;
  return (start.unsqueeze(1) + offsets.unsqueeze(0)) % vocabulary;
}

template <class Model>
at::Tensor loss_of(Model &model, const at::Tensor &batch) {
  const at::Tensor logits = model->forward(batch.slice(1, 0, 16));
  return torch::cross_entropy_loss(logits.to(torch::kFloat).flatten(0, 1),
                                   batch.slice(1, 1, 17).flatten());
}

inline octavo::torch::Config config_of(const std::string &backend, const std::string &recipe = "") {
  octavo::torch::Config config;
  config.set("fp8.backend", backend).set("layers.skip", "[]");  // the head as well
  if (!recipe.empty())
    config.set(backend == "msamp" ? "fp8.msamp.opt_level" : "fp8.te.recipe", recipe);
  return config;
}

inline at::Tensor all_parameters(nn::Module &module) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor &p : module.parameters()) flat.push_back(p.detach().flatten());
  return torch::cat(flat);
}

inline torch::optim::AdamW adamw(nn::Module &model, double lr = 3e-3) {
  return torch::optim::AdamW(model.parameters(), torch::optim::AdamWOptions(lr));
}

// Of the Error that fn throws, whose text must hold `word`; OCTAVO_OK: it threw none.
template <class Fn>
octavo_status status_of(const Fn &fn, const std::string &word) {
  try {
    fn();
  } catch (const octavo::torch::Error &e) {
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    return e.status();
  }
  return OCTAVO_OK;
}

// Whether torch's own code finds the error that names the remedy in the place of values.
inline bool is_unreadable(const at::Tensor &weight) {
  try {
    static_cast<void>(weight.norm());
  } catch (const c10::Error &e) {
    EXPECT_NE(std::string(e.what()).find("Prepared::with_plain_weights"), std::string::npos)
        << e.what();
    return true;
  }
  return false;
}

}  // namespace testing_torch

#endif
