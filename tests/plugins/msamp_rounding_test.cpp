// How msamp rounds what Adam stores, and which moments it leaves in fp32.
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

// A row of an embedding whose token is absent after 20 steps, beside one with gradients 4,096 times
// as large throughout: the largest distance that its weights move afterwards, in learning rates.
double moved_when_dead(const std::string &lines) {
  constexpr int64_t kCols = 64;
  constexpr int kLiving = 20, kSteps = 600;
  Msamp m(lines);
  m.add_parameter(Matrix(2, kCols, 0.0f));
  m.seal();
  Matrix kept;
  for (int k = 0; k < kSteps; ++k) {
    const Matrix g = some_matrix(2, kCols, 50 + static_cast<uint32_t>(k), 1.0f);
    for (int64_t c = 0; c < kCols; ++c) {
      m.gradient(0).at(0, c) = g.at(0, c);
      m.gradient(0).at(1, c) = k < kLiving ? g.at(1, c) / 4096 : 0.0f;
    }
    EXPECT_EQ(m.step(), OCTAVO_OK) << m.error();
    if (k + 1 == kLiving) kept = m.value(0);
  }
  double largest = 0;
  for (int64_t c = 0; c < kCols; ++c)
    largest = std::max(largest, std::fabs(double{m.value(0).at(1, c)} - double{kept.at(1, c)}));
  return largest / double{m.hyper()[OCTAVO_HYPER_LR]};
}

// O1 has fp32 moments. The bound is kernels/format/rounding.h's; AdamDeadRow.* has 20,000 steps.
TEST(MsampRounding, a_dead_row_stops_in_every_state_format) {
  const double exact = moved_when_dead("opt_level = \"O1\"");
  EXPECT_GT(exact, 1.0);
  for (const char *lines :
       {"opt_level = \"O2\"", "opt_level = \"O3\"", "state_format = \"e4m3-block\"",
        "state_format = \"coat\"", "state_scale = \"bound\""})
    EXPECT_LE(moved_when_dead(lines), 2 * exact) << lines;
  EXPECT_GT(moved_when_dead("state_rounding = \"nearest\""), 4 * exact);
  EXPECT_GT(moved_when_dead("profile = \"msamp04\""), 4 * exact);
}

TEST(MsampRounding, moments_that_stay_in_fp32) {
  const struct {
    const char *lines;
    bool plain[3];  // of the linear of 32 x 16, the bias of 32, the embedding of 8 x 16
  } cases[] = {{"", {false, false, false}},
               {"state_min_size = 33", {false, true, false}},
               {"state_min_size = 129", {false, true, true}},
               {"state_min_size = 100000", {true, true, true}},
               {"state_skip = \"p[0]\"", {false, false, false}},
               {"state_skip = \"*\"", {true, true, true}},
               {"state_skip = \"?0\"", {true, false, false}},
               {"state_skip = \"none,p*2,\"", {false, false, true}},
               {"state_skip = \"*1,*0\"", {true, true, false}},
               {"state_skip = \"p\"", {false, false, false}}};
  for (const auto &c : cases) {
    for (const char *format : {"level", "e4m3-block", "coat"}) {
      Msamp m(std::string(c.lines) + "\nstate_format = \"" + format + "\"");
      m.add_linear(rough_matrix(32, 16, 1, 1.0f));
      m.add_parameter(Matrix(1, 32, 0.5f));
      m.add_parameter(Matrix(8, 16, 0.5f));
      m.seal();
      uint64_t bytes[2] = {};
      const uint64_t sizes[] = {512, 32, 128};
      const uint64_t second = std::string(format) == "level" ? 2 : 1;
      for (int p = 0; p < 3; ++p) {
        EXPECT_EQ(m.slot("exp_avg", p)->dtype,
                  c.plain[p] ? uint32_t{OCTAVO_F32} : uint32_t{OCTAVO_E4M3FN})
            << c.lines << " " << p;
        bytes[0] += sizes[p] * (c.plain[p] ? 4 : 1);
        bytes[1] += sizes[p] * (c.plain[p] ? 4 : second);
      }
      EXPECT_EQ(octavo_store_bytes(m.store(), OCTAVO_ROLE_EXP_AVG), bytes[0]) << c.lines;
      EXPECT_EQ(octavo_store_bytes(m.store(), OCTAVO_ROLE_EXP_AVG_SQ), bytes[1]) << c.lines;
      ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, rough_matrix(32, 16, 2, 1.0f)), OCTAVO_OK);
      EXPECT_EQ(m.step(), OCTAVO_OK) << m.error();
    }
  }
}

constexpr const char *kStochastic =
    "state_rounding = \"stochastic\"\nweight_rounding = \"stochastic\"\n";

void train(Msamp &m, uint32_t from, uint32_t to) {
  for (uint32_t k = from; k < to; ++k) {
    ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, rough_matrix(24, 40, 10 + k, 1.0f)), OCTAVO_OK);
    ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
  }
}
void build(Msamp &m) {
  m.add_linear(rough_matrix(24, 40, 1, 1.0f));
  m.seal();
}

// The count of steps is in a slot, so what continues from a checkpoint draws the same bits.
TEST(MsampRounding, stochastic_repeats_continues_and_follows_the_seed) {
  const auto end = [](const std::string &more) {
    Msamp m(kStochastic + more);
    build(m);
    train(m, 0, 6);
    return m.read(0, OCTAVO_ROLE_WEIGHT).v;
  };
  const std::vector<float> once = end("");
  EXPECT_EQ(end(""), once);
  EXPECT_NE(end("rounding_seed = 1"), once);
  EXPECT_EQ(end("rounding_seed = 1"), end("rounding_seed = 1"));
  Msamp first(kStochastic), second(kStochastic);
  build(first);
  build(second);
  train(first, 0, 3);
  for (const char *slot : {"weight", "weight/scale_inv", "exp_avg", "exp_avg/scale_inv",
                           "exp_avg_sq", "exp_avg_sq/scale_inv", "step"}) {
    const octavo_slot &s = *first.slot(slot);
    const auto size = static_cast<size_t>(s.rows * s.cols * (OCTAVO_DTYPE_BITS(s.dtype) / 8));
    std::memcpy(second.memory(slot), first.memory(slot), size);
  }
  train(second, 3, 6);
  EXPECT_EQ(second.read(0, OCTAVO_ROLE_WEIGHT).v, once);
}

// Updates of a 64th of a unit of the f16 weights: to nearest even they are lost, stochastically
// they add up. Adam's step is the learning rate while the gradient is the same.
TEST(MsampRounding, small_updates_of_weights_count_on_average) {
  constexpr int kSteps = 640;
  for (const bool stochastic : {false, true}) {
    Msamp m(std::string("opt_level = \"O1\"") +  // fp32 moments
            (stochastic ? "\nweight_rounding = \"stochastic\"" : ""));
    m.add_linear(Matrix(64, 64, 1.5f));  // scaled by 2^15: a unit is 2^-10
    m.seal();
    m.hyper()[OCTAVO_HYPER_LR] = 0x1p-16f;
    m.hyper()[OCTAVO_HYPER_WEIGHT_DECAY] = 0;
    for (int k = 0; k < kSteps; ++k) {
      ASSERT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, Matrix(64, 64, 1.0f)), OCTAVO_OK);
      ASSERT_EQ(m.step(), OCTAVO_OK) << m.error();
    }
    double mean = 0;
    for (const float w : m.read(0, OCTAVO_ROLE_WEIGHT).v) mean += (1.5 - double{w}) / 4096;
    // 10 units. Their number is binomial, with a variance of at most 640 / 64 in one weight, so the
    // mean of 4,096 has a standard deviation of 0.05 units.
    const double units = mean * 0x1p10;
    if (stochastic) {
      EXPECT_NEAR(units, 10.0, 5 * 0.05);
    } else {
      EXPECT_EQ(units, 0.0);
    }
  }
}

}  // namespace
}  // namespace octavo::test
