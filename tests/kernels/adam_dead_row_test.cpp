/* How far a row of weights moves after its gradients ended, beside a row that still has some, for
 * every format in which msamp-fixed keeps moments.
 *
 * fp64 Adam moves such a row by a few dozen learning rates and then stops. To nearest even the
 * codes of a first moment stick while the second moment decays, and the row moves without an end.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "octavo/draft/optimizer.h"
#include "octavo/draft/rounding.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

constexpr int64_t kCols = 64; /* every block has elements of both rows */
constexpr int64_t kRows = 8;  /* the even ones have gradients throughout */
constexpr int kLivingSteps = 20;
constexpr double kRate = 1e-3;

struct StateFormat {
  const char *name;
  uint32_t exp_avg, exp_avg_sq, granularity;
};
void PrintTo(const StateFormat &f, std::ostream *out) {
  *out << f.name;
}

/* The formats of opt_level and state_format. */
constexpr StateFormat kFormats[] = {
    {"f32", OCTAVO_F32, OCTAVO_F32, OCTAVO_PER_TENSOR},
    {"level", OCTAVO_E4M3FN, OCTAVO_F16, OCTAVO_PER_TENSOR},
    {"e4m3_block", OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_FLAT_256},
    {"coat", OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_EXPANDED_128},
};

bool is_dead(int64_t row) {
  return row % 2 != 0;
}

/* Gradients of a step. Those of living rows shrink over time, so scales follow them down. Dead rows
 * had gradients 2^-12 times as large, so that their first moments are the smallest codes. */
class Source {
 public:
  float next(int64_t row, int step) {
    const float value = normal_(generator_) * std::pow(2.0f, -static_cast<float>(step) / 4000.0f);
    if (!is_dead(row)) return value;
    return step < kLivingSteps ? value * 0x1p-12f : 0.0f;
  }

 private:
  std::mt19937 generator_{7};
  std::normal_distribution<float> normal_;
};

/* The largest distance that an element of the dead rows moves after its last gradient, in learning
 * rates. */
double moved_exactly(int steps, float beta1) {
  const double beta2 = 0.999;
  std::vector<double> m(kRows * kCols), v(m), w(m), kept(m);
  Source source;
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < m.size(); ++i) {
      const double g = source.next(static_cast<int64_t>(i) / kCols, step);
      m[i] = static_cast<double>(beta1) * m[i] + (1 - static_cast<double>(beta1)) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double first = m[i] / (1 - std::pow(static_cast<double>(beta1), step + 1));
      const double second = v[i] / (1 - std::pow(beta2, step + 1));
      w[i] -= kRate * first / (std::sqrt(second) + 1e-8);
    }
    if (step + 1 == kLivingSteps) kept = w;
  }
  double largest = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    if (is_dead(static_cast<int64_t>(i) / kCols))
      largest = std::fmax(largest, std::fabs(w[i] - kept[i]) / kRate);
  }
  return largest;
}

double moved(const StateFormat &f, int steps, float beta1, uint32_t rounding) {
  Kernels kernels;
  Matrix weight(OCTAVO_F32, kRows, kCols), gradient(OCTAVO_F32, kRows, kCols);
  Matrix exp_avg(f.exp_avg, kRows, kCols), exp_avg_sq(f.exp_avg_sq, kRows, kCols);
  for (Matrix *t : {&weight, &exp_avg, &exp_avg_sq}) std::memset(t->at(0, 0), 0, t->data().size());
  std::vector<float> scales[2];
  for (std::vector<float> &s : scales) s.resize(kRows * kCols / 128 * 3, 1.0f);
  const float hyper[OCTAVO_HYPER_COUNT] = {static_cast<float>(kRate), beta1, 0.999f, 1e-8f, 0, 1};
  int32_t count = 0;
  octavo_adam_item item = {};
  item.weight = *weight.tensor();
  item.gradient = *gradient.tensor();
  item.exp_avg = *exp_avg.tensor();
  item.exp_avg_sq = *exp_avg_sq.tensor();
  if (f.exp_avg != OCTAVO_F32) item.exp_avg_scale_inv = scales[0].data();
  if (f.exp_avg_sq != OCTAVO_F32) item.exp_avg_sq_scale_inv = scales[1].data();
  item.step = &count;
  item.hyper = hyper;
  auto step = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  step.items = &item;
  step.count = 1;
  step.rule = OCTAVO_RULE_MSAMP;
  step.state_granularity = f.granularity;
  step.flags = OCTAVO_ADAM_KEEP_POSITIVE;
  const uint64_t key = 1;
  auto c = make_call<octavo_adam_rounded>(OCTAVO_KIND_ADAM_ROUNDED);
  c.step = &step;
  c.keys = &key;
  c.exp_avg_rounding = rounding;
  std::vector<float> kept(kCols * kRows);
  Source source;
  for (int k = 0; k < steps; ++k) {
    for (int64_t i = 0; i < kRows * kCols; ++i)
      gradient.set(i / kCols, i % kCols, source.next(i / kCols, k));
    EXPECT_EQ(draft_call(kernels.table, kernels.ctx(), &c), OCTAVO_OK)
        << kernels.host().last_text();
    if (k + 1 != kLivingSteps) continue;
    for (int64_t i = 0; i < kRows * kCols; ++i)
      kept[static_cast<size_t>(i)] = weight.get(i / kCols, i % kCols);
  }
  double largest = 0;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    if (!is_dead(i / kCols)) continue;
    const double distance = static_cast<double>(weight.get(i / kCols, i % kCols)) -
                            static_cast<double>(kept[static_cast<size_t>(i)]);
    largest = std::fmax(largest, std::fabs(distance) / kRate);
  }
  return largest;
}

class AdamDeadRow : public testing::TestWithParam<StateFormat> {
 protected:
  void expect_stops(int steps) {
    for (const float beta1 : {0.9f, 0.95f}) {
      const double exact = moved_exactly(steps, beta1);
      const double found = moved(GetParam(), steps, beta1, OCTAVO_ROUND_SHRINKING);
      EXPECT_LE(found, 2 * exact) << "beta1 " << beta1;
      RecordProperty("exact_" + std::to_string(beta1), std::to_string(exact));
      RecordProperty("found_" + std::to_string(beta1), std::to_string(found));
    }
  }
};

TEST_P(AdamDeadRow, moves_at_most_twice_as_far_as_in_fp64_in_1000_steps) {
  expect_stops(1000);
}

TEST_P(AdamDeadRow, long_moves_at_most_twice_as_far_as_in_fp64_in_20000_steps) {
  expect_stops(20000);
}

INSTANTIATE_TEST_SUITE_P(Formats, AdamDeadRow, testing::ValuesIn(kFormats),
                         [](const testing::TestParamInfo<StateFormat> &each) {
                           return std::string(each.param.name);
                         });

/* What the rounding is for: to nearest even the row of E4M3 moments does not stop. */
TEST(AdamNearest, a_dead_row_moves_on) {
  const double found = moved(kFormats[1], 1000, 0.9f, OCTAVO_ROUND_NEAREST_EVEN);
  EXPECT_GT(found, 10 * moved_exactly(1000, 0.9f));
  RecordProperty("found", std::to_string(found));
}

TEST(AdamNearest, long_a_dead_row_moves_on) {
  const double found = moved(kFormats[1], 20000, 0.9f, OCTAVO_ROUND_NEAREST_EVEN);
  EXPECT_GT(found, 100 * moved_exactly(1000, 0.9f));
  RecordProperty("found", std::to_string(found));
}

}  // namespace
}  // namespace octavo::test
