/* tests/kernels/cuda/gemm_case.h: one gemm on the CPU's table and on kernels/cuda over the fake
 * cuBLASLt of tests/support/cuda_on_cpu, compared byte for byte.
 */
#ifndef OCTAVO_TESTS_KERNELS_CUDA_GEMM_CASE_H
#define OCTAVO_TESTS_KERNELS_CUDA_GEMM_CASE_H

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "tests/kernels/cuda/twins.h"
#include "tests/support/cuda_on_cpu/fake_blas.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace octavo::test {

/* The state of the fake library; OCTAVO_FAKE_BLAS is its path. */
inline fake_blas::State &fake_library() {
  static const auto find = [] {
    void *library = dlopen(OCTAVO_FAKE_BLAS, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    return reinterpret_cast<fake_blas::State *(*)()>(dlsym(library, "fake_blas_state"));
  }();
  return *find();
}

/* Both devices, cuBLASLt being the fake one. */
class GemmDevices {
 public:
  /* library: the file of cuBLASLt, or "" to find it by its name; create: what it answers first. */
  explicit GemmDevices(int capability = 90, const std::string &library = OCTAVO_FAKE_BLAS,
                       cublasStatus_t create = CUBLAS_STATUS_SUCCESS) {
    setenv("OCTAVO_CUBLASLT", library.c_str(), 1);
    reset_executor();
    cuda_on_cpu::script().capability_major = capability / 10;
    cuda_on_cpu::script().capability_minor = capability % 10;
    fake_library() = {};
    fake_library().capability = capability;
    fake_library().create = create;
    EXPECT_EQ(cuda::open_device(kCuda, host_.get(), &cuda_), OCTAVO_OK);
    device_under_test() = nullptr; /* memory outlives a device that a test loses */
  }
  ~GemmDevices() {
    cuda::close_device(cuda_);
    EXPECT_EQ(fake_library().objects, 0) << "descriptors that nobody destroyed";
    EXPECT_EQ(fake_library().handles, 0);
  }
  GemmDevices(const GemmDevices &) = delete;
  GemmDevices &operator=(const GemmDevices &) = delete;

  void *cpu() const { return cpu_.ctx(); }
  void *cuda() const { return cuda_; }
  const octavo_kernels &table() const { return *cpu_.table; }
  const FakeHost &host() const { return host_; }

 private:
  Kernels cpu_;
  FakeHost host_;
  void *cuda_ = nullptr;
};

/* Exactly as long as stated, at an address that is a multiple of 16 only, and guarded behind. */
class GemmWorkspaceBuffer {
 public:
  explicit GemmWorkspaceBuffer(uint64_t bytes)
      : bytes_(bytes), memory_(static_cast<uint8_t *>(std::malloc(bytes + 16 + kGuard))) {
    std::memset(data() + bytes_, 0x5C, kGuard);
  }
  ~GemmWorkspaceBuffer() {
    for (size_t i = 0; i < kGuard; ++i) {
      if (data()[bytes_ + i] == 0x5C) continue;
      ADD_FAILURE() << "byte " << i << " behind a workspace of " << bytes_ << " was written";
      break;
    }
    std::free(memory_);
  }
  GemmWorkspaceBuffer(const GemmWorkspaceBuffer &) = delete;
  GemmWorkspaceBuffer &operator=(const GemmWorkspaceBuffer &) = delete;
  uint8_t *data() const { return memory_ + 16; }

 private:
  static constexpr size_t kGuard = 64;
  uint64_t bytes_;
  uint8_t *memory_;
};

constexpr uint32_t kNoScale = 0xFFFF;

struct GemmCase {
  int64_t m;
  int64_t n;
  int64_t k;
  uint32_t a = OCTAVO_E4M3FN;
  uint32_t b = OCTAVO_E4M3FN;
  uint32_t d = OCTAVO_BF16;
  uint32_t bias = 0;                    /* a dtype; 0: none */
  uint32_t a_scale = OCTAVO_PER_TENSOR; /* a granularity, or kNoScale */
  uint32_t b_scale = OCTAVO_PER_TENSOR;
  uint32_t layout = 0;
  bool bias_after = false;
  bool accumulates = false;
  bool is_fast = false;
  int64_t gap = 0; /* unused elements behind each row */
  int64_t scale_gap = 0;
  int64_t bias_at = 0; /* the bias begins at this element of its memory */

  std::string text() const {
    std::string out;
    for (const int64_t size : {m, n, k}) out += std::to_string(size), out += ' ';
    for (const uint32_t dtype : {a, b, d, bias})
      out += "dtype ", out += std::to_string(dtype), out += ' ';
    for (const uint32_t g : {a_scale, b_scale})
      out += "scale ", out += std::to_string(g), out += ' ';
    out += "layout ";
    out += std::to_string(layout);
    if (bias_after) out += " bias after";
    if (accumulates) out += " accumulates";
    return out;
  }
};

/* Random scales of an operand [rows, k], no two neighbours alike. */
inline Twins::Scales gemm_scales(Twins &twins, uint32_t granularity, int64_t rows, int64_t k,
                                 int64_t gap) {
  Twins::Scales s = {};
  s.shape.granularity = granularity;
  s.shape.dtype = is_mx_granularity(granularity) ? OCTAVO_E8M0FNU : OCTAVO_F32;
  int64_t lines = granularity == OCTAVO_PER_ROW ? rows : 1;
  int64_t across = 1;
  if (is_block_granularity(granularity)) {
    lines = divide_up(rows, block_rows(granularity));
    across = divide_up(k, block_cols(granularity));
  }
  s.shape.stride = across + (granularity == OCTAVO_PER_TENSOR ? 0 : gap);
  const auto count = static_cast<size_t>(lines * s.shape.stride);
  if (s.shape.dtype == OCTAVO_E8M0FNU) {
    s.buffer = twins.bytes(count, 0);
    for (size_t i = 0; i < count; ++i) {
      const auto code = static_cast<uint8_t>(0x78 + i * 7 % 11);
      for (int side = 0; side < 2; ++side)
        static_cast<uint8_t *>(twins.data(side, s.buffer))[i] = code;
    }
    return s;
  }
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(0.01f + static_cast<float>(i * 29 % 97) / 300.0f);
  s.buffer = twins.floats(values);
  return s;
}

/* Runs the case on one side. */
inline octavo_status run_gemm_side(GemmDevices &devices, Twins &twins, const GemmCase &g, int side,
                                   const Twins::Tensor &a_buffer, const Twins::Tensor &b_buffer,
                                   const Twins::Tensor &d_buffer, const Twins::Tensor &bias_buffer,
                                   const Twins::Scales &a_scales, const Twins::Scales &b_scales) {
  const octavo_tensor a = twins.at(side, a_buffer);
  const octavo_tensor b = twins.at(side, b_buffer);
  octavo_tensor d = twins.at(side, d_buffer);
  octavo_tensor bias = twins.at(side, bias_buffer);
  bias.data = static_cast<char *>(bias.data) + g.bias_at * dtype_bytes(bias.dtype);
  bias.cols = bias.stride = g.n;
  const octavo_scale a_scale = twins.at(side, a_scales);
  const octavo_scale b_scale = twins.at(side, b_scales);
  octavo_gemm c = {};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_GEMM;
  c.a = &a;
  c.b = &b;
  c.d = &d;
  c.bias = g.bias == 0 ? nullptr : &bias;
  c.a_scale_inv = g.a_scale == kNoScale ? nullptr : &a_scale;
  c.b_scale_inv = g.b_scale == kNoScale ? nullptr : &b_scale;
  c.accumulate = g.accumulates;
  c.fast_accumulation = g.is_fast;
  c.bias_after = g.bias_after;
  c.layout = g.layout;
  uint64_t bytes = 0;
  if (side == 0) {
    EXPECT_EQ(devices.table().workspace_bytes(devices.cpu(), &c, &bytes), OCTAVO_OK);
  } else {
    EXPECT_TRUE(cuda::gemm_workspace(devices.cuda(), c, &bytes));
  }
  const GemmWorkspaceBuffer workspace(bytes);
  c.workspace = workspace.data();
  const octavo_status status =
      side == 0 ? devices.table().gemm(devices.cpu(), &c) : cuda::gemm(devices.cuda(), &c);
  cuda_on_cpu::settle(); /* the workspace ends, and the memory is the host's */
  return status;
}

/* Runs both sides; equal bytes are expected where the device succeeds, whose status is returned. */
inline octavo_status run_gemm(GemmDevices &devices, const GemmCase &g) {
  Twins twins(static_cast<uint64_t>(g.m * 31 + g.n * 7 + g.k) + g.a + g.d);
  const bool a_km = (g.layout & OCTAVO_GEMM_A_KM) != 0;
  const bool b_kn = (g.layout & OCTAVO_GEMM_B_KN) != 0;
  const auto values = Values::kNormal;
  const auto a = twins.tensor(a_km ? g.k : g.m, a_km ? g.m : g.k, g.a, values, g.gap);
  const auto b = twins.tensor(b_kn ? g.k : g.n, b_kn ? g.n : g.k, g.b, values, g.gap);
  const auto d = twins.tensor(g.m, g.n, g.d, values, g.gap);
  const auto bias =
      twins.tensor(1, g.n + g.bias_at, g.bias == 0 ? uint32_t{OCTAVO_F32} : g.bias, values);
  const auto scales = [&](uint32_t granularity, int64_t rows) {
    return gemm_scales(twins, granularity == kNoScale ? uint32_t{OCTAVO_PER_TENSOR} : granularity,
                       rows, g.k, g.scale_gap);
  };
  const Twins::Scales a_scale = scales(g.a_scale, g.m);
  const Twins::Scales b_scale = scales(g.b_scale, g.n);
  for (int side = 0; side < 2; ++side) {
    const octavo_status status =
        run_gemm_side(devices, twins, g, side, a, b, d, bias, a_scale, b_scale);
    if (side == 0) {
      EXPECT_EQ(status, OCTAVO_OK) << g.text();
    }
    if (status != OCTAVO_OK) return status;
  }
  twins.expect_equal(g.text());
  return OCTAVO_OK;
}

}  // namespace octavo::test

#endif
