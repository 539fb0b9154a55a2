/* tests/kernels/adam_oracle.h: one Adam element in fp64, with the bounds of an fp32 implementation.
 *
 * u = 2^-24 is the relative error of one fp32 rounding. Bounds are sums of absolute terms times the
 * number of roundings, so cancellation between terms is covered; they are derived, not tuned.
 */
#ifndef OCTAVO_TESTS_KERNELS_ADAM_ORACLE_H
#define OCTAVO_TESTS_KERNELS_ADAM_ORACLE_H

#include <cmath>

namespace octavo::test {

/* The decimal values, as a person writes them. */
struct AdamHyper {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double grad_scale;
  bool is_l2;
};

struct AdamState {
  double weight;
  double exp_avg;
  double exp_avg_sq;
};

struct AdamBound {
  AdamState value;
  AdamState error;
};

/* The step from `old`, whose fp32 values are exact, with gradient g; t counts from 1. */
inline AdamBound adam_oracle(const AdamHyper &h, AdamState old, double g, int t) {
  constexpr double u = 0x1p-24;
  AdamBound b = {};
  /* g * grad_scale, then + weight_decay * w: the rounding of each factor and operation. */
  double gradient = g * h.grad_scale;
  double gradient_error = 2 * u * std::abs(gradient);
  if (h.is_l2) {
    gradient += h.weight_decay * old.weight;
    gradient_error = 4 * u * (std::abs(g * h.grad_scale) + std::abs(h.weight_decay * old.weight));
  }
  const double kept = h.is_l2 ? old.weight : old.weight * (1 - h.lr * h.weight_decay);
  /* beta, 1 - beta, two products, one sum: at most three roundings on each term. */
  const double m_old = h.beta1 * old.exp_avg;
  const double m_new = (1 - h.beta1) * gradient;
  b.value.exp_avg = m_old + m_new;
  b.error.exp_avg = 3 * u * (std::abs(m_old) + std::abs(m_new)) + (1 - h.beta1) * gradient_error;
  const double v_old = h.beta2 * old.exp_avg_sq;
  const double v_new = (1 - h.beta2) * gradient * gradient;
  b.value.exp_avg_sq = v_old + v_new;
  b.error.exp_avg_sq = 4 * u * (v_old + v_new) +
                       (1 - h.beta2) * (2 * std::abs(gradient) + gradient_error) * gradient_error;
  /* The denominator has four roundings and half the relative error of v; the quotient, the step
   * size (two roundings) and the product add four, the decay and the last subtraction three. */
  const double root = std::sqrt(b.value.exp_avg_sq) / std::sqrt(1 - std::pow(h.beta2, t));
  const double step = h.lr / (1 - std::pow(h.beta1, t)) / (root + h.eps);
  const double v_relative =
      b.value.exp_avg_sq > 0 ? b.error.exp_avg_sq / b.value.exp_avg_sq / 2 : 0.0;
  const double change = step * b.value.exp_avg;
  b.value.weight = kept - change;
  b.error.weight = 3 * u * std::abs(kept) + (9 * u + v_relative) * std::abs(change) +
                   step * b.error.exp_avg * (1 + 16 * u);
  /* Results below the normal range have an absolute unit. */
  constexpr double tiny = 0x1p-148;
  b.error.weight += tiny;
  b.error.exp_avg += tiny;
  b.error.exp_avg_sq += tiny;
  return b;
}

}  // namespace octavo::test

#endif
