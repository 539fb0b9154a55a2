// The prologues of the subject's kernels: each row by the formula of octavo/prologue.h, with the
// library's functions.
#include <cmath>

#include "subject_kernels.h"

namespace octavo::selftest {
namespace {

float gelu(float x) {
  return 0.5F * x * (1 + std::erf(x / std::sqrt(2.0F)));
}

float gelu_tanh(float x) {
  const float inner = 0.7978845608F * (x + 0.044715F * x * x * x);  // sqrt(2 / pi)
  return 0.5F * x * (1 + std::tanh(inner));
}

float silu(float x) {
  return x / (1 + std::exp(-x));
}

bool is_norm(uint32_t op) {
  return op == OCTAVO_PROLOGUE_LAYER_NORM || op == OCTAVO_PROLOGUE_RMS_NORM;
}

bool is_legal(const octavo_prologue &p, const octavo_tensor &out) {
  const int64_t width = p.op == OCTAVO_PROLOGUE_SWIGLU ? 2 * out.cols : out.cols;
  if (p.op < OCTAVO_PROLOGUE_LAYER_NORM || p.op > OCTAVO_PROLOGUE_SWIGLU) return false;
  if (p.in->rows != out.rows || p.in->cols != width) return false;
  return !is_norm(p.op) || (p.gamma->cols == out.cols && p.eps >= 0);
}

void norm_row(const octavo_prologue &p, const octavo_tensor &out, int64_t i) {
  const auto count = static_cast<float>(out.cols);
  float mean = 0;
  if (p.op == OCTAVO_PROLOGUE_LAYER_NORM) {
    for (int64_t j = 0; j < out.cols; ++j) mean += subject_load(*p.in, i, j);
    mean /= count;
  }
  float squares = 0;
  for (int64_t j = 0; j < out.cols; ++j) {
    const float distance = subject_load(*p.in, i, j) - mean;
    squares += distance * distance;
  }
  const float rstd = 1 / std::sqrt(squares / count + p.eps);
  if (p.mean != nullptr) p.mean[i] = mean;
  if (p.rstd != nullptr) p.rstd[i] = rstd;
  for (int64_t j = 0; j < out.cols; ++j) {
    const float beta = p.beta == nullptr ? 0 : subject_load(*p.beta, 0, j);
    const float normal = (subject_load(*p.in, i, j) - mean) * rstd;
    subject_store(out, i, j, normal * subject_load(*p.gamma, 0, j) + beta);
  }
}

float activate(const octavo_prologue &p, const octavo_tensor &out, int64_t i, int64_t j) {
  const float x = subject_load(*p.in, i, j);
  switch (p.op) {
    case OCTAVO_PROLOGUE_GELU: return gelu(x);
    case OCTAVO_PROLOGUE_GELU_TANH: return gelu_tanh(x);
    default: return silu(x) * subject_load(*p.in, i, out.cols + j);
  }
}

}  // namespace

octavo_status subject_prologue(void *, const octavo_prologue_call *c) {
  const octavo_prologue &p = *c->prologue;
  const octavo_tensor &out = *c->out;
  if (!is_legal(p, out)) return OCTAVO_INVALID;
  for (int64_t i = 0; i < out.rows; ++i) {
    if (is_norm(p.op)) {
      norm_row(p, out, i);
      continue;
    }
    for (int64_t j = 0; j < out.cols; ++j) subject_store(out, i, j, activate(p, out, i, j));
  }
  return OCTAVO_OK;
}

}  // namespace octavo::selftest
