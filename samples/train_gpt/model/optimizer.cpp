// Elements are independent in a step; the norm is summed by one thread in a fixed order.
#include "optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace gpt {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Parameter *> parameters, const Threads &threads)
      : parameters_(std::move(parameters)), threads_(threads) {
    for (Parameter *p : parameters_) {
      p->exp_avg.reset(p->count());
      p->exp_avg_sq.reset(p->count());
    }
  }

  double gradient_norm() override {
    double squares = 0.0;
    for (const Parameter *p : parameters_) {
      const float *g = p->grad.data();
      squares += sum_of<double>(static_cast<int64_t>(p->count()), [&](int64_t i) {
        return static_cast<double>(g[i]) * static_cast<double>(g[i]);
      });
    }
    return std::sqrt(squares);
  }

  void step(double rate, double norm, bool skip) override {
    if (skip) return;
    ++steps_;
    const auto t = static_cast<double>(steps_);
    const auto clip = static_cast<float>(norm > options_.clip ? options_.clip / norm : 1.0);
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto size = static_cast<float>(rate / (1.0 - std::pow(options_.beta1, t)));
    const auto correct = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t)));
    const auto epsilon = static_cast<float>(options_.epsilon);
    for (Parameter *p : parameters_) {
      const auto keep = static_cast<float>(p->decays ? 1.0 - rate * options_.decay : 1.0);
      float *value = p->value.data();
      float *exp_avg = p->exp_avg.data();
      float *exp_avg_sq = p->exp_avg_sq.data();
      const float *grad = p->grad.data();
      const auto count = static_cast<int64_t>(p->count());
      threads_.for_ranges(count, 1 << 13, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const float g = grad[i] * clip;
          exp_avg[i] = beta1 * exp_avg[i] + (1.0f - beta1) * g;
          exp_avg_sq[i] = beta2 * exp_avg_sq[i] + (1.0f - beta2) * g * g;
          const float deviation = std::sqrt(exp_avg_sq[i]) * correct + epsilon;
          value[i] = value[i] * keep - size * exp_avg[i] / deviation;
        }
      });
    }
  }

  int64_t own_steps() const override { return steps_; }
  void restore_steps(int64_t steps) override { steps_ = steps; }

 private:
  std::vector<Parameter *> parameters_;
  const AdamWOptions options_;
  const Threads &threads_;
  int64_t steps_ = 0;
};

}  // namespace

double learning_rate(double peak, double end, int64_t step, int64_t steps) {
  const int64_t warm_up = std::max<int64_t>(steps / 10, 1);
  if (step < warm_up) return peak * static_cast<double>(step + 1) / static_cast<double>(warm_up);
  const double rest = static_cast<double>(std::max<int64_t>(steps - warm_up, 1));
  const double progress = static_cast<double>(step - warm_up) / rest;
  return peak * (end + 0.5 * (1.0 - end) * (1.0 + std::cos(std::numbers::pi * progress)));
}

std::unique_ptr<Optimizer> make_adamw(std::vector<Parameter *> parameters, const Threads &threads) {
  return std::make_unique<AdamW>(std::move(parameters), threads);
}

}  // namespace gpt
