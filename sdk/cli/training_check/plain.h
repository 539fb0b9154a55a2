// Arithmetic of a trial in float32, by loops that anybody can read: what a backend is compared
// with.
#pragma once

#include <cstdint>

#include "octavo/octavo.hpp"

namespace octavo::training_check {

using Floats = octavo::Array<float>;

// Uniform in [-width, width), equal on every machine.
void fill(Floats &values, uint64_t seed, float width);

// y[M, N] = x[M, K] w[N, K]^T + bias[N]; without values in `bias` none is added.
void forward(const Floats &x, const Floats &w, const Floats &bias, int64_t m, int64_t n, int64_t k,
             Floats &y);
// dw[N, K] += dy[M, N]^T x[M, K], db[N] += column sums of dy, dx[M, K] = dy w; dx may be null.
void backward(const Floats &x, const Floats &w, const Floats &dy, int64_t m, int64_t n, int64_t k,
              Floats &dw, Floats &db, Floats *dx);

// How `found` differs from `wanted`, both with the weight 1 for each element.
struct Difference {
  double found_squares = 0, wanted_squares = 0, products = 0, squares = 0;
  uint64_t nonfinite = 0;

  void add(double found, double wanted);
  // The root of the squares of the differences, in parts of `wanted`.
  double distance() const;
  // `found` along `wanted`: 1 for a result without bias, 0 where nothing was written.
  double size() const;
  // Of the angle between the two.
  double cosine() const;
};
Difference difference(const Floats &found, const Floats &wanted);

}  // namespace octavo::training_check
