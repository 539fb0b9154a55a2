/* Kernels under a host that rounds upwards and flushes subnormals: the bits of the results are the
 * same, and the host's settings and exception flags stay, on the calling thread and on others.
 */
#include <gtest/gtest.h>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

#ifdef __SSE2__

/* Flush to zero, subnormals are zero, round upwards, all exceptions masked, a division by zero has
 * been seen. */
constexpr unsigned kHostile = 0x1F80 | 0x8000 | 0x0040 | 0x4000 | 0x0004;

/* Runs `call` under kHostile and expects to find it afterwards. */
template <typename Call>
octavo_status under_hostile_arithmetic(Call &&call) {
  const unsigned kept = _mm_getcsr();
  _mm_setcsr(kHostile);
  const octavo_status status = call();
  const unsigned found = _mm_getcsr();
  _mm_setcsr(kept);
  EXPECT_EQ(found, kHostile);
  return status;
}

TEST(Arithmetic, quantize_keeps_subnormals_and_the_hosts_settings) {
  Matrix in(OCTAVO_F32, 65, 300);
  for (int64_t row = 0; row < in.rows(); ++row) {
    for (int64_t col = 0; col < in.cols(); ++col) {
      in.set(row, col, static_cast<float>(row * 300 + col + 1) * 0x1p-142f);
    }
  }
  const float scale = 0x1.35p+127f; /* makes numbers of the format of them */
  float scale_inv = 0.0f;
  const octavo_scale out_scale_inv = per_tensor(&scale_inv);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {0, 3}) {
      Kernels kernels(threads, level);
      Matrix expected(OCTAVO_E4M3FN, 65, 300);
      Matrix found(OCTAVO_E4M3FN, 65, 300);
      auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      c.in = in.tensor();
      c.out = expected.tensor();
      c.out_scale_inv = &out_scale_inv;
      c.scale = &scale;
      ASSERT_EQ(kernels.quantize(c), OCTAVO_OK);
      ASSERT_NE(expected.code(64, 299), 0);
      c.out = found.tensor();
      ASSERT_EQ(under_hostile_arithmetic([&] { return kernels.quantize(c); }), OCTAVO_OK);
      EXPECT_EQ(found.data(), expected.data()) << level << ", " << threads << " threads";
    }
  }
}

TEST(Arithmetic, gemm_rounds_to_nearest_and_keeps_the_hosts_settings) {
  for (const std::string &level : supported_levels()) {
    for (const int threads : {0, 3}) {
      for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_BF16}) {
        Kernels kernels(threads, level);
        Matrix a(dtype, 31, 200);
        Matrix b(dtype, 33, 200);
        a.fill(1);
        b.fill(2);
        Matrix expected(OCTAVO_F32, 31, 33);
        Matrix found(OCTAVO_F32, 31, 33);
        auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
        c.a = a.tensor();
        c.b = b.tensor();
        c.d = expected.tensor();
        ASSERT_EQ(kernels.gemm(c), OCTAVO_OK);
        c.d = found.tensor();
        ASSERT_EQ(under_hostile_arithmetic([&] { return kernels.gemm(c); }), OCTAVO_OK);
        EXPECT_EQ(found.data(), expected.data()) << level << ", " << threads << " threads";
      }
    }
  }
}

#else
TEST(Arithmetic, quantize_keeps_subnormals_and_the_hosts_settings) {
  GTEST_SKIP() << "sets the x86 register of floating point rules";
}
#endif

}  // namespace
}  // namespace octavo::test
