// Gradients in slots as torch's own code sees them, and boundaries that nobody announced.
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "transformer.h"

namespace {

using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::all_parameters;
using testing_torch::config_of;
using testing_torch::status_of;
namespace nn = torch::nn;

nn::Sequential model_of(uint64_t seed) {
  torch::manual_seed(seed);
  return nn::Sequential(nn::Linear(32, 48), nn::Tanh(), nn::Linear(48, 16));
}

at::Tensor weight_of(nn::Sequential &model, size_t at = 0) {
  return model[at]->as<nn::Linear>()->weight;
}

// A prepared model after one backward.
class SlotGradients : public ::testing::TestWithParam<const char *> {
 protected:
  void SetUp() override { backward(1.0); }
  void backward(double scale) { (model_->forward(x_).square().mean() * scale).backward(); }
  at::Tensor gradient() { return weight_of(model_).grad().clone(); }
  at::Tensor weights() {
    at::Tensor flat;
    prepared_.with_plain_weights([&] { flat = all_parameters(*model_); });
    return flat;
  }

  nn::Sequential model_ = model_of(21);
  torch::optim::AdamW plain_ = adamw(*model_, 1e-2);
  Prepared prepared_ = octavo::torch::prepare(*model_, plain_, config_of("msamp", GetParam()));
  at::Tensor x_ = torch::randn({64, 32});
};

// torch's own function and the one of Prepared: one norm, one step.
TEST_P(SlotGradients, AreClippedByTorch) {
  const double bound = 1e-3;
  const double norm = nn::utils::clip_grad_norm_(model_->parameters(), bound);
  EXPECT_GT(norm, 10 * bound);
  const at::Tensor clipped = gradient();

  nn::Sequential other = model_of(21);
  torch::optim::AdamW other_plain = adamw(*other, 1e-2);
  Prepared prepared = octavo::torch::prepare(*other, other_plain, config_of("msamp", GetParam()));
  other->forward(x_).square().mean().backward();
  EXPECT_TRUE(torch::allclose(clipped, weight_of(other).grad().clone() * (bound / (norm + 1e-6)),
                              1e-5, 0.0));
  EXPECT_NEAR(prepared.clip_grad_norm_(bound), norm, 1e-5 * norm);
  prepared_.step();
  prepared.step();
  at::Tensor flat;
  prepared.with_plain_weights([&] { flat = all_parameters(*other); });
  // Adam's first step is lr * sign(g) but for eps, which a gradient of 1e-8 feels.
  EXPECT_TRUE(torch::allclose(weights(), flat, 1e-3, 1e-5));
}

// A bound counts for the gradients that it was given for.
TEST_P(SlotGradients, AreClippedOnce) {
  const at::Tensor once = gradient();
  prepared_.clip_grad_norm_(1e-3);
  EXPECT_LT(gradient().norm().item<double>(), 1e-3 + 1e-6);
  prepared_.zero_grad();
  backward(1.0);
  EXPECT_TRUE(torch::equal(gradient(), once));
  const double norm = prepared_.clip_grad_norm_(1e9);
  prepared_.step();
  EXPECT_NEAR(prepared_.clip_grad_norm_(1e9), norm, 1e-5 * norm);
}

TEST_P(SlotGradients, OfAnotherParameterAreCopied) {
  nn::Sequential other = model_of(24);
  torch::optim::AdamW plain = adamw(*other, 1e-2);
  Prepared prepared = octavo::torch::prepare(*other, plain, config_of("msamp", GetParam()));
  (other->forward(x_).square().mean() * 3.0).backward();
  const at::Tensor values = weight_of(other).grad().clone();
  weight_of(model_).mutable_grad() = weight_of(other).grad();
  const at::Tensor before = weights();
  prepared_.step();
  // One more cast to 8 bits, within 2^-4 of a value.
  EXPECT_LE((gradient() - values).norm().item<double>(), 0.0625 * values.norm().item<double>());
  EXPECT_FALSE(torch::equal(weights(), before));
  EXPECT_TRUE(torch::equal(weight_of(other).grad().clone(), values));
}

// Passes of several threads, as with .grad of torch: none is lost.
TEST_P(SlotGradients, AddUpFromSeveralThreads) {
  const at::Tensor once = gradient();
  for (int round = 0; round < 10; ++round) {
    model_->zero_grad();
    std::vector<at::Tensor> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(model_->forward(x_).square().mean());
    std::vector<std::thread> threads;
    for (at::Tensor &loss : losses) threads.emplace_back([&loss] { loss.backward(); });
    for (std::thread &thread : threads) thread.join();
    // Four casts to 8 bits on the way, each within 2^-4 of a value.
    EXPECT_LT((gradient() - 4 * once).norm().item<double>(),
              4 * 0.0625 * 4 * once.norm().item<double>());
  }
}

TEST_P(SlotGradients, ClippedByAnotherNormAreRead) {
  const double norm = nn::utils::clip_grad_norm_(model_->parameters(), 1e9,
                                                 std::numeric_limits<double>::infinity());
  double most = 0.0;
  for (const at::Tensor &p : model_->parameters())
    most = std::max(most, p.grad().clone().abs().max().item<double>());
  EXPECT_EQ(norm, most);
}

// Whatever code looks at gradients sees values.
TEST_P(SlotGradients, AreReadAsValues) {
  const at::Tensor g = weight_of(model_).grad();
  const at::Tensor plain = g.clone();
  EXPECT_EQ(plain.sizes(), weight_of(model_).sizes());
  EXPECT_EQ(plain.scalar_type(), at::kFloat);
  EXPECT_GT(plain.abs().max().item<double>(), 0.0);
  EXPECT_TRUE(torch::equal(g, plain));
  EXPECT_TRUE(torch::equal(g + 0, plain));
  EXPECT_TRUE(torch::equal(g.flatten(), plain.flatten()));
  EXPECT_TRUE(torch::equal(g.narrow(0, 1, 2), plain.narrow(0, 1, 2)));
  EXPECT_TRUE(torch::equal(torch::cat({g, g}), torch::cat({plain, plain})));
  EXPECT_TRUE(torch::equal(torch::stack({g, plain}), torch::stack({plain, plain})));
  EXPECT_TRUE(torch::equal(g.to(at::kDouble), plain.to(at::kDouble)));
  EXPECT_TRUE(torch::equal(g.detach(), plain));
  EXPECT_TRUE(torch::equal(torch::where(g > 0, g, -g), plain.abs()));
  EXPECT_EQ(g.norm().item<double>(), plain.norm().item<double>());
  EXPECT_EQ(at::linalg_vector_norm(g).item<double>(), plain.norm().item<double>());
  EXPECT_EQ(g[0][0].item<double>(), plain[0][0].item<double>());
  EXPECT_TRUE(g.isfinite().all().item<bool>());
  at::Tensor target = torch::zeros_like(plain);
  target.copy_(g);
  EXPECT_TRUE(torch::equal(target, plain));
  target.add_(g, 2.0).addcmul_(g, g);
  EXPECT_TRUE(torch::equal(target, (plain + 2 * plain).addcmul_(plain, plain)));
  std::ostringstream text, expected;
  text << g;
  expected << plain;
  EXPECT_EQ(text.str(), expected.str());
}

// What was used up in a step counts no longer than torch's own gradients do.
TEST_P(SlotGradients, AddUpUntilZeroGrad) {
  const at::Tensor once = gradient();
  backward(1.0);
  const at::Tensor twice = gradient();
  EXPECT_TRUE(torch::allclose(twice, 2 * once, 0.1, 0.1 * once.abs().max().item<double>()));
  model_->zero_grad();
  EXPECT_FALSE(weight_of(model_).grad().defined());
  backward(1.0);
  EXPECT_TRUE(torch::equal(gradient(), once));
  plain_.zero_grad();
  backward(1.0);
  EXPECT_TRUE(torch::equal(gradient(), once));
  model_->zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(gradient().abs().max().item<double>(), 0.0);
  backward(1.0);
  EXPECT_TRUE(torch::allclose(gradient(), once, 0.1, 0.01 * once.abs().max().item<double>()));
}

// Each part of a batch is clipped before the next one is added.
TEST_P(SlotGradients, AddToWhatWasClipped) {
  const at::Tensor once = gradient();
  weight_of(model_).grad().mul_(0.25);
  EXPECT_TRUE(torch::allclose(gradient(), 0.25 * once, 1e-6, 0.0));
  backward(1.0);
  // Two more casts to 8 bits, each within 2^-4 of a value.
  EXPECT_LT((gradient() - 1.25 * once).norm().item<double>(),
            2 * 0.0625 * 1.25 * once.norm().item<double>());
}

// zero_grad(false) leaves zeros, with which torch's Adam would step, too.
TEST_P(SlotGradients, ClearedAreStillStepped) {
  prepared_.step();
  prepared_.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(gradient().abs().max().item<double>(), 0.0);
  const at::Tensor before = weights();
  prepared_.step();
  EXPECT_FALSE(torch::equal(weights(), before));
}

TEST_P(SlotGradients, OfOtherCodeAreAdded) {
  const at::Tensor once = gradient();
  weight_of(model_).grad().add_(once, 2.0);
  EXPECT_LT((gradient() - 3 * once).norm().item<double>(), 0.0625 * 3 * once.norm().item<double>());
  weight_of(model_).grad().detach().div_(2.0);
  EXPECT_LT((gradient() - 1.5 * once).norm().item<double>(),
            0.0625 * 1.5 * once.norm().item<double>());
}

TEST_P(SlotGradients, OfOtherCodeAreTaken) {
  const at::Tensor own = torch::full({48, 32}, 0.5);
  weight_of(model_).mutable_grad() = own.clone();
  const at::Tensor before = weights();
  prepared_.step();
  EXPECT_TRUE(torch::allclose(weight_of(model_).grad().clone(), own, 0.1));
  EXPECT_FALSE(torch::equal(weights(), before));
}

TEST_P(SlotGradients, RefuseWhatTheyCannotHold) {
  const at::Tensor gradient = weight_of(model_).grad();
  EXPECT_EQ(status_of([&] { gradient.add_(1.0); }, "parameter \"0.weight\""), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(status_of(
                [&] {
                  gradient.copy_(torch::zeros({48, 32}));
                },
                "aten::copy_"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(status_of(
                [&] {
                  gradient.mul_(torch::ones({48, 32}));
                },
                "several elements"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(status_of([&] { at::_foreach_mul_({gradient}, 0.5); }, "_foreach_mul_"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(status_of([&] { nn::utils::clip_grad_value_(model_->parameters(), 0.1); }, "clamp_"),
            OCTAVO_UNSUPPORTED);
  prepared_.close();
  EXPECT_FALSE(weight_of(model_).grad().defined());
  EXPECT_EQ(status_of([&] { static_cast<void>(gradient.norm()); }, "was closed"),
            OCTAVO_WRONG_STATE);
}

TEST_P(SlotGradients, ScaledByInfSkipTheStep) {
  const at::Tensor before = weights();
  weight_of(model_).grad().mul_(std::numeric_limits<double>::infinity());
  prepared_.step();
  EXPECT_TRUE(prepared_.step_was_skipped());
  EXPECT_TRUE(torch::equal(weights(), before));
}

INSTANTIATE_TEST_SUITE_P(Levels, SlotGradients, ::testing::Values("O1", "O2", "O3"),
                         [](const auto &given) { return std::string(given.param); });

// The amax history of te moves at boundaries only.
class Boundaries : public ::testing::Test {
 protected:
  at::Tensor history() {
    std::vector<at::Tensor> all;
    for (const octavo::torch::Slot &slot : prepared_.session().slots())
      if (slot.tensor.defined() && slot.name.find("history") != std::string::npos)
        all.push_back(slot.tensor.flatten().clone());
    EXPECT_FALSE(all.empty());
    return torch::cat(all);
  }
  void train() {
    prepared_.zero_grad();
    model_->forward(x_).square().mean().backward();
  }

  nn::Sequential model_ = model_of(22);
  torch::optim::AdamW plain_ = adamw(*model_, 1e-2);
  Prepared prepared_ = octavo::torch::prepare(*model_, plain_, config_of("te", "delayed"));
  at::Tensor x_ = torch::randn({64, 32});
};

TEST_F(Boundaries, NeedAForwardSinceTheLastOne) {
  const at::Tensor start = history();
  prepared_.step();
  EXPECT_TRUE(torch::equal(history(), start));
  train();
  EXPECT_TRUE(torch::equal(history(), start));
  prepared_.step();
  const at::Tensor advanced = history();
  EXPECT_FALSE(torch::equal(advanced, start));
  prepared_.step();
  EXPECT_TRUE(torch::equal(history(), advanced));
  model_->eval();
  model_->forward(x_);
  prepared_.step();
  EXPECT_TRUE(torch::equal(history(), advanced));
  model_->train();
  const at::NoGradGuard no_grad;
  model_->forward(x_);
  prepared_.step();
  EXPECT_FALSE(torch::equal(history(), advanced));
}

// A manual update, which no optimizer announces; accumulation before it is one step.
TEST_F(Boundaries, FollowAChangedWeight) {
  const at::Tensor start = history();
  for (int pass = 0; pass < 3; ++pass) train();
  EXPECT_TRUE(torch::equal(history(), start));
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor &p : model_->parameters()) p.sub_(p.grad(), 0.1);
    model_->eval();
    model_->forward(x_);  // an evaluation is no boundary
    model_->train();
  }
  EXPECT_TRUE(torch::equal(history(), start));
  train();
  const at::Tensor advanced = history();
  EXPECT_FALSE(torch::equal(advanced, start));
  train();
  EXPECT_TRUE(torch::equal(history(), advanced));
}

// A branch that runs for the first time in a step, whose weight the last step moved, shows no step.
TEST_F(Boundaries, IgnoreBranchesThatStartLater) {
  train();
  prepared_.step();
  prepared_.zero_grad();
  const at::Tensor advanced = history();
  const auto first = [&] { return model_[0]->as<nn::Linear>()->forward(x_).square().mean(); };
  first().backward();
  train();
  EXPECT_TRUE(torch::equal(history(), advanced));
  prepared_.step();
  EXPECT_FALSE(torch::equal(history(), advanced));
}

// What is refused is no forward: nothing is derived and nothing quantized.
TEST_F(Boundaries, AreNotReachedByRefusedCalls) {
  train();
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor &p : model_->parameters()) p.sub_(p.grad(), 0.1);
  }
  const at::Tensor before = history();
  EXPECT_EQ(status_of([&] { model_->forward(torch::randn({4, 31})); }, "31"), OCTAVO_INVALID);
  EXPECT_TRUE(torch::equal(history(), before));
  train();
  EXPECT_FALSE(torch::equal(history(), before));
}

TEST_F(Boundaries, KeepInfOutOfTheHistory) {
  train();
  (model_->forward(x_).sum() * std::numeric_limits<double>::infinity()).backward();
  prepared_.step();
  EXPECT_TRUE(prepared_.step_was_skipped());
  EXPECT_TRUE(history().isfinite().all().item<bool>());
}

// Its backward is what the step has to look at.
TEST_F(Boundaries, ComeAfterTheClosure) {
  const at::Tensor before = all_parameters(*model_);
  const at::Tensor loss = prepared_.step([&] {
    at::Tensor l = model_->forward(x_).sum() * std::numeric_limits<double>::infinity();
    l.backward();
    return l;
  });
  EXPECT_TRUE(loss.defined());
  EXPECT_TRUE(prepared_.step_was_skipped());
  EXPECT_TRUE(torch::equal(all_parameters(*model_), before));
}

// Weights of an average are swapped in for evaluation and out again.
TEST_F(Boundaries, IgnoreWeightsSwappedForEvaluation) {
  train();
  prepared_.step();
  const at::Tensor advanced = history();
  const at::Tensor own = weight_of(model_).detach().clone();
  const at::Tensor before = model_->forward(x_).detach();
  {
    const at::NoGradGuard no_grad;
    weight_of(model_).mul_(0.5);
    EXPECT_FALSE(torch::equal(model_->forward(x_), before));
    weight_of(model_).copy_(own);
  }
  EXPECT_TRUE(torch::equal(model_->forward(x_).detach(), before));
  EXPECT_TRUE(torch::equal(history(), advanced));
}

// A second stage with an optimizer of its own, which nobody announced: inputs 30 times larger
// saturate with the scales of before.
TEST(Steps, OfAnotherOptimizerAdvanceTheScales) {
  torch::manual_seed(12);
  nn::Sequential model(nn::Linear(32, 48), nn::Linear(48, 16));
  torch::optim::AdamW first(model->parameters());
  Prepared prepared = octavo::torch::prepare(*model, first, config_of("te", "delayed"));
  torch::optim::SGD second(model->parameters(), torch::optim::SGDOptions(1e-4));
  const at::Tensor x = torch::randn({64, 32});
  for (const double scale : {1.0, 1.0, 30.0, 30.0, 30.0}) {
    second.zero_grad();
    model->forward(scale * x).square().mean().backward();
    second.step();
  }
  const at::NoGradGuard no_grad;
  const at::Tensor found = model->forward(30.0 * x);
  prepared.close();
  const at::Tensor expected = model->forward(30.0 * x);
  // Two casts to E4M3 a product, each within 2^-4 of a value and random over 32 terms or more.
  EXPECT_LT((found - expected).norm().item<double>(), 0.1 * expected.norm().item<double>());
}

}  // namespace
