// What cuBLASLt refuses, by the manual of CUDA 13.0: "cublasLtMatmul", "Narrow Precision Data Types
// Usage", and the layouts of scales.
#include "fake_blas_objects.h"
#include "fake_gpu.h"

namespace fake_blas {
namespace {

bool is_vector(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}
bool is_mx(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}
bool is_square(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}
bool is_long(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || is_square(mode);
}
bool is_16(uint64_t bytes) {
  return bytes % 16 == 0;
}

int capability_of_device() {
  return state().capability == 0 ? cuda_on_cpu::fake_capability() : state().capability;
}

const char *refuse_scales(const Problem &p) {
  const int32_t a = p.desc.a_mode;
  const int32_t b = p.desc.b_mode;
  const int capability = capability_of_device();
  if (is_vector(a) || is_vector(b)) {
    if (a != b) return "vectors of scales on one side only";
    if (capability != 90) return "vectors of scales need compute capability 9.0";
    if (state().refuses_vectors) return "scripted: no vectors";
  } else if (is_long(a) || is_long(b)) {
    if (!is_long(a) || !is_long(b)) return "128-element blocks on one side only";
    if (is_square(a) && is_square(b)) return "128 x 128 blocks on both sides";
    if (capability != 90) return "128-element blocks need compute capability 9.0";
    if (p.m() % 4 != 0 || p.n() % 4 != 0) return "128-element blocks want M and N in fours";
    if (p.desc.fast != 0) return "128-element blocks accumulate in fp32 only";
  } else if (is_mx(a) || is_mx(b)) {
    if (a != b) return "E8M0 scales on one side only";
    if (capability < 100) return "E8M0 scales need compute capability 10.0";
  }
  return nullptr;
}

const char *refuse_float8(const Problem &p) {
  const int capability = capability_of_device();
  const bool is_datacenter_blackwell = capability >= 100 && capability < 120;
  if (!is_float8(p.b.type)) return "FP8 beside another type";
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return "E5M2 by E5M2";
  if (capability < 89) return "FP8 needs compute capability 8.9";
  if (!is_datacenter_blackwell && (p.desc.transa != CUBLAS_OP_T || p.desc.transb != CUBLAS_OP_N))
    return "FP8 wants A transposed and B not";
  const uint64_t size = bytes_of(p.d.type);
  if (!is_16(p.k()) || !is_16(p.m() * size)) return "FP8 wants dimensions of 16 bytes";
  if (!is_16(static_cast<uint64_t>(p.a.ld)) || !is_16(static_cast<uint64_t>(p.b.ld)) ||
      !is_16(static_cast<uint64_t>(p.d.ld) * size))
    return "FP8 wants leading dimensions of 16 bytes";
  if (is_float8(p.d.type)) return "an FP8 output, which nobody here asks for";
  if (p.has_bias()) {
    const cudaDataType wanted = p.d.type == CUDA_R_32F ? CUDA_R_16BF : p.d.type;
    if (p.desc.bias_type != wanted) return "the bias of an FP8 product has another type";
  }
  return refuse_scales(p);
}

const char *refuse_plain(const Problem &p) {
  if (p.a.type != p.b.type) return "A and B of two types";
  if (p.d.type != p.a.type && p.d.type != CUDA_R_32F) return "an output that these inputs lack";
  if (p.desc.a_mode != 0 || p.desc.b_mode != 0 || p.desc.fast != 0)
    return "scales or fast accumulation without FP8";
  if (p.desc.a_scale != nullptr || p.desc.b_scale != nullptr) return "scale pointers without FP8";
  if (p.has_bias() && p.desc.bias_type != p.d.type) return "the bias has another type than D";
  return nullptr;
}

bool is_device(const void *data, uint64_t bytes) {
  return state().is_device == nullptr || state().is_device(data, bytes);
}

uint64_t size_of(const cublasLtMatrixLayoutOpaque_t &l) {
  return (static_cast<uint64_t>(l.ld) * (l.cols - 1) + l.rows) * bytes_of(l.type);
}

// Bytes of the scales of `rows` rows.
uint64_t scale_bytes(int32_t mode, uint64_t rows, uint64_t k) {
  if (is_vector(mode)) return rows * 4;
  if (is_mx(mode)) return (rows + 127) / 128 * 128 * ((k + 127) / 128 * 4);
  const uint64_t blocks = (k + 127) / 128;
  if (is_square(mode)) return (blocks + 3) / 4 * 4 * ((rows + 127) / 128) * 4;
  return is_long(mode) ? rows * blocks * 4 : 4;
}

struct Range {
  const void *data;
  uint64_t bytes;
};
bool overlap(const Range &a, const Range &b) {
  const auto first = reinterpret_cast<uintptr_t>(a.data);
  const auto second = reinterpret_cast<uintptr_t>(b.data);
  return a.data != nullptr && b.data != nullptr && first < second + b.bytes &&
         second < first + a.bytes;
}

bool is_scale_aligned(const void *data, int32_t mode) {
  return reinterpret_cast<uintptr_t>(data) % (is_long(mode) || is_mx(mode) ? 16 : 4) == 0;
}

const char *refuse_scale_address(const void *data, int32_t mode, uint64_t rows, uint64_t k) {
  if (data == nullptr) return mode == 0 ? nullptr : "no address of vectors or blocks of scales";
  if (!is_device(data, scale_bytes(mode, rows, k))) return "scales that the device cannot read";
  return nullptr;
}

}  // namespace

size_t bytes_of(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : is_float8(type) ? 1 : 2;
}

const char *refusal_of(const Problem &p) {
  const auto &desc = p.desc;
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) return "not in fp32";
  const bool ta = desc.transa == CUBLAS_OP_T;
  const bool tb = desc.transb == CUBLAS_OP_T;
  if ((ta ? p.a.cols : p.a.rows) != p.m() || (tb ? p.b.rows : p.b.cols) != p.n() ||
      (tb ? p.b.cols : p.b.rows) != p.k())
    return "the shapes of A, B and D do not fit";
  if (p.c.type != p.d.type || p.c.rows != p.d.rows || p.c.cols != p.d.cols || p.c.ld != p.d.ld)
    return "C and D differ";
  if (p.m() == 0 || p.n() == 0 || p.k() == 0) return "an empty product";
  for (const auto *l : {&p.a, &p.b, &p.d}) {
    if (l->ld < static_cast<int64_t>(l->rows)) return "a leading dimension below the rows";
  }
  if (p.has_bias() && state().refuses_bias) return "scripted: no bias";
  return is_float8(p.a.type) ? refuse_float8(p) : refuse_plain(p);
}

const char *refusal_of(const Problem &p, const Addresses &at) {
  for (const void *data : {at.a, at.b, at.c, static_cast<const void *>(at.d)}) {
    if (data == nullptr) return "a matrix without an address";
    if (p.is_float8() && reinterpret_cast<uintptr_t>(data) % 16 != 0)
      return "FP8 wants addresses of 16 bytes";
  }
  if (!is_device(at.a, size_of(p.a)) || !is_device(at.b, size_of(p.b)) ||
      !is_device(at.d, size_of(p.d)) || (at.accumulates && !is_device(at.c, size_of(p.c))))
    return "a matrix that the device cannot read";
  if (p.has_bias()) {
    const auto type = static_cast<cudaDataType>(p.desc.bias_type);
    if (p.desc.bias == nullptr || !is_device(p.desc.bias, p.m() * bytes_of(type)))
      return "a bias that the device cannot read";
  }
  /* "in-place (C == D) and out-of-place"; nothing else may overlap what is written. */
  const Range d = {at.d, size_of(p.d)}, workspace = {at.workspace, at.workspace_bytes};
  const Range inputs[] = {
      {at.a, size_of(p.a)},
      {at.b, size_of(p.b)},
      {at.c, at.accumulates && at.c != at.d ? size_of(p.c) : 0},
      {p.desc.bias,
       p.has_bias() ? p.m() * bytes_of(static_cast<cudaDataType>(p.desc.bias_type)) : 0},
      {p.desc.a_scale, scale_bytes(p.desc.a_mode, p.m(), p.k())},
      {p.desc.b_scale, scale_bytes(p.desc.b_mode, p.n(), p.k())},
      workspace};
  for (const Range &input : inputs)
    if (overlap(d, input)) return "an input that overlaps the output";
  for (const Range &input : inputs)
    if (&input != &inputs[6] && overlap(workspace, input))
      return "an input that overlaps the workspace";
  const char *why = refuse_scale_address(p.desc.a_scale, p.desc.a_mode, p.m(), p.k());
  return why != nullptr ? why : refuse_scale_address(p.desc.b_scale, p.desc.b_mode, p.n(), p.k());
}

const char *misalignment_of(const Problem &p) {
  if (p.has_bias() && reinterpret_cast<uintptr_t>(p.desc.bias) % 16 != 0)
    return "a bias that is not aligned to 16 bytes";
  if (!is_scale_aligned(p.desc.a_scale, p.desc.a_mode) ||
      !is_scale_aligned(p.desc.b_scale, p.desc.b_mode))
    return "scales that are not aligned";
  return nullptr;
}

}  // namespace fake_blas
