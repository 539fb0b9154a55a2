/* numbers.h: one training step of one small layer, with results that are exact in every FP8 format.
 *
 * x, w, dy and the bias are whole numbers from -7 to 7 and each matrix has a 7: so current scaling
 * divides by 7, every code has at most three significant bits, and y, dx, dw and db are whole
 * numbers, whoever computes them.
 */
#ifndef OCTAVO_TESTS_NUMBERS_H
#define OCTAVO_TESTS_NUMBERS_H

#include <stdio.h>
#include <string.h>

enum { M = 4, N = 3, K = 5 };

typedef struct numbers {
  float x[M * K], w[N * K], bias[N], dy[M * N];
  float y[M * N], dx[M * K], dw[N * K], db[N];
} numbers;

static inline void set_numbers(numbers *n) {
  memset(n, 0, sizeof *n);
  for (int i = 0; i < M * K; ++i) n->x[i] = (float)((i * 5 + 7) % 15 - 7);
  for (int i = 0; i < N * K; ++i) n->w[i] = (float)((i * 4 + 14) % 15 - 7);
  for (int i = 0; i < N; ++i) n->bias[i] = (float)(2 * i - 3);
  for (int i = 0; i < M * N; ++i) n->dy[i] = (float)((i * 11 + 14) % 15 - 7);
}

static inline int expect_floats(const char *what, const float *found, const float *expected,
                                int count) {
  for (int i = 0; i < count; ++i)
    if (found[i] != expected[i]) {
      printf("%s[%d]: expected %g, found %g\n", what, i, (double)expected[i], (double)found[i]);
      return 1;
    }
  return 0;
}

/* The number of wrong tensors. */
static inline int check_numbers(const numbers *n, int with_bias) {
  numbers e;
  memset(&e, 0, sizeof e);
  for (int m = 0; m < M; ++m)
    for (int o = 0; o < N; ++o) {
      if (with_bias) e.y[m * N + o] = n->bias[o];
      e.db[o] += n->dy[m * N + o];
      for (int k = 0; k < K; ++k) {
        e.y[m * N + o] += n->x[m * K + k] * n->w[o * K + k];
        e.dx[m * K + k] += n->dy[m * N + o] * n->w[o * K + k];
        e.dw[o * K + k] += n->dy[m * N + o] * n->x[m * K + k];
      }
    }
  return expect_floats("y", n->y, e.y, M * N) + expect_floats("dx", n->dx, e.dx, M * K) +
         expect_floats("dw", n->dw, e.dw, N * K) + expect_floats("db", n->db, e.db, N);
}

#endif
