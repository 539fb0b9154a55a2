// prepare_step: clipping and skipping decided where the gradients are, without a host that looks.
#include <gmock/gmock.h>

#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

// An owned weight (parameter 0) and a native vector (parameter 1), both with gradients.
class MsampPrepare : public testing::Test {
 protected:
  MsampPrepare() {
    weight_ = rough_matrix(8, 16, 1, 1.0f);
    m_.add_linear(weight_);
    m_.add_parameter(rough_matrix(1, 8, 2, 1.0f));
    m_.seal();
    write_gradients(1.0f);
  }
  void write_gradients(float factor) {
    owned_ = rough_matrix(8, 16, 3, 4.0f * factor);
    EXPECT_EQ(m_.write(0, OCTAVO_ROLE_GRADIENT, owned_), OCTAVO_OK) << m_.error();
    owned_ = m_.read(0, OCTAVO_ROLE_GRADIENT);  // as stored in E4M3
    native_ = rough_matrix(1, 8, 4, 2.0f * factor);
    m_.set_gradient(1, native_);
  }
  // Sums of squares of both parameters, then prepare_step with one group.
  octavo_status prepare(float max_norm) {
    sums_[0] = sums_[1] = 0.0f;
    for (uint32_t p = 0; p < 2; ++p) {
      const octavo_parameter_item item = m_.item(p);
      auto norm = Msamp::make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
      norm.items = &item;
      norm.count = 1;
      norm.sum = &sums_[p];
      EXPECT_EQ(m_.optimizer()->sum_of_squares(m_.session(), &norm), OCTAVO_OK) << m_.error();
    }
    call_.sum = sums_;
    call_.sum_count = 2;
    call_.nonfinite = m_.floats("nonfinite");
    call_.norm = &norm_;
    call_.skip = &skip_;
    call_.hyper = groups_;
    call_.count = 1;
    call_.factor = 1.0f;
    call_.max_norm = max_norm;
    return m_.optimizer()->prepare_step(m_.session(), &call_);
  }
  double exact_norm() const {
    double squares = 0.0;
    for (const Matrix *m : {&owned_, &native_})
      for (const float v : m->v) squares += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(squares);
  }

  Msamp m_;
  Matrix weight_, owned_, native_;
  float sums_[2] = {};
  float norm_ = -1.0f, skip_ = -1.0f;
  float *groups_[1] = {m_.hyper()};
  octavo_prepare_call call_ = Msamp::make<octavo_prepare_call>(OCTAVO_KIND_PREPARE_CALL);
};

TEST_F(MsampPrepare, the_norm_is_that_of_stored_and_native_gradients) {
  ASSERT_EQ(prepare(0.0f), OCTAVO_OK) << m_.error();
  // Two fp32 sums of up to 128 squares: relative error below 130 * 2^-24, halved by the root.
  EXPECT_NEAR(norm_, exact_norm(), exact_norm() * 130 * 0x1p-24);
  EXPECT_EQ(m_.hyper()[OCTAVO_HYPER_GRAD_SCALE], 1.0f);
  EXPECT_EQ(skip_, 0.0f);
}

// Gradients of both parameters enter the first moment clipped: m = (1 - beta1) * scale * g.
TEST_F(MsampPrepare, a_clipped_step_moves_by_the_clipped_gradient) {
  ASSERT_EQ(prepare(0.5f), OCTAVO_OK);
  const float scale = m_.hyper()[OCTAVO_HYPER_GRAD_SCALE];
  EXPECT_NEAR(scale, 0.5 / exact_norm(), 1e-4 * 0.5 / exact_norm());
  ASSERT_EQ(m_.step(&skip_), OCTAVO_OK) << m_.error();
  const Matrix first = m_.read(1, OCTAVO_ROLE_EXP_AVG);
  for (size_t i = 0; i < first.v.size(); ++i) {
    const float exact = 0.1f * scale * native_.v[i];
    // E4M3 with a power-of-two scale: half a unit of 3 bits, or of the least subnormal of a scale
    // that puts the largest value above 224.
    const float largest = 0.1f * scale * amax_of(native_);
    EXPECT_NEAR(first.v[i], exact, std::max(std::fabs(exact) / 16, largest / 224 * 0x1p-10f)) << i;
  }
}

// No cast sees a native gradient, so the nonfinite slot stays 0: the norm tells.
TEST_F(MsampPrepare, an_infinite_native_gradient_skips_the_step) {
  native_.v[3] = kInf;
  m_.set_gradient(1, native_);
  ASSERT_EQ(prepare(1.0f), OCTAVO_OK);
  EXPECT_EQ(*m_.floats("nonfinite"), 0.0f);
  EXPECT_EQ(skip_, 1.0f);
  const auto before = m_.snapshot(2);
  ASSERT_EQ(m_.step(&skip_), OCTAVO_OK);
  EXPECT_TRUE(m_.snapshot(2) == before);
  write_gradients(1.0f);
  ASSERT_EQ(prepare(1.0f), OCTAVO_OK);
  EXPECT_EQ(skip_, 0.0f);
}

TEST_F(MsampPrepare, the_flag_of_casts_skips_too) {
  *m_.floats("nonfinite") = 1.0f;
  ASSERT_EQ(prepare(1.0f), OCTAVO_OK);
  EXPECT_EQ(skip_, 1.0f);
}

TEST_F(MsampPrepare, refuses_missing_or_too_many_groups) {
  ASSERT_EQ(prepare(0.0f), OCTAVO_OK);
  call_.count = 65;
  EXPECT_EQ(m_.optimizer()->prepare_step(m_.session(), &call_), OCTAVO_INVALID);
  EXPECT_THAT(m_.error(), HasSubstr("at most 64"));
  call_.count = 1;
  groups_[0] = nullptr;
  EXPECT_EQ(m_.optimizer()->prepare_step(m_.session(), &call_), OCTAVO_INVALID);
  EXPECT_THAT(m_.error(), HasSubstr("found null"));
}

}  // namespace
}  // namespace octavo::test
