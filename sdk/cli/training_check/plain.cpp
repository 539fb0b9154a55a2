// The order of these loops lets a compiler use vectors without changing a sum.
#include "plain.h"

#include <cmath>
#include <limits>

namespace octavo::training_check {

void fill(Floats &values, uint64_t seed, float width) {
  for (size_t i = 0; i < values.size(); ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    values[i] = width * (static_cast<float>(seed >> 40U) * 0x1p-23F - 1);
  }
}

void forward(const Floats &x, const Floats &w, const Floats &bias, int64_t m, int64_t n, int64_t k,
             Floats &y) {
  Floats transposed(w.size());
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i)
      transposed[static_cast<size_t>(i * n + j)] = w[static_cast<size_t>(j * k + i)];
  for (int64_t row = 0; row < m; ++row) {
    float *out = y.data() + row * n;
    for (int64_t j = 0; j < n; ++j) out[j] = bias.size() == 0 ? 0 : bias[static_cast<size_t>(j)];
    for (int64_t i = 0; i < k; ++i) {
      const float factor = x[static_cast<size_t>(row * k + i)];
      const float *column = transposed.data() + i * n;
      for (int64_t j = 0; j < n; ++j) out[j] += factor * column[j];
    }
  }
}

void backward(const Floats &x, const Floats &w, const Floats &dy, int64_t m, int64_t n, int64_t k,
              Floats &dw, Floats &db, Floats *dx) {
  if (dx != nullptr) dx->clear();
  for (int64_t row = 0; row < m; ++row) {
    const float *in = x.data() + row * k;
    float *out = dx == nullptr ? nullptr : dx->data() + row * k;
    for (int64_t j = 0; j < n; ++j) {
      const float factor = dy[static_cast<size_t>(row * n + j)];
      db[static_cast<size_t>(j)] += factor;
      float *gradient = dw.data() + j * k;
      for (int64_t i = 0; i < k; ++i) gradient[i] += factor * in[i];
      const float *weight = w.data() + j * k;
      for (int64_t i = 0; out != nullptr && i < k; ++i) out[i] += factor * weight[i];
    }
  }
}

void Difference::add(double found, double wanted) {
  if (!std::isfinite(found)) ++nonfinite;
  found_squares += found * found;
  wanted_squares += wanted * wanted;
  products += found * wanted;
  squares += (found - wanted) * (found - wanted);
}

double Difference::distance() const {
  return wanted_squares > 0 ? std::sqrt(squares / wanted_squares)
                            : std::numeric_limits<double>::infinity();
}
double Difference::size() const {
  return wanted_squares > 0 ? products / wanted_squares : 0;
}
double Difference::cosine() const {
  return wanted_squares > 0 && found_squares > 0
             ? products / std::sqrt(wanted_squares * found_squares)
             : 0;
}

Difference difference(const Floats &found, const Floats &wanted) {
  Difference all;
  for (size_t i = 0; i < wanted.size(); ++i)
    all.add(static_cast<double>(found[i]), static_cast<double>(wanted[i]));
  return all;
}

}  // namespace octavo::training_check
