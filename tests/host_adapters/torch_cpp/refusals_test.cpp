// What is refused, how it is said, and that nothing changes by it.
#include <gtest/gtest.h>
#include <octavo/octavo.h>

#include <octavo/torch/linear.h>

#include <functional>
#include <sstream>

#include "transformer.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Prepared;
using testing_torch::adamw;
using testing_torch::config_of;
using testing_torch::status_of;
namespace nn = torch::nn;

struct OnTwoDevices : nn::Module {
  OnTwoDevices() {
    register_module("linear", nn::Linear(32, 48));
    register_parameter("scale", torch::ones({4}, torch::kMeta));
  }
};

// All or nothing: after each refusal the module computes what it computed before.
class Refusals : public ::testing::Test {
 protected:
  template <class Fn>
  void refuses(octavo_status status, const std::string &word, const Fn &fn) {
    EXPECT_EQ(status_of(fn, word), status) << word;
    EXPECT_TRUE(torch::equal(linear_(x_), y_)) << word;
    EXPECT_FALSE(linear_->weight.isnan().any().item<bool>()) << word;
  }
  void prepare(torch::optim::Optimizer &optimizer, const Config &config) {
    Prepared prepared = octavo::torch::prepare(*linear_, optimizer, config);
  }

  nn::Linear linear_{32, 48};
  at::Tensor x_ = torch::randn({4, 32});
  at::Tensor y_ = linear_(x_);
  torch::optim::AdamW adamw_ = adamw(*linear_);
};

TEST_F(Refusals, ConfigurationsAndOptimizers) {
  refuses(OCTAVO_INVALID, "recipe",
          [&] { prepare(adamw_, Config::from_text("[fp8.te]\nrecipe = \"nothing\"\n")); });
  refuses(OCTAVO_INVALID, "no_such_file", [&] { prepare(adamw_, "/no_such_file.toml"); });
  refuses(OCTAVO_UNSUPPORTED, "cuda", [&] {
    Config config = config_of("te");
    prepare(adamw_, config.set("device.kind", "cuda"));
  });
  refuses(OCTAVO_UNSUPPORTED, "no_such_backend",
          [&] { prepare(adamw_, config_of("no_such_backend")); });
  torch::optim::SGD sgd(linear_->parameters(), 0.1);
  refuses(OCTAVO_UNSUPPORTED, "AdamW", [&] { prepare(sgd, config_of("msamp")); });
  torch::optim::AdamW amsgrad(linear_->parameters(), torch::optim::AdamWOptions().amsgrad(true));
  refuses(OCTAVO_UNSUPPORTED, "amsgrad", [&] { prepare(amsgrad, config_of("msamp")); });
  torch::optim::Adam l2(linear_->parameters(), torch::optim::AdamOptions().weight_decay(0.1));
  refuses(OCTAVO_INVALID, "fp8.msamp.optimizer", [&] { prepare(l2, config_of("msamp")); });
  nn::Linear other(32, 48);
  torch::optim::AdamW foreign = adamw(*other);
  refuses(OCTAVO_INVALID, "module->parameters()", [&] { prepare(foreign, config_of("te")); });
  torch::optim::AdamW used = adamw(*linear_, 0.0);
  linear_(x_).sum().backward();
  used.step();
  refuses(OCTAVO_WRONG_STATE, "first step", [&] { prepare(used, config_of("msamp")); });
}

TEST_F(Refusals, ModelsAndOperands) {
  nn::Linear wide(32, 48);
  wide->to(torch::kDouble);
  torch::optim::AdamW plain = adamw(*wide);
  EXPECT_EQ(
      status_of([&] { static_cast<void>(octavo::torch::prepare(*wide, plain, config_of("te"))); },
                "Double"),
      OCTAVO_INVALID);
  EXPECT_EQ(wide->weight.scalar_type(), torch::kDouble);

  OnTwoDevices elsewhere;
  torch::optim::AdamW its_own = adamw(elsewhere);
  EXPECT_EQ(
      status_of(
          [&] { static_cast<void>(octavo::torch::prepare(elsewhere, its_own, config_of("te"))); },
          "module->to(torch::kCPU)"),
      OCTAVO_UNSUPPORTED);

  Prepared prepared = octavo::torch::prepare(*linear_, adamw_, config_of("te", "current"));
  EXPECT_EQ(
      status_of(
          [&] { static_cast<void>(octavo::torch::prepare(*linear_, adamw_, config_of("te"))); },
          "is not prepared"),
      OCTAVO_WRONG_STATE);
  const at::Tensor good = linear_(x_);
  EXPECT_EQ(status_of([&] { linear_(x_.to(torch::kDouble)); }, "found float64"), OCTAVO_INVALID);
  EXPECT_EQ(status_of(
                [&] {
                  linear_(torch::randn({4, 31}));
                },
                "a last dimension of 32, found"),
            OCTAVO_INVALID);
  const at::Tensor x = x_.clone().requires_grad_();
  EXPECT_EQ(
      status_of([&] { torch::autograd::grad({linear_(x).pow(2).sum()}, {x}, {}, true, true); },
                "create_graph"),
      OCTAVO_UNSUPPORTED);
  EXPECT_TRUE(torch::equal(linear_(x_), good));
  prepared.close();
  EXPECT_TRUE(prepared.is_closed());
  EXPECT_EQ(status_of([&] { prepared.step(); }, "closed"), OCTAVO_WRONG_STATE);
}

TEST_F(Refusals, ModelsWithoutALayerInFp8) {
  nn::Sequential none(nn::Embedding(8, 16), nn::LayerNorm(nn::LayerNormOptions({16})));
  torch::optim::AdamW plain = adamw(*none);
  EXPECT_EQ(
      status_of([&] { static_cast<void>(octavo::torch::prepare(*none, plain, config_of("te"))); },
                "it has no linear layers"),
      OCTAVO_UNSUPPORTED);
  refuses(OCTAVO_UNSUPPORTED, "expected at least one linear layer", [&] {
    prepare(adamw_, Config::from_text("[fp8]\nbackend = \"te\"\n[layers]\nskip = [\"*\"]\n"));
  });
  Prepared bf16 =
      octavo::torch::prepare(*none, plain, Config::from_text("mixed_precision = \"bf16\"\n"));
  EXPECT_EQ(bf16.session().precision(), "bf16");
}

// A module's weight that is another tensor now: te reads it, and msamp says so.
TEST(Weights, ThatAreReplacedAreReadOrRefused) {
  const at::Tensor x = torch::randn({4, 32});
  for (const std::string backend : {"te", "msamp"}) {
    torch::manual_seed(31);
    octavo::torch::Linear linear(32, 48);
    torch::optim::AdamW plain = adamw(*linear);
    Prepared prepared = octavo::torch::prepare(*linear, plain, config_of(backend));
    const at::Tensor y = linear(x).detach();
    linear->weight = torch::zeros({48, 32});
    if (backend == "te") {
      EXPECT_TRUE(torch::equal(linear(x), linear->bias.expand({4, 48})));
    } else {
      EXPECT_EQ(status_of([&] { linear(x); }, "expected the one that was prepared"),
                OCTAVO_INVALID);
    }
  }
}

// No operator of torch reads a weight in slots as anything but its values.
TEST(Weights, InSlotsAreNeitherReadNorWrittenElsewhere) {
  nn::Linear linear(32, 48);
  torch::optim::AdamW plain = adamw(*linear);
  Prepared prepared = octavo::torch::prepare(*linear, plain, config_of("msamp"));
  const at::Tensor &w = linear->weight;
  linear(torch::randn({4, 32})).sum().backward();
  const at::NoGradGuard no_grad;
  const std::vector<std::function<void()>> uses = {
      [&] { static_cast<void>(w.clone()); },
      [&] { w.mul_(2.0); },
      [&] {
        w.copy_(torch::zeros({48, 32}));
      },
      [&] {
        torch::zeros({48, 32}).add_(w);
      },
      [&] {
        torch::zeros({48, 32}).lerp_(w, 0.1);
      },
      [&] { static_cast<void>(w.narrow(0, 1, 2).sum()); },
      [&] {
        static_cast<void>(torch::matmul(w, torch::randn({32, 4})));
      },
      [&] { static_cast<void>(w[0][0].item<float>()); },
      [&] { static_cast<void>(linear->clone()); },
      [&] { linear->to(torch::kDouble); },
      [&] { plain.step(); },
      [&] {
        std::ostringstream stream;
        torch::save(linear, stream);
      },
      [&] {
        std::stringstream stream;
        torch::save(nn::Linear(32, 48), stream);
        torch::load(linear, stream);
      },
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    SCOPED_TRACE(i);
    try {
      uses[i]();
      ADD_FAILURE() << "no error";
    } catch (const c10::Error &e) {
      EXPECT_NE(std::string(e.what()).find("parameter \"weight\""), std::string::npos) << e.what();
    }
  }
  EXPECT_FALSE(linear(torch::randn({4, 32})).isnan().any().item<bool>());
}

TEST(Weights, InSlotsTakeOverAnotherTensor) {
  const at::Tensor x = torch::randn({64, 32});
  nn::Linear loaded(32, 48);
  nn::Linear linear(32, 48);
  linear->bias.set_data(loaded->bias.detach().clone());
  torch::optim::AdamW plain = adamw(*linear, 1e-9);
  Prepared prepared = octavo::torch::prepare(*linear, plain, config_of("msamp"));
  linear->weight.set_data(loaded->weight.detach().clone());
  const auto agrees = [&] {
    const at::Tensor expected = loaded(x);
    return (linear(x) - expected).norm().item<double>() < 0.1 * expected.norm().item<double>();
  };
  EXPECT_TRUE(agrees());
  EXPECT_TRUE(testing_torch::is_unreadable(linear->weight));
  linear->weight.set_data(loaded->weight.detach() * -1.0);
  EXPECT_TRUE(torch::allclose(prepared.session().read("weight", OCTAVO_ROLE_WEIGHT),
                              -loaded->weight, 0.1, 1e-3));
  linear->weight.set_data(loaded->weight.detach().clone());
  linear(x).sum().backward();
  prepared.step();
  EXPECT_TRUE(agrees());
  linear->weight.set_data(torch::zeros({48, 31}));
  EXPECT_EQ(status_of([&] { linear(x.narrow(1, 0, 31)); }, "the shape and dtype of prepare()"),
            OCTAVO_INVALID);
  linear->weight.set_data(loaded->weight.detach().clone());
  const at::Tensor late = linear(x).sum();
  prepared.with_plain_weights([&] {
    linear(x);
    EXPECT_TRUE(torch::allclose(linear->weight, loaded->weight, 0.1, 1e-3));
  });
  EXPECT_TRUE(agrees());
  prepared.close();
  EXPECT_TRUE(torch::allclose(linear->weight, loaded->weight, 0.1, 1e-3));
  EXPECT_EQ(status_of([&] { late.backward(); }, "found it closed"), OCTAVO_WRONG_STATE);
}

// The type of a number decides, not that 0 could be a pointer.
TEST(Settings, NumbersAreNumbers) {
  Config config;
  config.set("a", 0).set("b", false).set("c", 0.5f).set("d", "0").set("e", int64_t{7});
  const octavo::torch::Value expected[] = {int64_t{0}, false, 0.5, std::string("0"), int64_t{7}};
  ASSERT_EQ(config.overrides.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(config.overrides[i].second, expected[i]) << i;
}

TEST(Explain, SaysWhatWouldRun) {
  const std::string text = octavo::torch::explain(config_of("te", "block"));
  EXPECT_NE(text.find("te"), std::string::npos) << text;
}

}  // namespace
