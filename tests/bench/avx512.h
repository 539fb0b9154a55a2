// Opponents and peaks in AVX-512, written from descriptions of the algorithms.
//
// The avx512_*.cpp files are the only ones compiled for that instruction set; they use no std::
// function, of which the linker would keep one copy. Call them where bench.h's has_avx512 is true.
#pragma once

#include <cstdint>

namespace octavo::bench {

// PyTorch's vectorised fp32 -> E4M3 cast behind scale and clamp: one class of inputs at a time,
// under masks. n is a multiple of 64.
void aten_cast_e4m3(const float *in, int64_t n, float scale, uint8_t *out);
// PyTorch's vectorised E4M3 -> fp32 conversion: fields by shifts, subnormals by a variable shift.
// n is a multiple of 16.
void aten_decode_e4m3(const uint8_t *in, int64_t n, float *out);

// out[cols][rows] = in[rows][cols], bytes, in 64 x 64 tiles by unpacking in registers. Sizes are
// multiples of 64.
void transpose_bytes(const uint8_t *in, int64_t rows, int64_t cols, uint8_t *out);

struct AdamConstants {
  float beta1;
  float beta2;
  float step_size;         // lr / (1 - beta1^t)
  float root_correction2;  // sqrt(1 - beta2^t)
  float eps;
  float keep;  // 1 - lr * weight_decay
};
// AdamW on fp32 tensors, 28 bytes a parameter. n is a multiple of 16.
void adam_f32(const AdamConstants &c, const float *gradient, int64_t n, float *weight,
              float *exp_avg, float *exp_avg_sq);

// Copies of n bytes, a multiple of 256, from and to multiples of 64: with non-temporal and with
// regular stores.
void copy_nontemporal(const void *in, int64_t n, void *out);
void copy_regular(const void *in, int64_t n, void *out);

// Register-only loops of `rounds`; each returns how many floating-point operations it did. dots512
// needs has_avx512_bf16.
int64_t multiply_adds_512(int64_t rounds);
int64_t multiply_adds_256(int64_t rounds);
int64_t dots_512(int64_t rounds);

}  // namespace octavo::bench
