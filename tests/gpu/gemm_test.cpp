// Products of a GPU: cuBLASLt's against the exact sums, the reference kernel's against the CPU's
// bits.
#include <cmath>
#include <cstdlib>

#include "tests/kernels/cuda/twins.h"
#include "tests/support/param_name.h"

namespace octavo::test {
namespace {

struct Product {
  int64_t m, n, k;
  uint32_t a = OCTAVO_E4M3FN, b = OCTAVO_E4M3FN, d = OCTAVO_F32;
  uint32_t scales = OCTAVO_PER_TENSOR;
  bool has_bias = false, accumulates = false, is_fast = false;
};

void PrintTo(const Product &p, std::ostream *out) {
  *out << p.m << "x" << p.n << "x" << p.k << " a " << p.a << " b " << p.b << " d " << p.d
       << " scales " << p.scales << (p.has_bias ? " bias" : "") << (p.accumulates ? " acc" : "")
       << (p.is_fast ? " fast" : "");
}

constexpr float kLargestScale = 0.75f;

Twins::Scales scale_of(Twins &twins, uint32_t granularity, int64_t rows, int64_t k, bool is_b) {
  if (granularity == OCTAVO_BLOCK_1X128 && is_b) granularity = OCTAVO_BLOCK_128X128;
  octavo_scale s = {};
  s.granularity = granularity;
  s.dtype = OCTAVO_F32;
  s.stride = 1;
  int64_t count = granularity == OCTAVO_PER_ROW ? rows : 1;
  if (is_block_granularity(granularity)) {
    s.stride = divide_up(k, block_cols(granularity));
    count = divide_up(rows, block_rows(granularity)) * s.stride;
  }
  if (is_mx_granularity(granularity)) {
    s.dtype = OCTAVO_E8M0FNU;
    return {twins.bytes(static_cast<size_t>(count), 0x7E), s}; /* 2^-1 */
  }
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(kLargestScale - static_cast<float>(i % 5) / 8);
  return {twins.floats(values), s};
}

struct Operands {
  Twins::Tensor a, b;
};

// Runs both sides.
void run_both(Devices &devices, Twins &twins, const Product &p, const Operands &operands,
              const Twins::Tensor &d_shape) {
  const auto &[a_shape, b_shape] = operands;
  const auto bias_shape = twins.tensor(1, p.n, p.d, Values::kNormal);
  const Twins::Scales a_scale = scale_of(twins, p.scales, p.m, p.k, false);
  const Twins::Scales b_scale = scale_of(twins, p.scales, p.n, p.k, true);
  for (int side = 0; side < 2; ++side) {
    const octavo_tensor a = twins.at(side, a_shape), b = twins.at(side, b_shape),
                        bias = twins.at(side, bias_shape);
    octavo_tensor d = twins.at(side, d_shape);
    const octavo_scale sa = twins.at(side, a_scale), sb = twins.at(side, b_scale);
    octavo_gemm c = {};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_GEMM;
    c.a = &a;
    c.b = &b;
    c.d = &d;
    c.bias = p.has_bias ? &bias : nullptr;
    c.a_scale_inv = &sa;
    c.b_scale_inv = &sb;
    c.accumulate = p.accumulates;
    c.fast_accumulation = p.is_fast;
    uint64_t bytes = 0;
    ASSERT_EQ(side == 0 ? devices.table().workspace_bytes(devices.cpu(), &c, &bytes)
                        : cuda::workspace_bytes(devices.cuda(), &c, &bytes),
              OCTAVO_OK);
    Workspace workspace(side, bytes);
    c.workspace = workspace.data();
    ASSERT_EQ(devices.run(side, &octavo_kernels::gemm, c), OCTAVO_OK) << devices.last_text();
    ASSERT_EQ(cuda::synchronize(devices.cuda()), OCTAVO_OK) << devices.last_text();
  }
}

Operands run(Devices &devices, Twins &twins, const Product &p, const Twins::Tensor &d) {
  const Operands operands = {twins.tensor(p.m, p.k, p.a, Values::kNormal),
                             twins.tensor(p.n, p.k, p.b, Values::kNormal)};
  run_both(devices, twins, p, operands, d);
  return operands;
}

constexpr Product kProducts[] = {
    {16, 16, 16},
    {128, 256, 512},
    {256, 128, 1024, OCTAVO_E4M3FN, OCTAVO_E5M2},
    {256, 128, 1024, OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_BF16},
    {64, 48, 208, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_BF16, OCTAVO_PER_TENSOR, true},
    {64, 48, 208, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, OCTAVO_PER_TENSOR, false, true},
    {128, 128, 4096, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, OCTAVO_PER_TENSOR, false, false,
     true},
    {128, 192, 512, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, OCTAVO_PER_ROW},
    {128, 256, 512, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, OCTAVO_BLOCK_1X128},
    {128, 256, 512, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_BF16, OCTAVO_BLOCK_1X32},
    {512, 512, 1024}};

class GpuGemm : public testing::TestWithParam<Product> {};

// The norm of each row.
std::vector<double> norms(const std::vector<float> &values, int64_t rows, int64_t cols) {
  std::vector<double> all;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double v = values[static_cast<size_t>(r * cols + c)];
      sum += v * v;
    }
    all.push_back(std::sqrt(sum));
  }
  return all;
}

// How far a product may lie from the CPU's chain, S being the sum of the magnitudes of its K
// products and S <= |a row| |b row| by Cauchy and Schwarz, times the largest scales. Tensor cores
// keep 14 bits of FP8 sums on H100 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2), so one
// instruction, over 32 products, errs by at most 2^-13 S. With precise accumulation four of them,
// 128 products, go to fp32 at a time: 4 x 2^-13 S in all, and K / 32 x 2^-13 S with fast
// accumulation. The CPU's own chain errs by K 2^-24 S. Then d is rounded once on each side: 2^-8
// |d| together for bf16, 2^-23 |d| for f32.
TEST_P(GpuGemm, close_to_the_cpu) {
  const Product &p = GetParam();
  Devices devices;
  Twins twins(17);
  const auto d = twins.tensor(p.m, p.n, p.d, Values::kNormal);
  const Operands operands = run(devices, twins, p, d);
  if (HasFatalFailure()) return;
  const std::vector<double> a = norms(twins.values(0, operands.a), p.m, p.k),
                            b = norms(twins.values(0, operands.b), p.n, p.k);
  const std::vector<float> cpu = twins.values(0, d), gpu = twins.values(1, d);
  const auto k = static_cast<double>(p.k);
  const double share = (p.is_fast ? std::ceil(k / 32) : 4) * 0x1p-13 + k * 0x1p-24;
  for (int64_t m = 0; m < p.m; ++m)
    for (int64_t n = 0; n < p.n; ++n) {
      const auto i = static_cast<size_t>(m * p.n + n);
      const double sum =
          a[static_cast<size_t>(m)] * b[static_cast<size_t>(n)] * kLargestScale * kLargestScale;
      ASSERT_NEAR(gpu[i], cpu[i],
                  share * sum + std::fabs(cpu[i]) * (p.d == OCTAVO_F32 ? 0x1p-22 : 0x1p-7))
          << "element " << m << ", " << n;
    }
}

// What OCTAVO_CUDA_GEMM=reference computes is the CPU's chain.
TEST_P(GpuGemm, reference_kernel_has_the_cpus_bits) {
  const Product &p = GetParam();
  setenv("OCTAVO_CUDA_GEMM", "reference", 1);
  {
    Devices devices;
    Twins twins(23);
    const auto d = twins.tensor(p.m, p.n, p.d, Values::kNormal);
    run(devices, twins, p, d);
    if (!HasFatalFailure()) twins.expect_equal(testing::PrintToString(p));
  }
  unsetenv("OCTAVO_CUDA_GEMM");
}

INSTANTIATE_TEST_SUITE_P(All, GpuGemm, testing::ValuesIn(kProducts), octavo::test::kNameOfValue);

}  // namespace
}  // namespace octavo::test
