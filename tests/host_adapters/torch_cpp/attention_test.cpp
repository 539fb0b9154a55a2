// prepare() on nn::MultiheadAttention: its projections are rows of one weight, by which torch
// multiplies without calling a module. What they must equal is the same attention with a linear of
// its own for each.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "transformer.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Layer;
using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::config_of;
using testing_torch::status_of;
namespace nn = torch::nn;

constexpr int64_t kWidth = 32;
constexpr int64_t kHeads = 4;

// An attention as a user writes one around torch's.
struct StackedImpl : nn::Module {
  explicit StackedImpl(int64_t width = kWidth)
      : attention(register_module("attention", nn::MultiheadAttention(width, kHeads))) {}
  at::Tensor forward(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
    return std::get<0>(attention(q, k, v));
  }
  nn::MultiheadAttention attention;
};
TORCH_MODULE(Stacked);

// The same function and initial values, with four linears.
struct SplitImpl : nn::Module {
  explicit SplitImpl(const Stacked &source)
      : width(source->attention->options.embed_dim()),
        q(register_module("q", nn::Linear(width, width))),
        k(register_module("k", nn::Linear(width, width))),
        v(register_module("v", nn::Linear(width, width))),
        out(register_module("out", nn::Linear(width, width))) {
    const torch::NoGradGuard no_grad;
    const auto &from = *source->attention;
    const std::vector<at::Tensor> weights = from.in_proj_weight.chunk(3);
    const std::vector<at::Tensor> biases = from.in_proj_bias.chunk(3);
    nn::Linear parts[] = {q, k, v};
    for (size_t i = 0; i < 3; ++i) {
      parts[i]->weight.copy_(weights[i]);
      parts[i]->bias.copy_(biases[i]);
    }
    out->weight.copy_(from.out_proj->weight);
    out->bias.copy_(from.out_proj->bias);
  }
  at::Tensor forward(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value) {
    return std::get<0>(torch::nn::functional::detail::multi_head_attention_forward(
        query, key, value, width, kHeads, {}, torch::cat({q->bias, k->bias, v->bias}), {}, {},
        false, 0.0, out->weight, out->bias, true, {}, true, {}, true, q->weight, k->weight,
        v->weight));
  }
  int64_t width;
  nn::Linear q, k, v, out;
};
TORCH_MODULE(Split);

// Query, key and value: all one tensor, the latter two one, or all different.
std::vector<at::Tensor> inputs_of(int different, int64_t width = kWidth) {
  torch::manual_seed(100 + different);
  const at::Tensor query = torch::randn({7, 3, width});
  if (different == 0) return {query, query, query};
  const at::Tensor key = torch::randn({5, 3, width});
  return {query, key, different == 1 ? key : torch::randn({5, 3, width})};
}

struct Method {
  const char *backend;
  const char *recipe;
};

class Attention : public ::testing::TestWithParam<Method> {
 protected:
  static Config config() { return config_of(GetParam().backend, GetParam().recipe); }
  static bool keeps_weights() { return std::string(GetParam().backend) == "msamp"; }
};

TEST_P(Attention, EqualsOneLinearForEachProjection) {
  for (int different = 0; different < 3; ++different) {
    torch::manual_seed(1);
    Stacked stacked;
    Split split(stacked);
    // Sums over rows are rounded in an order that depends on how many columns there are. That of
    // the key's bias is 0 but for rounding, which Adam would make a whole step.
    stacked->attention->in_proj_bias.requires_grad_(false);
    for (const nn::Linear &one : {split->q, split->k, split->v}) one->bias.requires_grad_(false);
    torch::optim::AdamW plain = adamw(*stacked);
    torch::optim::AdamW split_plain = adamw(*split);
    Prepared optimizer = octavo::torch::prepare(*stacked, plain, config());
    Prepared split_optimizer = octavo::torch::prepare(*split, split_plain, config());
    const std::vector<at::Tensor> x = inputs_of(different);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      split_optimizer.zero_grad();
      const at::Tensor y = stacked->forward(x[0], x[1], x[2]);
      const at::Tensor expected = split->forward(x[0], x[1], x[2]);
      EXPECT_TRUE(torch::equal(y, expected)) << different << " " << step;
      EXPECT_FALSE(y.isnan().any().item<bool>());
      y.pow(2).mean().backward();
      expected.pow(2).mean().backward();
      if (!keeps_weights()) {
        EXPECT_TRUE(torch::equal(stacked->attention->in_proj_weight.grad(),
                                 torch::cat({split->q->weight.grad(), split->k->weight.grad(),
                                             split->v->weight.grad()})));
      }
      const double norm = split_optimizer.clip_grad_norm_(1e9);
      EXPECT_NEAR(optimizer.clip_grad_norm_(1e9), norm, 1e-5 * norm);
      optimizer.step();
      split_optimizer.step();
    }
    const std::vector<Layer> layers = optimizer.layers();
    ASSERT_EQ(layers.size(), 4u);
    const std::vector<std::string> names = {"attention.q", "attention.k", "attention.v",
                                            "attention.out_proj"};
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(layers[i].name, names[i]);
      EXPECT_TRUE(layers[i].fp8) << layers[i].reason;
      EXPECT_EQ(layers[i].forward_calls, 3u);
      EXPECT_EQ(layers[i].wgrad_calls, 3u);
    }
    EXPECT_EQ(testing_torch::is_unreadable(stacked->attention->in_proj_weight), keeps_weights());
    optimizer.close();
    split_optimizer.close();
    EXPECT_TRUE(torch::equal(stacked->attention->in_proj_weight,
                             torch::cat({split->q->weight, split->k->weight, split->v->weight})));
  }
}

// Slots take over what is loaded, and a step after that is the one that would have come.
TEST_P(Attention, StateIsRestoredToTheBit) {
  torch::manual_seed(2);
  Stacked model;
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config());
  const std::vector<at::Tensor> x = inputs_of(1);
  const auto step = [&] {
    optimizer.zero_grad();
    model->forward(x[0], x[1], x[2]).pow(2).mean().backward();
    optimizer.step();
    at::Tensor weights;
    optimizer.with_plain_weights([&] { weights = testing_torch::all_parameters(*model); });
    return weights;
  };
  step();
  const std::string directory =
      ::testing::TempDir() + "octavo_attention_" + GetParam().backend + GetParam().recipe;
  optimizer.save_state(directory);
  const at::Tensor expected = step();
  EXPECT_FALSE(torch::equal(step(), expected));
  optimizer.load_state(directory);
  EXPECT_TRUE(torch::equal(step(), expected));
  std::filesystem::remove_all(directory);

  // Values written between steps reach the rows that they belong to.
  at::Tensor written;
  optimizer.with_plain_weights([&] {
    model->attention->in_proj_weight.set_data(
        torch::arange(3 * kWidth * kWidth, torch::kFloat).view({3 * kWidth, kWidth}).remainder(7) -
        3);
    written = model->attention->in_proj_weight.detach().clone();
  });
  optimizer.close();
  EXPECT_TRUE(torch::equal(model->attention->in_proj_weight, written));
}

INSTANTIATE_TEST_SUITE_P(Backends, Attention,
                         ::testing::Values(Method{"te", "delayed"}, Method{"te", "current"},
                                           Method{"te", "block"}, Method{"te", "mx"},
                                           Method{"msamp", "O1"}, Method{"msamp", "O2"},
                                           Method{"msamp", "O3"}),
                         [](const auto &given) {
                           return std::string(given.param.backend) + "_" + given.param.recipe;
                         });

// A layer of torch's own: self attention, attention to another tensor, and two linears.
TEST(AttentionPlaces, DecoderLayersOfTorchTrain) {
  for (const char *backend : {"te", "msamp"}) {
    torch::manual_seed(3);
    nn::TransformerDecoderLayer layer(
        nn::TransformerDecoderLayerOptions(kWidth, kHeads).dim_feedforward(64).dropout(0.0));
    torch::optim::AdamW plain = adamw(*layer);
    Prepared optimizer = octavo::torch::prepare(*layer, plain, config_of(backend));
    ASSERT_EQ(optimizer.layers().size(), 10u);
    const std::vector<at::Tensor> x = inputs_of(1);
    double first = 0.0;
    double last = 0.0;
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const at::Tensor y = layer(x[0], x[1]);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      const at::Tensor loss = (y.to(at::kFloat) - x[0].flip(0)).pow(2).mean();
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.9 * first) << backend;
    for (const Layer &one : optimizer.layers()) {
      EXPECT_TRUE(one.fp8) << one.name << ": " << one.reason;
      EXPECT_EQ(one.forward_calls, 20u) << one.name;
      EXPECT_EQ(one.wgrad_calls, 20u) << one.name;
    }
    EXPECT_EQ(optimizer.skipped_steps(), 0u);
  }
}

// Keys and values of other widths have weights of their own.
TEST(AttentionPlaces, SeparateProjectionsAreLinears) {
  torch::manual_seed(4);
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(kWidth, kHeads).kdim(48).vdim(48));
  torch::optim::AdamW plain = adamw(*attention);
  Prepared optimizer = octavo::torch::prepare(*attention, plain, config_of("te", "current"));
  const at::Tensor y = std::get<0>(
      attention(torch::randn({4, 2, kWidth}), torch::randn({6, 2, 48}), torch::randn({6, 2, 48})));
  y.sum().backward();
  const std::vector<Layer> layers = optimizer.layers();
  ASSERT_EQ(layers.size(), 4u);
  const int64_t widths[] = {kWidth, 48, 48, kWidth};
  for (size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(layers[i].k, widths[i]);
    EXPECT_EQ(layers[i].forward_calls, 1u) << layers[i].name;
    EXPECT_EQ(layers[i].wgrad_calls, 1u) << layers[i].name;
  }
}

TEST(AttentionPlaces, AProjectionThatStaysWithTorchIsTorchsProduct) {
  torch::manual_seed(5);
  Stacked stacked;
  Split split(stacked);
  torch::optim::AdamW plain = adamw(*stacked);
  const auto skipping = [](const char *backend) {
    return Config::from_text(std::string("[fp8]\nbackend = \"") + backend +
                             "\"\n[layers]\nskip = [\"*k\"]\n");
  };
  {  // Half a tensor cannot live in slots.
    const std::vector<at::Tensor> x = inputs_of(1);
    Prepared optimizer = octavo::torch::prepare(*stacked, plain, skipping("msamp"));
    const std::vector<Layer> layers = optimizer.layers();
    EXPECT_FALSE(layers[0].fp8 || layers[1].fp8 || layers[2].fp8);
    EXPECT_TRUE(layers[3].fp8) << layers[3].reason;
    EXPECT_NE(layers[0].reason.find("attention.k"), std::string::npos) << layers[0].reason;
    EXPECT_FALSE(stacked->attention->in_proj_weight.isnan().any().item<bool>());
    stacked->forward(x[0], x[1], x[2]).sum().backward();
    optimizer.step();
    EXPECT_EQ(optimizer.skipped_steps(), 0u);
  }
  split = Split(stacked);
  torch::optim::AdamW split_plain = adamw(*split);
  Prepared optimizer = octavo::torch::prepare(*stacked, plain, skipping("te"));
  Prepared split_optimizer = octavo::torch::prepare(*split, split_plain, skipping("te"));
  for (int different = 0; different < 3; ++different) {
    const std::vector<at::Tensor> x = inputs_of(different);
    EXPECT_TRUE(torch::allclose(stacked->forward(x[0], x[1], x[2]),
                                split->forward(x[0], x[1], x[2]), 1e-5, 1e-6));
  }
  for (const Layer &layer : optimizer.layers())
    EXPECT_EQ(layer.forward_calls, layer.name == "attention.k" ? 0u : 3u) << layer.name;
}

// 20 rows of 20 floats: the second and the third matrix begin at no multiple of 256 bytes.
TEST_P(Attention, TakesRowsThatBeginAnywhere) {
  torch::manual_seed(6);
  Stacked stacked(20);
  Split split(stacked);
  torch::optim::AdamW plain = adamw(*stacked);
  torch::optim::AdamW split_plain = adamw(*split);
  Prepared optimizer = octavo::torch::prepare(*stacked, plain, config());
  Prepared split_optimizer = octavo::torch::prepare(*split, split_plain, config());
  const std::vector<at::Tensor> x = inputs_of(2, 20);
  EXPECT_TRUE(torch::equal(stacked->forward(x[0], x[1], x[2]), split->forward(x[0], x[1], x[2])));
  for (const Layer &layer : optimizer.layers()) EXPECT_TRUE(layer.fp8) << layer.reason;
}

TEST(AttentionPlaces, AWeightThatIsDividedInTwoWaysIsRefused) {
  Stacked model;
  nn::Linear whole(kWidth, 3 * kWidth);
  whole->weight = model->attention->in_proj_weight;
  nn::Sequential both(model->attention, whole);
  torch::optim::AdamW plain = adamw(*model);
  EXPECT_EQ(
      status_of([&] { static_cast<void>(octavo::torch::prepare(*both, plain, config_of("te"))); },
                "untie"),
      OCTAVO_UNSUPPORTED);
}

}  // namespace
