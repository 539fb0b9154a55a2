// A linear of octavo::torch against the same backend called in plain C: equal bits.
#include <gtest/gtest.h>
#include <octavo/torch/linear.h>
#include <octavo/torch/prepare.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "plain_host.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Error;
using octavo::torch::Prepared;
using testing_torch::PlainHost;
namespace nn = torch::nn;

struct Case {
  const char *name;
  const char *toml;
};

const Case kCases[] = {
    {"te_delayed",
     "[fp8]\nbackend = \"te\"\n[fp8.te]\nrecipe = \"delayed\"\namax_history_len = 4\n"},
    {"te_current", "[fp8]\nbackend = \"te\"\n[fp8.te]\nrecipe = \"current\"\n"},
    {"te_block", "[fp8]\nbackend = \"te\"\n[fp8.te]\nrecipe = \"block\"\n"},
    {"te_mx", "[fp8]\nbackend = \"te\"\n[fp8.te]\nrecipe = \"mx\"\n"},
    {"te_plain_wgrad",
     "[fp8]\nbackend = \"te\"\n[fp8.te]\noverride_linear_precision = \"wgrad\"\n"},
    {"msamp_O2", "[fp8]\nbackend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O2\"\n"},
    {"msamp_O3", "[fp8]\nbackend = \"msamp\"\n[fp8.msamp]\nopt_level = \"O3\"\n"},
};

std::vector<float> values(const at::Tensor &t) {
  const at::Tensor plain = t.detach().to(at::kFloat).contiguous();
  return {plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel()};
}

class Linears : public ::testing::TestWithParam<std::tuple<Case, at::ScalarType>> {
 protected:
  static constexpr int64_t kN = 48;
  static constexpr int64_t kK = 40;

  static uint32_t dtype() {
    return std::get<1>(GetParam()) == at::kFloat      ? OCTAVO_F32
           : std::get<1>(GetParam()) == at::kBFloat16 ? OCTAVO_BF16
                                                      : OCTAVO_F16;
  }
  static at::Tensor random(at::IntArrayRef sizes) {
    return torch::randn(sizes).to(std::get<1>(GetParam()));
  }
  static std::string toml() { return std::get<0>(GetParam()).toml; }
};

TEST_P(Linears, ForwardAndBackwardOverStepsEqualPlainC) {
  torch::manual_seed(1);
  nn::Linear linear(kK, kN);
  PlainHost plain(toml(), kN, kK, dtype(), values(linear->weight), values(linear->bias));
  torch::optim::AdamW adam(linear->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0));
  Prepared prepared = octavo::torch::prepare(*linear, adam, Config::from_text(toml()));
  ASSERT_TRUE(prepared.layers().at(0).fp8) << prepared.layers().at(0).reason;
  const float hyper[8] = {1e-2f, 0.9f, 0.999f, 1e-8f, 0, 1, 0, 0};

  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = (random({15, kK}) * (1 + step)).requires_grad_();
    const at::Tensor dy = random({15, kN});
    const at::Tensor y = linear(x);
    ASSERT_EQ(y.sizes(), dy.sizes());
    ASSERT_EQ(y.scalar_type(), x.scalar_type());
    y.backward(dy);

    at::Tensor expected_y = at::empty_like(y);
    at::Tensor expected_dx = at::empty_like(x);
    std::vector<float> dw(kN * kK);
    std::vector<float> db(kN);
    plain.forward(x.const_data_ptr(), 15, expected_y.mutable_data_ptr());
    plain.backward(dy.const_data_ptr(), expected_dx.mutable_data_ptr(), dw.data(), db.data());
    EXPECT_TRUE(at::equal(y, expected_y)) << "step " << step;
    EXPECT_TRUE(at::equal(x.grad(), expected_dx)) << "step " << step;
    EXPECT_EQ(values(linear->bias.grad()), db) << "step " << step;
    if (plain.has_optimizer()) {
      EXPECT_EQ(values(linear->weight.grad().clone()), plain.read(OCTAVO_ROLE_GRADIENT));
      EXPECT_EQ(values(prepared.session().read("weight", OCTAVO_ROLE_GRADIENT)),
                plain.read(OCTAVO_ROLE_GRADIENT));
      plain.optimizer_step(db, hyper);
    } else {
      EXPECT_EQ(values(linear->weight.grad()), dw) << "step " << step;
    }
    prepared.step();
    prepared.zero_grad();
    if (!plain.has_optimizer()) {  // torch's own AdamW has stepped the tensors
      plain.set_parameters(values(linear->weight), values(linear->bias));
    }
    plain.end_step();
    plain.quantize();
    if (plain.has_optimizer()) {
      EXPECT_EQ(values(prepared.session().read("weight", OCTAVO_ROLE_WEIGHT)),
                plain.read(OCTAVO_ROLE_WEIGHT));
      EXPECT_EQ(values(linear->bias), plain.bias());
    }
  }
}

// More than two dimensions: torch's own module adds the bias outside of the linear, this one
// within.
TEST_P(Linears, OwnModuleTakesLeadingDimensions) {
  torch::manual_seed(6);
  octavo::torch::Linear linear(kK, kN);
  PlainHost plain(toml(), kN, kK, dtype(), values(linear->weight), values(linear->bias));
  torch::optim::AdamW adam(linear->parameters());
  Prepared prepared = octavo::torch::prepare(*linear, adam, Config::from_text(toml()));
  const at::Tensor x = random({kK, 3, 5}).permute({1, 2, 0}).requires_grad_();  // not contiguous
  const at::Tensor dy = random({3, 5, kN});
  const at::Tensor y = linear(x);
  y.backward(dy);
  const at::Tensor rows = x.detach().contiguous();
  at::Tensor expected_y = at::empty_like(dy);
  at::Tensor expected_dx = at::empty_like(rows);
  std::vector<float> dw(kN * kK);
  std::vector<float> db(kN);
  plain.forward(rows.const_data_ptr(), 15, expected_y.mutable_data_ptr());
  plain.backward(dy.const_data_ptr(), expected_dx.mutable_data_ptr(), dw.data(), db.data());
  EXPECT_TRUE(at::equal(y, expected_y));
  EXPECT_TRUE(at::equal(x.grad(), expected_dx));
  EXPECT_EQ(values(linear->bias.grad()), db);
}

TEST_P(Linears, EvaluationRecordsNothingAndEqualsPlainCOrTorch) {
  torch::manual_seed(2);
  nn::Linear linear(kK, kN);
  PlainHost plain(toml(), kN, kK, dtype(), values(linear->weight), values(linear->bias));
  torch::optim::AdamW adam(linear->parameters());
  Prepared prepared = octavo::torch::prepare(*linear, adam, Config::from_text(toml()));
  linear->eval();
  const at::Tensor x = random({7, kK});
  at::Tensor expected = at::empty({7, kN}, x.options());
  plain.evaluate(x.const_data_ptr(), 7, expected.mutable_data_ptr());
  if (prepared.session().option("use_autocast_during_eval") == "false") {  // torch's own product
    const at::ScalarType type = x.scalar_type();
    expected = at::linear(x, linear->weight.detach().to(type), linear->bias.detach().to(type));
    EXPECT_EQ(prepared.layers().at(0).forward_calls, 0u);
  }
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(linear(x), expected));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(linear(x), expected));
  }
  for (const octavo::torch::Slot &slot : prepared.session().slots()) {
    const bool amax = slot.role == OCTAVO_ROLE_AMAX || slot.role == OCTAVO_ROLE_AMAX_HISTORY;
    if (amax && slot.name.find("x/") == 0) {
      EXPECT_EQ(slot.tensor.abs().max().item<float>(), 0) << slot.name;
    }
  }
}

TEST_P(Linears, EveryBatchSizeFrom0To33) {
  torch::manual_seed(3);
  nn::Linear linear(kK, kN);
  PlainHost plain(toml(), kN, kK, dtype(), values(linear->weight), values(linear->bias));
  torch::optim::AdamW adam(linear->parameters());
  Prepared prepared = octavo::torch::prepare(*linear, adam, Config::from_text(toml()));
  for (int64_t m = 0; m <= 33; ++m) {
    const at::Tensor x = random({m, kK}).requires_grad_();
    const at::Tensor dy = random({m, kN});
    const at::Tensor y = linear(x);
    y.backward(dy);
    at::Tensor expected_y = at::empty_like(y);
    at::Tensor expected_dx = at::empty_like(x);
    std::vector<float> dw(kN * kK);
    std::vector<float> db(kN);
    plain.forward(x.const_data_ptr(), m, expected_y.mutable_data_ptr());
    plain.backward(dy.const_data_ptr(), expected_dx.mutable_data_ptr(), dw.data(), db.data());
    EXPECT_TRUE(at::equal(y, expected_y)) << m;
    EXPECT_TRUE(at::equal(x.grad(), expected_dx)) << m;
    EXPECT_EQ(values(linear->bias.grad()), db) << m;
    if (!plain.has_optimizer()) {
      EXPECT_EQ(values(linear->weight.grad()), dw) << m;
    }
    prepared.zero_grad();
  }
}

TEST_P(Linears, AccumulatesOverMicroBatches) {
  torch::manual_seed(4);
  nn::Linear linear(kK, kN);
  PlainHost plain(toml(), kN, kK, dtype(), values(linear->weight), values(linear->bias));
  torch::optim::AdamW adam(linear->parameters());
  Prepared prepared = octavo::torch::prepare(*linear, adam, Config::from_text(toml()));
  std::vector<float> dw(kN * kK);
  std::vector<float> db(kN);
  at::Tensor dw_sum;
  at::Tensor db_sum;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = random({9, kK});
    const at::Tensor dy = random({9, kN});
    linear(x).backward(dy);
    at::Tensor y = at::empty({9, kN}, x.options());
    at::Tensor dx = at::empty_like(x);
    plain.forward(x.const_data_ptr(), 9, y.mutable_data_ptr());
    plain.backward(dy.const_data_ptr(), dx.mutable_data_ptr(), dw.data(), db.data(),
                   plain.has_optimizer() && i > 0);
    const at::Tensor dw_part = at::from_blob(dw.data(), {kN, kK}).clone();
    const at::Tensor db_part = at::from_blob(db.data(), {kN}).clone();
    dw_sum = i == 0 ? dw_part : dw_sum + dw_part;
    db_sum = i == 0 ? db_part : db_sum + db_part;
  }
  EXPECT_TRUE(at::equal(linear->bias.grad(), db_sum));
  if (plain.has_optimizer()) {
    EXPECT_EQ(values(prepared.session().read("weight", OCTAVO_ROLE_GRADIENT)),
              plain.read(OCTAVO_ROLE_GRADIENT));
    // Dropped gradients are gone: the next backward overwrites the slot.
    prepared.zero_grad();
    EXPECT_FALSE(linear->bias.grad().defined());
    const at::Tensor x = random({9, kK});
    const at::Tensor dy = random({9, kN});
    linear(x).backward(dy);
    at::Tensor y = at::empty({9, kN}, x.options());
    at::Tensor dx = at::empty_like(x);
    plain.forward(x.const_data_ptr(), 9, y.mutable_data_ptr());
    plain.backward(dy.const_data_ptr(), dx.mutable_data_ptr(), dw.data(), db.data());
    EXPECT_EQ(values(prepared.session().read("weight", OCTAVO_ROLE_GRADIENT)),
              plain.read(OCTAVO_ROLE_GRADIENT));
  } else {
    EXPECT_TRUE(at::equal(linear->weight.grad(), dw_sum));
  }
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<Case, at::ScalarType>> &info) {
  return std::string(std::get<0>(info.param).name) + "_" + c10::toString(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Backends, Linears,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(at::kFloat, at::kBFloat16,
                                                              at::kHalf)),
                         case_name);

}  // namespace
