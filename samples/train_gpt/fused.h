// What --fused chooses: who computes the norm or the GELU in front of a linear, and in which call.
#ifndef TRAIN_GPT_FUSED_H
#define TRAIN_GPT_FUSED_H

#include <octavo/octavo.h>

namespace gpt {

enum class Fused {
  kNo,     // the program's own loops, then linear_forward
  kApply,  // octavo.fused/1: apply, then linear_forward
  kYes     // octavo.fused/1: one linear_forward that computes both; the bits of kApply
};

inline octavo_tensor f32_matrix(const float *data, int64_t rows, int64_t cols) {
  // Octavo's tensors are borrowed and untyped; a call writes only what its header says it writes.
  return {const_cast<float *>(data), rows, cols, cols, OCTAVO_F32, 0};
}

// A prologue with the tensors that it points to; it stays where it was filled.
struct Prologue {
  octavo_prologue call = {};
  octavo_tensor in = {};
  octavo_tensor gamma = {};
  octavo_tensor beta = {};
};

}  // namespace gpt

#endif
