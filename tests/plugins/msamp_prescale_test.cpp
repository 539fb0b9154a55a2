// The automatic pre-scale of msamp's gradient reduction, step by step over eight ranks.
//
// The rule is FP8-LM's (arXiv 2310.18313, section 2.2): halve when more than 0.001 % of the summed
// elements left the range, else grow so slowly that 1,000 steps double it.
#include "tests/plugins/msamp_reduction.h"

namespace octavo::test {
namespace {

constexpr uint32_t kWorld = 8;
constexpr float kShare = 1e-5f;
constexpr float kGrowth = 1.000693387f;  // 2^(1/1000), rounded to fp32
const std::pair<int64_t, int64_t> kShape = {8, 64};
constexpr size_t kCount = 8 * 64;

class MsampPrescale : public MsampReduction {
 protected:
  void open(const char *prescale, std::pair<int64_t, int64_t> shape = kShape) {
    MsampReduction::open(kWorld, kTwoShot,
                         {{"gradient_accumulation", "fp32"}, {"prescale", prescale}}, {shape});
    bucket = {};
    ASSERT_EQ(group->start(group->all(), bucket), OCTAVO_OK) << request->host.error();
  }
  void set_prescale(float value) {
    for (uint32_t rank = 0; rank < kWorld; ++rank) *group->floats(rank, "reduce/prescale") = value;
  }
  // Equal on all ranks, or the test fails.
  float prescale() {
    const float first = *group->floats(0, "reduce/prescale");
    for (uint32_t rank = 1; rank < kWorld; ++rank)
      EXPECT_EQ(*group->floats(rank, "reduce/prescale"), first) << rank;
    return first;
  }
  void set_counts(float saturated, float added) {
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      *group->floats(rank, "reduce/saturated") = saturated;
      *group->floats(rank, "reduce/added") = added;
    }
  }
  // Sums the gradients; the share of the sums that left the range.
  float reduce(const std::vector<std::vector<float>> &gradients) {
    for (uint32_t rank = 0; rank < kWorld; ++rank)
      std::memcpy(group->floats(rank, "gradient"), gradients[rank].data(),
                  gradients[rank].size() * sizeof(float));
    for (uint32_t stage = 0; stage < bucket.stages.size(); ++stage) {
      EXPECT_EQ(group->run_stage(bucket, stage), OCTAVO_OK) << request->host.error();
      group->communicate(bucket, stage);
    }
    group->reduce_slots();
    return *group->floats(0, "reduce/saturated") / *group->floats(0, "reduce/added");
  }
  float step(const std::vector<std::vector<float>> &gradients) {
    const float share = reduce(gradients);
    group->end_step();
    return share;
  }
  ReductionGroup::Bucket bucket;
};

// The same signs on every rank, and nearly the same sizes.
std::vector<std::vector<float>> aligned_gradients() {
  Normal normal(1);
  std::vector<std::vector<float>> gradients(kWorld, std::vector<float>(kCount));
  for (size_t i = 0; i < kCount; ++i) {
    const double common = normal();
    for (uint32_t rank = 0; rank < kWorld; ++rank)
      gradients[rank][i] = static_cast<float>(common * (1 - 0.01 * rank));
  }
  return gradients;
}

// Sums that cancel: nothing can leave the range.
std::vector<std::vector<float>> opposed_gradients() {
  Normal normal(2);
  std::vector<std::vector<float>> gradients(kWorld, std::vector<float>(kCount));
  for (size_t i = 0; i < kCount; ++i) {
    const auto one = static_cast<float>(normal());
    for (uint32_t rank = 0; rank < kWorld; ++rank) gradients[rank][i] = rank % 2 == 0 ? one : -one;
  }
  return gradients;
}

TEST_F(MsampPrescale, recovers_from_saturation_and_stays_clear_of_it) {
  open("auto");
  set_prescale(1);
  const auto gradients = aligned_gradients();
  EXPECT_GT(step(gradients), kShare);
  int saturating = 1;
  while (saturating < 1000 && step(gradients) > kShare) ++saturating;
  // At 1 / 8 the sum of eight ranks is at most 448, so three halvings are enough.
  EXPECT_LE(saturating, 3);
  const float settled = prescale();
  // From here on growth touches the range now and then, is halved at once, and needs 1,000 steps to
  // come back: of 1,200 steps at most two saturate, each in few elements, and never one after the
  // other.
  int touched = 0;
  double shares = 0;
  bool before = false;
  for (int i = 0; i < 1200; ++i) {
    const float share = step(gradients);
    const bool touches = share > kShare;
    EXPECT_FALSE(touches && before) << "step " << i;
    touched += touches ? 1 : 0;
    shares += static_cast<double>(share);
    before = touches;
  }
  EXPECT_LE(touched, 2);
  EXPECT_GE(touched, 1) << "the pre-scale did not grow back to the edge of the range";
  EXPECT_LT(shares / 1200, static_cast<double>(kShare));
  std::printf("prescale from 1: %d saturating steps, then %.4f; share in the next 1,200: %.2g\n",
              saturating, static_cast<double>(settled), shares / 1200);
}

TEST_F(MsampPrescale, doubles_in_1000_steps_without_saturation) {
  open("auto");
  EXPECT_EQ(prescale(), 1.0f / 16);
  const auto gradients = opposed_gradients();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(step(gradients), 0.0f);
  // The factor is off by at most half a unit in its last place, 2^-24, and so is each product:
  // 2,000 such errors.
  EXPECT_NEAR(static_cast<double>(prescale()), 1.0 / 8, 2000 * 0x1p-24 / 8);
}

TEST_F(MsampPrescale, never_exceeds_1) {
  open("auto");
  set_prescale(0.9999f);
  const auto gradients = opposed_gradients();
  for (int i = 0; i < 3; ++i) {
    step(gradients);
    EXPECT_EQ(prescale(), 1.0f);
  }
}

TEST_F(MsampPrescale, step_without_a_reduction_leaves_it) {
  open("auto");
  set_prescale(0.3f);
  for (int i = 0; i < 3; ++i) {
    group->end_step();
    EXPECT_EQ(prescale(), 0.3f);
  }
}

TEST_F(MsampPrescale, arithmetic_of_one_step) {
  open("auto");
  struct Case {
    float before, saturated, after;
  };
  // Of 1,000,000 elements, 10 are the share that is just allowed.
  for (const Case &c : {Case{0.3f, 11, 0.15f}, Case{0.3f, 1e6f, 0.15f},
                        Case{0.3f, 9, 0.3f * kGrowth}, Case{0.3f, 0, 0.3f * kGrowth},
                        Case{0x1p-20f, 11, 0x1p-20f}, Case{1, 0, 1}, Case{1, 11, 0.5f}}) {
    set_prescale(c.before);
    set_counts(c.saturated, 1e6f);
    group->end_step();
    EXPECT_EQ(prescale(), c.after) << "from " << c.before << " with " << c.saturated;
    EXPECT_EQ(*group->floats(0, "reduce/saturated"), 0.0f);
    EXPECT_EQ(*group->floats(0, "reduce/added"), 0.0f);
  }
}

TEST_F(MsampPrescale, infinities_and_nans_leave_it_usable) {
  open("auto");
  auto gradients = aligned_gradients();
  const auto finite = gradients;
  gradients[1][3] = INFINITY;
  gradients[2][5] = NAN;
  gradients[4][3] = -INFINITY;
  for (int i = 0; i < 40; ++i) {
    step(gradients);
    const float now = prescale();
    ASSERT_TRUE(now >= 0x1p-20f && now <= 1) << now;
  }
  reduce(finite);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(std::isfinite(group->floats(0, "gradient")[i])) << i;
}

// Error against the exact mean, over draws of a heavy-tailed gradient whose signs agree.
//
// A few elements hold most of such a gradient's norm, so one step's error depends on how those
// happen to be rounded, and for `auto` that changes as the pre-scale grows: single steps are 0.5 to
// 1.7 times the mean. So `auto` is judged by all steps of a whole cycle, in which the pre-scale
// doubles; those in which it touches the edge of the range are among them.
TEST_F(MsampPrescale, auto_is_as_good_as_the_better_fixed_one_on_a_heavy_tail) {
  constexpr std::pair<int64_t, int64_t> kTail = {8, 128};
  constexpr size_t kElements = 8 * 128, kDraws = 40;
  // Student's t with two degrees of freedom, times a factor of each rank.
  Normal normal(3);
  std::vector<std::vector<std::vector<float>>> draws;
  std::vector<std::vector<double>> means;
  for (size_t draw = 0; draw < kDraws; ++draw) {
    auto &ranks = draws.emplace_back(kWorld, std::vector<float>(kElements));
    auto &mean = means.emplace_back(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      const double a = normal(), b = normal(), z = normal();
      const double t = z / std::sqrt((a * a + b * b) / 2);
      for (uint32_t rank = 0; rank < kWorld; ++rank) {
        ranks[rank][i] = static_cast<float>(t * (1 + 0.3 * normal()));
        mean[i] += static_cast<double>(ranks[rank][i]) / kWorld;
      }
    }
  }
  const auto error = [&](const char *prescale, size_t settling, size_t steps) {
    open(prescale, kTail);
    if (settling > 0) set_prescale(1);
    for (size_t i = 0; i < settling; ++i) step(draws[i % kDraws]);
    double sum = 0;
    for (size_t i = 0; i < steps; ++i) {
      step(draws[i % kDraws]);
      const std::vector<double> &exact = means[i % kDraws];
      const float *found = group->floats(0, "gradient");
      double wrong = 0, size = 0;
      for (size_t e = 0; e < kElements; ++e) {
        const double off = static_cast<double>(found[e]) - exact[e];
        wrong += off * off;
        size += exact[e] * exact[e];
      }
      sum += std::sqrt(wrong / size);
    }
    return sum / static_cast<double>(steps);
  };
  const double sqrt_error = error("sqrt", 0, kDraws), full_error = error("full", 0, kDraws);
  const double auto_error = error("auto", kDraws, 1000);
  std::printf("relative L2 error on Student t(2), W = 8: sqrt %.4f, full %.4f, auto %.4f\n",
              sqrt_error, full_error, auto_error);
  EXPECT_LE(auto_error, 1.1 * std::min(sqrt_error, full_error));
}

}  // namespace
}  // namespace octavo::test
