// The hand-written backward of the whole model against finite differences, tensor by tensor.
//
// A central difference with step h is wrong by truncation and by rounding. Truncation: the same
// difference with 2 h is wrong by four times as much, so their distance is three times the error
// of the first. Rounding: each of the two losses carries an error of a few units in the last place,
// divided by 2 h.
#include <gmock/gmock.h>

#include <cmath>

#include "samples/train_gpt/model/model.h"

namespace gpt {
namespace {

constexpr int64_t kSequences = 4;

class GradientTest : public testing::Test {
 protected:
  GradientTest() : model_({2, 2, 16, 8}, kSequences, 3, Precision::kFp32, threads_) {
    Random random(1, 9);
    for (int64_t i = 0; i < kSequences * 8; ++i) {
      tokens_.push_back(static_cast<unsigned char>(random.below(256)));
      targets_.push_back(static_cast<unsigned char>(random.below(256)));
    }
    // Biases start at 0 and gains at 1, where a missing term could hide.
    for (Parameter *p : model_.parameters()) {
      for (size_t i = 0; i < p->count(); ++i) {
        p->value[i] += static_cast<float>(0.1 * random.normal());
      }
    }
    loss();
    model_.backward();
  }

  double loss() { return model_.forward(tokens_.data(), targets_.data(), kSequences, 8, true); }

  double difference(Parameter &p, const std::vector<float> &direction, double h) {
    const std::vector<float> kept(p.value.data(), p.value.data() + p.count());
    auto moved = [&](double by) {
      for (size_t i = 0; i < p.count(); ++i) {
        p.value[i] = static_cast<float>(static_cast<double>(kept[i]) +
                                        by * static_cast<double>(direction[i]));
      }
      return loss();
    };
    const double above = moved(h);
    const double below = moved(-h);
    std::copy(kept.begin(), kept.end(), p.value.data());
    return (above - below) / (2.0 * h);
  }

  Threads threads_{1};
  Model model_;
  std::vector<unsigned char> tokens_;
  std::vector<unsigned char> targets_;
};

TEST_F(GradientTest, matches_finite_differences_for_every_tensor) {
  // A row's loss passes through about 100 rounded sums on its way, whose errors are independent:
  // sqrt(100) units in the last place of a loss near 6, and the mean of 32 rows is not worse.
  const double rounding = 10.0 * 0x1p-24 * 6.0;
  for (Parameter *p : model_.parameters()) {
    const std::vector<float> gradient(p->grad.data(), p->grad.data() + p->count());
    double squares = 0.0;
    for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
    const double norm = std::sqrt(squares);
    ASSERT_GT(norm, 1e-4) << p->name << " has no gradient";

    // Along the gradient every element counts by its size; along random signs all count alike.
    for (uint64_t kind = 0; kind < 4; ++kind) {
      std::vector<float> direction(gradient.size());
      Random random(11, kind);
      double expected = 0.0;
      double length = 0.0;
      for (size_t i = 0; i < direction.size(); ++i) {
        const double sign = random.uniform() < 0.5 ? -1.0 : 1.0;
        // An embedding's rows that no token uses stay out of the random directions.
        const double size = gradient[i] != 0.0f ? sign : 0.0;
        direction[i] = static_cast<float>(kind == 0 ? static_cast<double>(gradient[i]) : size);
        length += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
      }
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = static_cast<float>(static_cast<double>(direction[i]) / std::sqrt(length));
        expected += static_cast<double>(direction[i]) * static_cast<double>(gradient[i]);
      }
      const double h = 0.02;
      const double measured = difference(*p, direction, h);
      const double coarse = difference(*p, direction, 2.0 * h);
      const double tolerance = std::fabs(coarse - measured) / 3.0 * 1.5 + rounding / h;
      EXPECT_NEAR(measured, expected, tolerance) << p->name << " direction " << kind;
      if (kind == 0) {
        EXPECT_LT(tolerance, 0.1 * norm) << p->name << ": too coarse to find a wrong factor";
      }
    }
  }
}

TEST_F(GradientTest, backward_overwrites_what_was_there) {
  std::vector<std::vector<float>> first;
  for (Parameter *p : model_.parameters()) {
    first.emplace_back(p->grad.data(), p->grad.data() + p->count());
    std::fill_n(p->grad.data(), p->count(), 77.0f);
  }
  loss();
  model_.backward();
  for (size_t t = 0; t < first.size(); ++t) {
    const Parameter &p = *model_.parameters()[t];
    EXPECT_TRUE(std::equal(first[t].begin(), first[t].end(), p.grad.data())) << p.name;
  }
}

TEST_F(GradientTest, no_token_sees_a_later_one) {
  const std::vector<float> before(model_.logits(tokens_.data(), 8),
                                  model_.logits(tokens_.data(), 8) + 8 * 256);
  std::vector<unsigned char> changed(tokens_.begin(), tokens_.begin() + 8);
  changed[5] = static_cast<unsigned char>(changed[5] + 1);
  const float *after = model_.logits(changed.data(), 8);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 5 * 256, after));
  EXPECT_FALSE(std::equal(before.begin() + 5 * 256, before.end(), after + 5 * 256));
}

}  // namespace
}  // namespace gpt
