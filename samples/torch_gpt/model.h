// The model of train_gpt as a LibTorch module. It knows nothing of FP8.
#ifndef TORCH_GPT_MODEL_H
#define TORCH_GPT_MODEL_H

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "../train_gpt/model/model.h"
#include "../train_gpt/model/parameter.h"

namespace torch_gpt {

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl(int64_t heads_count, int64_t width)
      : heads(heads_count),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", nn::Linear(width, 3 * width))),
        proj(register_module("proj", nn::Linear(width, width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
        fc1(register_module("fc1", nn::Linear(width, 4 * width))),
        fc2(register_module("fc2", nn::Linear(4 * width, width))) {}

  // x [sequences, time, width].
  at::Tensor forward(at::Tensor x) {
    const int64_t rows = x.size(0);
    const int64_t time = x.size(1);
    const int64_t width = x.size(2);
    const auto parts = qkv(norm1(x))
                           .view({rows, time, 3, heads, width / heads})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {},
                                                              /*dropout_p=*/0.0,
                                                              /*is_causal=*/true);
    x = x + proj(mixed.transpose(1, 2).reshape({rows, time, width}));
    return x + fc2(torch::gelu(fc1(norm2(x)), "tanh"));
  }

  int64_t heads;
  nn::LayerNorm norm1;
  nn::Linear qkv, proj;
  nn::LayerNorm norm2;
  nn::Linear fc1, fc2;
};
TORCH_MODULE(Block);

struct ModelImpl : nn::Module {
  ModelImpl(const gpt::ModelSize &size, uint64_t seed)
      : bytes(register_module("bytes", nn::Embedding(gpt::kBytes, size.width))),
        positions(register_module("positions", nn::Embedding(size.context, size.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({size.width})))),
        head(register_module("head",
                             nn::Linear(nn::LinearOptions(size.width, gpt::kBytes).bias(false)))) {
    for (int64_t i = 0; i < size.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(size.heads, size.width)));
    initialize(size, seed);
  }

  // The logits [sequences, time, 256] of tokens [sequences, time].
  at::Tensor forward(const at::Tensor &tokens) {
    at::Tensor x = bytes(tokens) + positions(torch::arange(tokens.size(1), tokens.options()));
    for (Block &block : blocks) x = block(x);
    return head(norm(x));
  }

  nn::Embedding bytes, positions;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  nn::Linear head;

 private:
  // train_gpt's values, drawn from its generator in its order.
  void initialize(const gpt::ModelSize &size, uint64_t seed) {
    const torch::NoGradGuard no_grad;
    gpt::Random random(seed, 0);
    const double deviation = 0.55 / std::sqrt(static_cast<double>(size.width));
    const auto fill = [&](const at::Tensor &t, double factor) {
      auto *values = t.mutable_data_ptr<float>();
      for (int64_t i = 0; i < t.numel(); ++i)
        values[i] = static_cast<float>(random.normal() * deviation) * static_cast<float>(factor);
    };
    const double shrink = 1.0 / std::sqrt(2.0 * static_cast<double>(size.layers));
    fill(bytes->weight, 1.0);
    fill(positions->weight, 1.0);
    for (Block &block : blocks) {
      fill(block->qkv->weight, 1.0);
      fill(block->proj->weight, shrink);
      fill(block->fc1->weight, 1.0);
      fill(block->fc2->weight, shrink);
      for (nn::Linear *linear : {&block->qkv, &block->proj, &block->fc1, &block->fc2})
        (*linear)->bias.zero_();
    }
    fill(head->weight, 1.0);
  }
};
TORCH_MODULE(Model);

}  // namespace torch_gpt

#endif
