// Where Transformer Engine's two implementations of the delayed update differ, by name: its fused
// kernel (common/recipe/delayed_scaling.cu) and its Python path (pytorch/quantization.py).
#include "tests/plugins/te_layer.h"

namespace octavo::test {
namespace {

// One operand's state before and after end_step.
struct State {
  float scale;
  std::vector<float> history;  // row 0 waits for the amax, the others run from the oldest
};

class Profile {
 public:
  explicit Profile(const char *name, const char *algorithm = "max", int margin = 0, int length = 3,
                   const char *overflow = "te")
      : layer_({{{"profile", '"' + std::string(name) + '"'},
                 {"amax_overflow", '"' + std::string(overflow) + '"'},
                 {"amax_compute_algo", '"' + std::string(algorithm) + '"'},
                 {"margin", std::to_string(margin)},
                 {"amax_history_len", std::to_string(length)}}},
               Matrix(1, 1, 1.0f)),
        length_(length) {}

  State update(const State &before, float amax) {
    *layer_.slot("x/scale") = before.scale;
    std::copy(before.history.begin(), before.history.end(), layer_.slot("x/amax_history"));
    *layer_.slot("x/amax") = amax;
    layer_.end_step();
    EXPECT_EQ(*layer_.slot("x/amax"), 0.0f);
    const float *history = layer_.slot("x/amax_history");
    return {*layer_.slot("x/scale"), {history, history + length_}};
  }

 private:
  TeLayer layer_;
  int length_;
};

constexpr const char *kFused = "te2-delayed-fused";
constexpr const char *kUnfused = "te2-delayed-unfused";
constexpr float kInf = INFINITY;

TEST(TeProfile, slot_0_is_0) {
  const State before = {2.0f, {0, 5, 7}};
  const State fused = Profile(kFused).update(before, 0);
  EXPECT_EQ(fused.scale, 2.0f);
  EXPECT_EQ(fused.history, before.history);  // nothing rolls
  const State unfused = Profile(kUnfused).update(before, 0);
  EXPECT_EQ(unfused.scale, 1.0f / 7.0f * 448.0f);
  EXPECT_EQ(unfused.history, (std::vector<float>{0, 7, 0}));
}

TEST(TeProfile, nan_in_the_window) {
  const State before = {2.0f, {0, NAN, 7}};
  const State fused = Profile(kFused).update(before, 5);
  EXPECT_EQ(fused.scale, 448.0f / 7.0f);  // the maximum ignores NaN
  EXPECT_EQ(fused.history, (std::vector<float>{0, 7, 5}));
  const State unfused = Profile(kUnfused).update(before, 5);
  EXPECT_EQ(unfused.scale, 2.0f);  // the maximum is NaN
  EXPECT_EQ(unfused.history, (std::vector<float>{0, 7, 5}));
}

TEST(TeProfile, inf_in_the_window_freezes_the_scale_until_it_rolls_out) {
  for (const char *name : {kFused, kUnfused}) {
    SCOPED_TRACE(name);
    Profile profile(name);
    State state = profile.update({2.0f, {0, 5, 7}}, kInf);
    EXPECT_EQ(state.history, (std::vector<float>{0, 7, kInf}));
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(state.scale, 2.0f) << "step " << step;
      state = profile.update(state, 4);
    }
    EXPECT_EQ(state.history, (std::vector<float>{0, 4, 4}));
    EXPECT_EQ(profile.update(state, 4).scale, 112.0f);
  }
}

// amax_overflow: TE's default history of 1,024 steps, until the scale follows a smaller amax again.
TEST(TeProfile, one_inf_freezes_the_scale_for_1024_updates_unless_it_recovers) {
  constexpr int kLength = 1024;
  for (const char *name : {kFused, kUnfused}) {
    for (const float odd : {kInf, NAN}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(odd));
      State before = {2.0f, std::vector<float>(kLength, 4.0f)};
      before.history[0] = 0;
      Profile te(name, "max", 0, kLength), recovers(name, "max", 0, kLength, "recover");
      State frozen = te.update(before, odd), recovered = recovers.update(before, odd);
      EXPECT_EQ(recovered.scale, 112.0f);
      EXPECT_EQ(recovered.history.back(), 0.0f);
      if (std::isnan(odd)) continue;  // the fused maximum ignores NaN
      int updates = 1;
      for (; frozen.scale == 2.0f && updates < 2 * kLength; ++updates)
        frozen = te.update(frozen, 4);
      EXPECT_EQ(updates - 1, kLength);
      EXPECT_EQ(frozen.scale, 112.0f);
    }
    // Nothing else is in the window: the scale stays.
    const State alone =
        Profile(name, "most_recent", 0, 3, "recover").update({2.0f, {0, 5, 7}}, kInf);
    EXPECT_EQ(alone.scale, 2.0f);
    EXPECT_EQ(alone.history, (std::vector<float>{0, 7, 0}));
  }
}

TEST(TeProfile, most_recent_is_nan) {
  for (const char *name : {kFused, kUnfused}) {
    SCOPED_TRACE(name);
    const State after = Profile(name, "most_recent").update({2.0f, {0, 5, 7}}, NAN);
    EXPECT_EQ(after.scale, 2.0f);
    EXPECT_EQ(after.history[1], 7.0f);
    EXPECT_TRUE(std::isnan(after.history[2]));
  }
}

TEST(TeProfile, margin_with_a_tiny_amax) {
  const State before = {2.0f, {0, 0, 0}};
  EXPECT_EQ(Profile(kFused, "max", 4).update(before, 1e-36f).scale, 28.0f / 1e-36f);
  // 448 / 1e-36 overflows before the margin is applied.
  EXPECT_EQ(Profile(kUnfused, "max", 4).update(before, 1e-36f).scale,
            std::numeric_limits<float>::max());
}

TEST(TeProfile, quotient_and_reciprocal) {
  const State before = {2.0f, {0, 0, 0}};
  Profile fused_profile(kFused), unfused_profile(kUnfused);
  int different = 0;
  for (int i = 1; i <= 1000; ++i) {
    const float amax = static_cast<float>(i) / 7.0f;
    const float fused = fused_profile.update(before, amax).scale;
    const float unfused = unfused_profile.update(before, amax).scale;
    EXPECT_EQ(fused, 448.0f / amax);
    EXPECT_EQ(unfused, 1.0f / amax * 448.0f);
    different += fused != unfused ? 1 : 0;
  }
  EXPECT_GT(different, 100);  // about 28 % of all amax differ by a last bit
}

TEST(TeProfile, history_of_one_row) {
  for (const char *name : {kFused, kUnfused}) {
    const State after = Profile(name, "max", 0, 1).update({2.0f, {0}}, 4);
    EXPECT_EQ(after.scale, 112.0f) << name;
    EXPECT_EQ(after.history, std::vector<float>{0}) << name;
  }
}

}  // namespace
}  // namespace octavo::test
