// Adam and AdamW in fp64 after their definition (Kingma and Ba 2015; Loshchilov and Hutter 2019).
//
// It is itself checked against torch.optim in msamp_optimizer_test.cpp before anything rests on it.
#pragma once

#include <cmath>
#include <vector>

namespace octavo::test {

struct AdamOracle {
  double lr = 1e-2;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0;
  bool is_l2 = false;
  int steps = 0;
  std::vector<double> w, m, v;

  void start(const std::vector<float> &weights) {
    w.assign(weights.begin(), weights.end());
    m.assign(w.size(), 0.0);
    v.assign(w.size(), 0.0);
    steps = 0;
  }
  void step(const float *gradient) {
    ++steps;
    const double correction1 = 1 - std::pow(beta1, steps), correction2 = 1 - std::pow(beta2, steps);
    for (size_t i = 0; i < w.size(); ++i) {
      double g = gradient[i];
      if (is_l2)
        g += decay * w[i];
      else
        w[i] *= 1 - lr * decay;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      w[i] -= lr / correction1 * m[i] / (std::sqrt(v[i] / correction2) + eps);
    }
  }
};

}  // namespace octavo::test
