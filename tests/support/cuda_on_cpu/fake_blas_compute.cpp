// The product of the fake cuBLASLt, in the order of octavo/kernels.h: a chain of fp32 additions
// over ascending K, with block scales one for each block.
#include <cstring>

#include "fake_blas_objects.h"
#include "kernels/format/e8m0.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"

namespace fake_blas {
namespace {

float load(cudaDataType type, const void *data, uint64_t index) {
  const auto *bytes = static_cast<const uint8_t *>(data) + index * bytes_of(type);
  uint16_t half = 0;
  float single = 0.0f;
  switch (type) {
    case CUDA_R_8F_E4M3: return octavo::decode_e4m3(*bytes);
    case CUDA_R_8F_E5M2: return octavo::decode_e5m2(*bytes);
    case CUDA_R_32F: std::memcpy(&single, bytes, sizeof(single)); return single;
    default: std::memcpy(&half, bytes, sizeof(half));
  }
  return type == CUDA_R_16F ? octavo::decode_f16(half) : octavo::decode_bf16(half);
}

void store(cudaDataType type, void *data, uint64_t index, float value) {
  auto *bytes = static_cast<uint8_t *>(data) + index * bytes_of(type);
  if (type == CUDA_R_32F) {
    std::memcpy(bytes, &value, sizeof(value));
    return;
  }
  const uint16_t half = type == CUDA_R_16F ? octavo::encode_f16(value) : octavo::encode_bf16(value);
  std::memcpy(bytes, &half, sizeof(half));
}

// op(matrix) as [rows][k].
std::vector<float> rows_of(const cublasLtMatrixLayoutOpaque_t &l, const void *data, bool is_k_first,
                           uint64_t rows, uint64_t k) {
  std::vector<float> values(rows * k);
  const auto ld = static_cast<uint64_t>(l.ld);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t i = 0; i < k; ++i)
      values[row * k + i] = load(l.type, data, is_k_first ? row * ld + i : i * ld + row);
  }
  return values;
}

// The scales of one side, found where the manual says that they lie.
struct Scales {
  const void *data;
  int32_t mode;
  uint64_t rows;
  uint64_t k;

  float at(uint64_t row, uint64_t i) const {
    if (data == nullptr) return 1.0f;
    const auto *f32 = static_cast<const float *>(data);
    switch (mode) {
      case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F: return *f32;
      case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F: return f32[row];
      case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: return f32[i / 128 * rows + row];
      case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
        return f32[row / 128 * (((k + 127) / 128 + 3) / 4 * 4) + i / 128];
      default: return octavo::decode_e8m0(static_cast<const uint8_t *>(data)[tiled(row, i / 32)]);
    }
  }
  uint64_t block() const {
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) return 32;
    return mode >= CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? 128 : 0;
  }

 private:
  uint64_t tiled(uint64_t outer, uint64_t inner) const {
    const uint64_t inner_dim = ((k + 31) / 32 + 3) / 4 * 4;
    const uint64_t tile = (inner / 4 * 4 + outer / 128 * inner_dim) * 128;
    const uint64_t within = outer % 128;
    return tile + within % 32 * 16 + within / 32 * 4 + inner % 4;
  }
};

}  // namespace

uint64_t Problem::fingerprint() const {
  uint64_t hash = 1;
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x100000001B3) + (hash >> 31);
  };
  for (const auto *l : {&a, &b, &c, &d}) {
    mix(static_cast<uint64_t>(l->type));
    mix(l->rows);
    mix(l->cols);
    mix(static_cast<uint64_t>(l->ld));
  }
  for (const int32_t value : {desc.transa, desc.transb, desc.bias_type, desc.sm_target, desc.a_mode,
                              desc.b_mode, int32_t{desc.fast}})
    mix(static_cast<uint64_t>(static_cast<uint32_t>(value)));
  mix(desc.epilogue);
  return hash;
}

void compute(const Problem &p, const Addresses &at) {
  const uint64_t m = p.m();
  const uint64_t n = p.n();
  const uint64_t k = p.k();
  const auto a = rows_of(p.a, at.a, p.desc.transa == CUBLAS_OP_T, m, k);
  const auto b = rows_of(p.b, at.b, p.desc.transb == CUBLAS_OP_N, n, k);
  const Scales a_scales = {p.desc.a_scale, p.desc.a_mode, m, k};
  const Scales b_scales = {p.desc.b_scale, p.desc.b_mode, n, k};
  const uint64_t block = a_scales.block();
  for (uint64_t col = 0; col < n; ++col) {
    for (uint64_t row = 0; row < m; ++row) {
      float sum = 0.0f;
      for (uint64_t first = 0; first < k; first += block == 0 ? k : block) {
        const uint64_t last = block == 0 || first + block > k ? k : first + block;
        float part = 0.0f;
        for (uint64_t i = first; i < last; ++i) part += a[row * k + i] * b[col * k + i];
        const float scale = a_scales.at(row, first) * b_scales.at(col, first);
        sum = block == 0 ? part * scale : sum + part * scale;
      }
      const uint64_t to = col * static_cast<uint64_t>(p.d.ld) + row;
      if (p.has_bias()) sum += load(static_cast<cudaDataType>(p.desc.bias_type), p.desc.bias, row);
      if (at.accumulates) sum = load(p.c.type, at.c, to) + sum;
      store(p.d.type, at.d, to, sum);
    }
  }
}

}  // namespace fake_blas
