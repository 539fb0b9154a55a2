// The backend's Adam next to the optimizer that prepare() was given: one list of groups for both.
#include <gtest/gtest.h>

#include <sstream>

#include "transformer.h"

namespace {

using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::config_of;
using testing_torch::status_of;
namespace nn = torch::nn;

// On the optimizer that prepare() was given, and on the backend's Adam in its place.
class Schedulers : public ::testing::TestWithParam<bool> {};

TEST_P(Schedulers, WorkOnBothOptimizers) {
  torch::manual_seed(13);
  nn::Linear linear(32, 32);
  torch::optim::AdamW plain = adamw(*linear, 1e-2);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config_of("msamp"));
  torch::optim::Optimizer &scheduled =
      GetParam() ? static_cast<torch::optim::Optimizer &>(plain) : optimizer.optimizer();
  torch::optim::StepLR scheduler(scheduled, 1, 0.0);
  const auto step = [&] {
    optimizer.zero_grad();
    linear(torch::randn({4, 32})).pow(2).sum().backward();
    const double norm = optimizer.clip_grad_norm_(0.5);
    EXPECT_GT(norm, 0.5);
    optimizer.step();
  };
  const at::Tensor start = linear->bias.detach().clone();
  step();
  const at::Tensor moved = linear->bias.detach().clone();
  EXPECT_FALSE(torch::equal(moved, start));
  scheduler.step();  // torch leaves the rate alone the first time
  scheduler.step();  // and multiplies it by 0 now
  step();
  EXPECT_TRUE(torch::equal(linear->bias, moved));
  EXPECT_EQ(plain.param_groups()[0].options().get_lr(), 0.0);
  EXPECT_EQ(optimizer.optimizer().param_groups()[0].options().get_lr(), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Schedulers, ::testing::Bool(), [](const auto &given) {
  return std::string(given.param ? "given" : "result");
});

// The file has the rates of its time, in both.
TEST(Optimizers, AgreeAfterLoading) {
  torch::manual_seed(15);
  nn::Linear linear(32, 32);
  torch::optim::AdamW plain = adamw(*linear, 1e-2);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config_of("msamp"));
  std::stringstream file;
  torch::serialize::OutputArchive saved;
  optimizer.optimizer().save(saved);
  saved.save_to(file);
  plain.param_groups()[0].options().set_lr(0.5);
  torch::serialize::InputArchive loaded;
  loaded.load_from(file);
  optimizer.optimizer().load(loaded);
  EXPECT_EQ(plain.param_groups()[0].options().get_lr(), 1e-2);
  plain.param_groups()[0].options().set_lr(0.0);
  const at::Tensor bias = linear->bias.detach().clone();
  linear(torch::randn({4, 32})).sum().backward();
  optimizer.step();
  EXPECT_TRUE(torch::equal(linear->bias, bias));
}

// Fewer parameters than before would leave some at their last value without a word.
TEST(Optimizers, RefuseGroupsThatShrink) {
  nn::Linear linear(32, 32);
  torch::optim::AdamW plain = adamw(*linear);
  Prepared optimizer = octavo::torch::prepare(*linear, plain, config_of("msamp"));
  linear(torch::randn({4, 32})).sum().backward();
  std::vector<at::Tensor> &parameters = plain.param_groups()[0].params();
  const at::Tensor last = parameters.back();
  parameters.pop_back();
  EXPECT_EQ(status_of([&] { optimizer.step(); }, "prepare again to step fewer"), OCTAVO_INVALID);
  parameters.push_back(last);
  optimizer.step();
  EXPECT_EQ(optimizer.skipped_steps(), 0u);
}

}  // namespace
