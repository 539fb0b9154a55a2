/* kernels/format/activation.h against the C library's fp64 functions.
 *
 * The library is the reference for accuracy only; that every machine gives the same bits follows
 * from the use of IEEE operations in a fixed order, and recorded results hold it to that.
 */
#include "kernels/format/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/* The distance of two neighbouring fp32 numbers around `value`. */
double unit_of(double value) {
  if (std::fabs(value) < 0x1p-126) return 0x1p-149;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

/* Floats in order of size as consecutive integers, so that a range of them is dense everywhere. */
int64_t index_of(float value) {
  const int64_t bits = float_bits(value);
  return bits < 0 ? int64_t{INT32_MIN} - bits : bits;
}
float at_index(int64_t index) {
  return bits_float(static_cast<int32_t>(index < 0 ? int64_t{INT32_MIN} - index : index));
}

/* The largest error in units over every 499th float of [low, high]. `slack(x)` is taken off the
 * error and `more_units(x)` off the units: what the header says beside its number of units. */
template <typename Found, typename Exact, typename Slack, typename More>
double worst_units(float low, float high, Found found, Exact exact, Slack slack, More more_units) {
  double worst = 0.0;
  for (int64_t i = index_of(low); i <= index_of(high); i += 499) {
    const float x = at_index(i);
    const double expected = exact(static_cast<double>(x));
    if (std::fabs(expected) > 0x1.fffffep127) continue; /* infinity, tested apart */
    const double error = std::fabs(static_cast<double>(found(x)) - expected) - slack(x);
    worst = std::max(worst, error / unit_of(expected) - more_units(x));
  }
  return worst;
}

double none(float) {
  return 0.0;
}
/* A factor of the result was rounded to a multiple of 2^-149. */
double subnormal_factor(float x) {
  return std::fabs(static_cast<double>(x)) * 0x1p-149;
}

double exact_tanh_argument(double x) {
  return 2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
}

TEST(Activation, exponential) {
  EXPECT_LT(worst_units(
                -110.0f, 88.72283f, exponential, [](double x) { return std::exp(x); }, none, none),
            1.0);
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_EQ(exponential(89.0f), kInf);
  EXPECT_EQ(exponential(kInf), kInf);
  EXPECT_EQ(exponential(-104.5f), 0.0f);
  EXPECT_EQ(exponential(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(exponential(kNan)));
}

TEST(Activation, sigmoid) {
  auto found = [](float x) { return times_sigmoid(1.0f, x); };
  EXPECT_LT(
      worst_units(
          -110.0f, 1e30f, found, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }, none, none),
      2.5);
  EXPECT_EQ(found(0.0f), 0.5f);
  EXPECT_EQ(found(kInf), 1.0f);
  EXPECT_EQ(found(-kInf), 0.0f);
}

TEST(Activation, normal_distribution) {
  auto exact = [](double x) { return 0.5 * std::erfc(x / std::sqrt(2.0)); };
  EXPECT_LT(worst_units(0.0f, 20.0f, normal_tail, exact, none, none), 6.0);
  auto phi = [](float x) { return 1.0f - normal_tail(x); };
  auto exact_phi = [&](double x) { return exact(-x); };
  EXPECT_LT(worst_units(0.0f, 1e30f, phi, exact_phi, none, none), 1.5);
  EXPECT_EQ(normal_tail(0.0f), 0.5f);
  EXPECT_EQ(normal_tail(-2.0f), normal_tail(2.0f));
}

TEST(Activation, gelu) {
  auto exact = [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  EXPECT_LT(worst_units(-20.0f, 1e30f, gelu, exact, subnormal_factor, none), 6.5);
}

TEST(Activation, gelu_tanh) {
  auto exact = [](double x) { return x / (1.0 + std::exp(-exact_tanh_argument(x))); };
  auto argument = [](float x) {
    return x < 0.0f ? 3.0 * std::fabs(exact_tanh_argument(static_cast<double>(x))) : 0.0;
  };
  EXPECT_LT(worst_units(-20.0f, 1e30f, gelu_tanh, exact, subnormal_factor, argument), 4.0);
}

TEST(Activation, gelu_tanh_is_the_tanh_form) {
  for (double x = -4.0; x <= 4.0; x += 1.0 / 64.0) {
    const double u = 0.5 * exact_tanh_argument(x);
    EXPECT_NEAR(static_cast<double>(gelu_tanh(static_cast<float>(x))),
                0.5 * x * (1.0 + std::tanh(u)), 4.0 * 0x1p-22);
  }
}

TEST(Activation, swiglu) {
  auto silu = [](float x) { return swiglu(x, 1.0f); };
  auto exact = [](double x) { return x / (1.0 + std::exp(-x)); };
  EXPECT_LT(worst_units(-110.0f, 1e30f, silu, exact, subnormal_factor, none), 3.5);
  EXPECT_EQ(swiglu(3.0f, 5.0f), swiglu(3.0f, 1.0f) * 5.0f);
}

TEST(Activation, values_that_are_not_finite) {
  for (float (*f)(float) : {+[](float x) { return gelu(x); }, +[](float x) { return gelu_tanh(x); },
                            +[](float x) { return swiglu(x, 1.0f); }}) {
    EXPECT_EQ(f(kInf), kInf);
    /* infinity times 0, as the formula of the paper gives */
    EXPECT_EQ(float_bits(f(-kInf)), kQuietNanBits);
    EXPECT_EQ(float_bits(f(-kNan)), kQuietNanBits) << "one NaN, whatever came in";
    EXPECT_EQ(float_bits(f(-0.0f)), float_bits(-0.0f));
    EXPECT_EQ(f(std::numeric_limits<float>::denorm_min()), 0.0f);
  }
  EXPECT_EQ(float_bits(swiglu(1.0f, kNan)), kQuietNanBits);
}

TEST(Activation, recorded_bits) {
  EXPECT_EQ(float_bits(exponential(-0.3f)), 0x3F3DA643);
  EXPECT_EQ(float_bits(gelu(0.7f)), 0x3F07D712);
  EXPECT_EQ(float_bits(gelu(-3.3f)), static_cast<int32_t>(0xBAD1195F));
  EXPECT_EQ(float_bits(gelu_tanh(-1.1f)), static_cast<int32_t>(0xBE190147));
  EXPECT_EQ(float_bits(swiglu(-2.5f, 3.0f)), static_cast<int32_t>(0xBF11A5D0));
}

}  // namespace
}  // namespace octavo::test
