// prepare() on an unmodified module: what runs in FP8, what the step does, what is refused.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <octavo/torch/checkpoint.h>
#include <octavo/torch/linear.h>

#include "transformer.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Error;
using octavo::torch::Layer;
using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::all_parameters;
using testing_torch::batch_of;
using testing_torch::config_of;
using testing_torch::loss_of;
using testing_torch::status_of;
using testing_torch::Transformer;
namespace nn = torch::nn;

struct Recipe {
  const char *backend;
  const char *recipe;
};

class EveryRecipe : public ::testing::TestWithParam<Recipe> {
 protected:
  static Config config() { return config_of(GetParam().backend, GetParam().recipe); }
  static bool keeps_weights() { return std::string(GetParam().backend) == "msamp"; }
};

TEST_P(EveryRecipe, TrainsAnUnmodifiedTransformer) {
  torch::manual_seed(1);
  Transformer model;
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config());
  double first = 0.0;
  double last = 0.0;
  constexpr uint64_t kSteps = 25;
  for (uint64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, batch_of(8, static_cast<int64_t>(step)));
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(optimizer.skipped_steps(), 0u);
  const std::vector<Layer> layers = optimizer.layers();
  ASSERT_EQ(layers.size(), static_cast<size_t>(testing_torch::kLinears));
  for (const Layer &layer : layers) {
    EXPECT_TRUE(layer.fp8) << layer.name << ": " << layer.reason;
    EXPECT_EQ(layer.recipe, GetParam().recipe) << layer.name;
    EXPECT_EQ(layer.forward_calls, kSteps) << layer.name;
    EXPECT_EQ(layer.dgrad_calls, kSteps) << layer.name;
    EXPECT_EQ(layer.wgrad_calls, kSteps) << layer.name;
  }
  const std::string report = optimizer.report();
  for (const Layer &layer : layers) EXPECT_NE(report.find(layer.name), std::string::npos);
}

// Against the same in Python: test_one_default_everywhere of api_test.py.
TEST(Prepare, DefaultsAreThoseOfEveryHost) {
  Transformer model;
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, Config());
  for (const Layer &layer : optimizer.layers()) {
    EXPECT_EQ(layer.fp8, layer.name != "head") << layer.name << ": " << layer.reason;
    EXPECT_EQ(layer.recipe, layer.fp8 ? "delayed" : "") << layer.name;
  }
  EXPECT_NE(optimizer.report().find("layers.skip names it"), std::string::npos);
  const std::string all = octavo::torch::explain(Config(), "json");
  const size_t history = all.find("\"amax_history_len\"");
  ASSERT_NE(history, std::string::npos);
  EXPECT_EQ(all.find("16", history), all.find_first_of("0123456789", history)) << all;
}

TEST_P(EveryRecipe, CheckpointedBlocksGiveEqualBits) {
  auto run = [&](bool checkpointed) {
    torch::manual_seed(2);
    Transformer model(0.1);
    torch::optim::AdamW plain = adamw(*model);
    Prepared optimizer = octavo::torch::prepare(*model, plain, config());
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor batch = batch_of(4, step);
      at::Tensor x = model->tokens(batch.slice(1, 0, 16)) + model->positions(torch::arange(16));
      for (const auto &module : *model->blocks) {
        auto *block = module->as<testing_torch::Block>();
        x = checkpointed ? octavo::torch::checkpoint(
                               [block](const at::Tensor &t) { return block->forward(t); }, x)
                         : block->forward(x);
      }
      const at::Tensor loss = torch::cross_entropy_loss(model->head(model->norm(x)).flatten(0, 1),
                                                        batch.slice(1, 1, 17).flatten());
      loss.backward();
      losses.push_back(loss.item<double>());
      optimizer.step();
    }
    optimizer.close();
    return std::pair(losses, all_parameters(*model));
  };
  const auto [losses, parameters] = run(false);
  const auto [again, parameters_again] = run(true);
  EXPECT_EQ(losses, again);
  EXPECT_TRUE(torch::equal(parameters, parameters_again));
}

TEST_P(EveryRecipe, SkipsAStepWithAnInfiniteGradient) {
  torch::manual_seed(3);
  Transformer model;
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config());
  const auto weights = [&] {
    at::Tensor flat;
    optimizer.with_plain_weights([&] { flat = all_parameters(*model); });
    return flat;
  };
  const at::Tensor before = weights();
  (loss_of(model, batch_of(4, 0)) * std::numeric_limits<double>::infinity()).backward();
  optimizer.step();
  EXPECT_TRUE(optimizer.step_was_skipped());
  EXPECT_EQ(optimizer.skipped_steps(), 1u);
  EXPECT_TRUE(torch::equal(weights(), before));
  optimizer.zero_grad();
  loss_of(model, batch_of(4, 0)).backward();
  optimizer.step();
  EXPECT_FALSE(optimizer.step_was_skipped());
  EXPECT_FALSE(torch::equal(weights(), before));
}

TEST_P(EveryRecipe, AutocastKeepsFp8AndGivesItsDtype) {
  torch::manual_seed(4);
  Transformer model;
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor logits = model->forward(batch_of(4, 0).slice(1, 0, 16));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  logits.to(at::kFloat).sum().backward();
  EXPECT_EQ(model->head->bias.grad().scalar_type(), at::kFloat);
  for (const Layer &layer : optimizer.layers()) {
    EXPECT_EQ(layer.forward_calls, 1u);
    EXPECT_EQ(layer.wgrad_calls, 1u);
  }
}

TEST_P(EveryRecipe, FrozenWeightsGetNoGradient) {
  torch::manual_seed(5);
  nn::Sequential model(nn::Linear(32, 48), nn::Linear(48, 32));
  model[0]->as<nn::Linear>()->weight.requires_grad_(false);
  model[0]->as<nn::Linear>()->bias.requires_grad_(false);
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config());
  const at::Tensor x = torch::randn({6, 32}).requires_grad_();
  model->forward(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(model[0]->as<nn::Linear>()->weight.grad().defined());
  const std::vector<Layer> layers = optimizer.layers();
  EXPECT_EQ(layers[0].dgrad_calls, 1u);
  EXPECT_EQ(layers[0].wgrad_calls, 0u);
  EXPECT_EQ(layers[1].wgrad_calls, 1u);
  optimizer.step();
  model[0]->as<nn::Linear>()->weight.requires_grad_(true);
  EXPECT_EQ(status_of([&] { model->forward(x); }, "frozen"), OCTAVO_INVALID);
}

TEST_P(EveryRecipe, ClosingGivesAPlainModuleBack) {
  torch::manual_seed(6);
  nn::Linear linear(32, 48);
  const at::Tensor weight = linear->weight.detach().clone();
  const at::Tensor x = torch::randn({5, 32});
  const at::Tensor y = linear(x);
  torch::optim::AdamW plain = adamw(*linear);
  {
    Prepared optimizer = octavo::torch::prepare(*linear, plain, config());
    EXPECT_EQ(testing_torch::is_unreadable(linear->weight), keeps_weights());
    EXPECT_FALSE(torch::equal(linear(x), y));
  }
  EXPECT_TRUE(torch::allclose(linear->weight, weight, 1e-3, 1e-3));
  if (!keeps_weights()) {
    EXPECT_TRUE(torch::equal(linear(x), y));
  } else {
    EXPECT_TRUE(torch::allclose(linear(x), y, 1e-2, 1e-2));
  }
}

// For three dimensions torch adds the bias after the product, for two in one operator.
TEST_P(EveryRecipe, BatchesOfTwoAndThreeDimensionsAgree) {
  torch::manual_seed(7);
  nn::Linear linear(32, 48);
  torch::optim::AdamW plain = adamw(*linear);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config());
  const at::Tensor x = torch::randn({6, 32});
  EXPECT_TRUE(torch::equal(linear(x).view({2, 3, 48}), linear(x.view({2, 3, 32}))));
  EXPECT_EQ(optimizer.layers()[0].forward_calls, 2u);
}

INSTANTIATE_TEST_SUITE_P(Backends, EveryRecipe,
                         ::testing::Values(Recipe{"te", "delayed"}, Recipe{"te", "current"},
                                           Recipe{"te", "block"}, Recipe{"te", "mx"},
                                           Recipe{"msamp", "O2"}, Recipe{"msamp", "O3"}),
                         [](const auto &given) {
                           return std::string(given.param.backend) + "_" + given.param.recipe;
                         });

// The kernels in the dispatcher must not be felt by anyone else.
TEST(Interception, OtherLinearsAndProductsKeepTheirBits) {
  torch::manual_seed(8);
  nn::Linear other(32, 48);
  const at::Tensor x = torch::randn({6, 32}).requires_grad_();
  const auto everything = [&] {
    std::vector<at::Tensor> results;
    for (const bool autocast : {false, true}) {
      at::autocast::set_autocast_enabled(at::kCPU, autocast);
      x.mutable_grad() = at::Tensor();
      other->zero_grad();
      const at::Tensor y = other(x) + other(x.view({2, 3, 32})).view({6, 48}) +
                           at::linear(x, other->weight, other->bias) +
                           at::addmm(other->bias, x, other->weight.t(), 2, 0.5) +
                           at::matmul(x, torch::ones({32, 48}));
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      y.pow(2).sum().backward();
      results.insert(results.end(), {y.detach(), x.grad().clone(), other->weight.grad().clone(),
                                     other->bias.grad().clone()});
    }
    const c10::InferenceMode inference;
    results.push_back(other(x));
    return results;
  };
  const std::vector<at::Tensor> before = everything();
  nn::Linear prepared_one(32, 48);
  torch::optim::AdamW plain = adamw(*prepared_one);
  Prepared optimizer = octavo::torch::prepare(*prepared_one, plain, config_of("te"));
  const std::vector<at::Tensor> after = everything();
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].scalar_type(), after[i].scalar_type()) << i;
    EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
  }
  EXPECT_EQ(optimizer.layers()[0].forward_calls, 0u);
}

// Weights that change between steps, in place or by a load, are cast again.
TEST(Interception, ChangedWeightsAreCastAgain) {
  torch::manual_seed(9);
  nn::Linear linear(32, 48);
  torch::optim::AdamW plain = adamw(*linear);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config_of("te", "current"));
  const at::Tensor x = torch::randn({5, 32});
  const at::Tensor y = linear(x).detach();
  {
    const torch::NoGradGuard no_grad;
    linear->weight.mul_(2);
    linear->bias.mul_(2);
  }
  EXPECT_TRUE(torch::equal(linear(x).detach(), y * 2));
  linear->weight.set_data(linear->weight.detach() / 2);
  linear->bias.set_data(linear->bias.detach() / 2);
  EXPECT_TRUE(torch::equal(linear(x).detach(), y));
}

struct TiedImpl : nn::Module {
  TiedImpl()
      : embedding(register_module("embedding", nn::Embedding(64, 32))),
        head(register_module("head", nn::Linear(nn::LinearOptions(32, 64).bias(false)))) {
    head->weight = embedding->weight;
  }
  at::Tensor forward(const at::Tensor &ids) { return head(embedding(ids)); }
  nn::Embedding embedding;
  nn::Linear head;
};
TORCH_MODULE(Tied);

TEST(Ties, AnEmbeddingMayShareANativeWeightButNotOneInASlot) {
  const at::Tensor ids = torch::arange(8).view({2, 4});
  for (const bool kept : {false, true}) {
    torch::manual_seed(10);
    Tied model;
    nn::Sequential both(model, nn::Linear(64, 16));
    torch::optim::AdamW plain = adamw(*both);
    Prepared optimizer = octavo::torch::prepare(*both, plain, config_of(kept ? "msamp" : "te"));
    const Layer layer = optimizer.layers().at(0);
    EXPECT_EQ(layer.fp8, !kept) << layer.reason;
    if (kept) {
      EXPECT_NE(layer.reason.find("embedding.weight"), std::string::npos) << layer.reason;
    }
    const at::Tensor y = both->forward(ids);
    EXPECT_FALSE(y.isnan().any().item<bool>());
    y.sum().backward();
    EXPECT_TRUE(model->embedding->weight.grad().defined());
    optimizer.step();
  }
}

TEST(Ties, TorchLinearsWithOneWeightAreOneLayerAndOctavosStayApart) {
  torch::manual_seed(11);
  nn::Linear a(32, 32);
  nn::Linear b(32, 32);
  b->weight = a->weight;
  nn::Sequential model(a, b);
  torch::optim::AdamW plain = adamw(*a);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config_of("te"));
  ASSERT_EQ(optimizer.layers().size(), 2u);
  EXPECT_NE(optimizer.layers()[1].reason.find("one layer with \"0\""), std::string::npos);
  model->forward(torch::randn({4, 32})).sum().backward();
  EXPECT_EQ(optimizer.layers()[0].forward_calls, 2u);
  optimizer.step();

  octavo::torch::Linear c(32, 32);
  octavo::torch::Linear d(32, 32);
  d->weight = c->weight;
  nn::Sequential own(c, d);
  torch::optim::AdamW own_plain(std::vector<at::Tensor>{c->weight, c->bias, d->bias});
  Prepared own_optimizer = octavo::torch::prepare(*own, own_plain, config_of("msamp"));
  own->forward(torch::randn({2, 3, 32})).sum().backward();
  for (const Layer &layer : own_optimizer.layers()) {
    EXPECT_EQ(layer.forward_calls, 1u);
    EXPECT_EQ(layer.wgrad_calls, 1u);
  }
  own_optimizer.step();
  EXPECT_EQ(own_optimizer.skipped_steps(), 0u);
}

TEST(Placement, SkippedLayersAreListedWithTheirReason) {
  torch::manual_seed(12);
  Transformer model;
  torch::optim::AdamW plain = adamw(*model);
  Config config = Config::from_text("[fp8]\nbackend = \"te\"\n[layers]\nskip = [\"*head*\"]\n");
  Prepared optimizer = octavo::torch::prepare(*model, plain, config);
  for (const Layer &layer : optimizer.layers()) {
    EXPECT_EQ(layer.fp8, layer.name != "head") << layer.name;
    EXPECT_FALSE(layer.reason.empty()) << layer.name;
  }
  const at::Tensor x = torch::randn({3, 32});
  EXPECT_TRUE(torch::equal(model->head(x), at::linear(x, model->head->weight, model->head->bias)));
}

TEST(Placement, LayersThatNeverRanAreReported) {
  nn::Sequential model(nn::Linear(32, 48), nn::Linear(48, 16));
  torch::optim::AdamW plain = adamw(*model);
  Prepared optimizer = octavo::torch::prepare(*model, plain, config_of("te"));
  EXPECT_EQ(optimizer.report().find("never ran"), std::string::npos);
  model[0]->as<nn::Linear>()->forward(torch::randn({4, 32}));
  EXPECT_NE(optimizer.report().find("never ran  1\n"), std::string::npos) << optimizer.report();
  model->forward(torch::randn({4, 32}));
  EXPECT_EQ(optimizer.report().find("never ran"), std::string::npos);
}

TEST(Clipping, ScalesNativeGradients) {
  torch::manual_seed(14);
  nn::Linear linear(32, 32);
  torch::optim::AdamW plain = adamw(*linear);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config_of("te"));
  linear(torch::randn({4, 32})).pow(2).sum().backward();
  const auto norm = [&] {
    return torch::cat({linear->weight.grad().flatten(), linear->bias.grad()}).norm().item<double>();
  };
  const double before = norm();
  EXPECT_NEAR(optimizer.clip_grad_norm_(0.25), before, 1e-4 * before);
  EXPECT_NEAR(norm(), 0.25, 1e-4);
}

}  // namespace
