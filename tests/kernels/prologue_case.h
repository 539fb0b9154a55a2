/* tests/kernels/prologue_case.h: a prologue with everything it points to, for tests of the verbs
 * prologue and prologue_quantize.
 */
#ifndef OCTAVO_TESTS_KERNELS_PROLOGUE_CASE_H
#define OCTAVO_TESTS_KERNELS_PROLOGUE_CASE_H

#include <string>
#include <vector>

#include "tests/kernels/matrices.h"

namespace octavo::test {

constexpr uint32_t kPrologueOps[] = {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_RMS_NORM,
                                     OCTAVO_PROLOGUE_GELU, OCTAVO_PROLOGUE_GELU_TANH,
                                     OCTAVO_PROLOGUE_SWIGLU};
constexpr uint32_t kPlainDtypes[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

/* What lies in mean and rstd before a call. */
constexpr float kUnwritten = -77.0f;

struct PrologueCase {
  uint32_t op;
  int64_t rows; /* M */
  int64_t cols; /* K */
  Matrix in;
  Matrix gamma;
  Matrix beta;
  std::vector<float> mean;
  std::vector<float> rstd;
  octavo_prologue p = make_call<octavo_prologue>(OCTAVO_KIND_PROLOGUE);

  PrologueCase(uint32_t op_of_case, int64_t m, int64_t k, uint32_t in_dtype = OCTAVO_F32,
               uint32_t weight_dtype = OCTAVO_F32, int64_t padding = 3)
      : op(op_of_case),
        rows(m),
        cols(k),
        in(in_dtype, m, op_of_case == OCTAVO_PROLOGUE_SWIGLU ? 2 * k : k, padding),
        gamma(weight_dtype, 1, k),
        beta(weight_dtype, 1, k),
        mean(static_cast<size_t>(m) + 1, kUnwritten),
        rstd(static_cast<size_t>(m) + 1, kUnwritten) {
    const auto seed = static_cast<unsigned>(op * 7919 + m * 131 + k);
    in.fill(seed, 3.0f);
    gamma.fill(seed + 1);
    beta.fill(seed + 2);
    connect();
  }
  PrologueCase(const PrologueCase &) = delete;
  PrologueCase &operator=(const PrologueCase &) = delete;

  bool is_norm() const {
    return op == OCTAVO_PROLOGUE_LAYER_NORM || op == OCTAVO_PROLOGUE_RMS_NORM;
  }
  std::string name() const {
    return "op " + std::to_string(op) + ", " + std::to_string(rows) + " x " + std::to_string(cols) +
           ", dtype " + std::to_string(in.dtype());
  }
  octavo_prologue_call call(octavo_tensor *out) const {
    auto c = make_call<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &p;
    c.out = out;
    return c;
  }

 private:
  void connect() {
    p.op = op;
    p.in = in.tensor();
    if (!is_norm()) return;
    p.eps = 1e-5f;
    p.gamma = gamma.tensor();
    p.rstd = rstd.data();
    if (op != OCTAVO_PROLOGUE_LAYER_NORM) return;
    p.beta = beta.tensor();
    p.mean = mean.data();
  }
};

}  // namespace octavo::test

#endif
