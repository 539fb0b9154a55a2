/* Scale updates of device code against the CPU's kernels. */
#include "tests/kernels/cuda/twins.h"
#include "tests/support/history.h"

namespace octavo::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL,
                               OCTAVO_RULE_MSAMP, OCTAVO_RULE_MSAMP04};

std::vector<float> amaxes(Twins &twins, size_t count) {
  std::vector<float> values = {
      0.0f, kInf, std::numeric_limits<float>::quiet_NaN(), 0x1p-149f, 3.4e38f, 1e-30f, 448.0f};
  while (values.size() < count) values.push_back(std::abs(twins.random_value(Values::kNormal)));
  values.resize(count);
  return values;
}

TEST(CudaScales, from_amax_as_the_cpu) {
  Devices devices;
  for (const uint32_t rule : kRules) {
    Twins twins(rule);
    const size_t amax = twins.floats(amaxes(twins, 500));
    const size_t scale = twins.floats(std::vector<float>(500, 2.0f));
    const size_t scale_inv = twins.floats(std::vector<float>(500, 0.5f));
    for (int side = 0; side < 2; ++side) {
      octavo_scale_from_amax c = {};
      c.size = sizeof(c);
      c.kind = OCTAVO_KIND_SCALE_FROM_AMAX;
      c.amax = twins.floats_at(side, amax);
      c.scale = twins.floats_at(side, scale);
      c.scale_inv = twins.floats_at(side, scale_inv);
      c.kept = c.scale;
      c.n = 500;
      c.format_max = 448.0f;
      c.divide_by = 3.0f;
      c.rule = rule;
      ASSERT_EQ(devices.run(side, &octavo_kernels::scale_from_amax, c), OCTAVO_OK);
    }
    twins.expect_equal("rule " + std::to_string(rule));
  }
}

TEST(CudaScales, delayed_update_as_the_cpu) {
  Devices devices;
  for (const uint32_t rule : kRules) {
    for (const uint64_t length : {1, 2, 16}) {
      /* te's amax_overflow = "recover" adds a flag to those of its profiles. */
      for (const uint32_t how : {0, 1, 2, 3}) {
        const uint32_t use_max = how & 1;
        const uint32_t more = how < 2 ? 0 : uint32_t{OCTAVO_HISTORY_DROP_NONFINITE};
        Twins twins(rule * 100 + length);
        constexpr size_t n = 300;
        const size_t amax = twins.floats(amaxes(twins, n));
        std::vector<float> rows;
        for (uint64_t row = 0; row < length; ++row) {
          const std::vector<float> one = amaxes(twins, n + row);
          rows.insert(rows.end(), one.begin() + static_cast<std::ptrdiff_t>(row), one.end());
        }
        const size_t history = twins.floats(rows);
        const size_t scale = twins.floats(std::vector<float>(n, 2.0f));
        const size_t counter = twins.floats(std::vector<float>(n, 1.0f));
        for (int round = 0; round < 3; ++round) {
          for (int side = 0; side < 2; ++side) {
            octavo_delayed_scale_update c = {};
            c.size = sizeof(c);
            c.kind = OCTAVO_KIND_DELAYED_SCALE_UPDATE;
            c.amax = twins.floats_at(side, amax);
            c.history = twins.floats_at(side, history);
            c.scale = twins.floats_at(side, scale);
            c.counter = round == 1 ? nullptr : twins.floats_at(side, counter);
            c.n = n;
            c.length = length;
            c.format_max = 57344.0f;
            c.margin = 1;
            c.use_max = use_max;
            c.rule = rule;
            c.history_flags = history_of(c.rule) | more;
            ASSERT_EQ(devices.run(side, &octavo_kernels::delayed_scale_update, c), OCTAVO_OK);
          }
          twins.expect_equal("rule " + std::to_string(rule) + " round " + std::to_string(round));
        }
      }
    }
  }
}

TEST(CudaScales, prescale_as_the_cpu) {
  Devices devices;
  for (const float saturated : {0.0f, 1.0f, 50.0f, kInf}) {
    for (const float added : {0.0f, 1000.0f}) {
      Twins twins(1);
      const size_t values = twins.floats({0.75f, saturated, added});
      for (int side = 0; side < 2; ++side) {
        octavo_prescale_update c = {};
        c.size = sizeof(c);
        c.kind = OCTAVO_KIND_PRESCALE_UPDATE;
        c.prescale = twins.floats_at(side, values);
        c.saturated = c.prescale + 1;
        c.added = c.prescale + 2;
        c.threshold = 0.001f;
        c.growth = 1.01f;
        c.low = 0.5f;
        c.high = 1.0f;
        ASSERT_EQ(devices.run(side, &octavo_msamp_kernels::prescale_update, c), OCTAVO_OK);
      }
      twins.expect_equal(std::to_string(saturated) + " of " + std::to_string(added));
    }
  }
}

TEST(CudaScales, gradient_factor_as_the_cpu) {
  Devices devices;
  for (const float max_norm : {0.0f, 1.0f}) {
    for (const float last : {2.0f, kInf}) {
      for (const float flag : {0.0f, 1.0f}) {
        Twins twins(1);
        const size_t sums = twins.floats({0.1f, 1e-9f, 3.0f, last});
        const size_t nonfinite = twins.floats({flag});
        const size_t found = twins.floats({-1.0f, -1.0f});
        const size_t scales = twins.floats(std::vector<float>(600, 9.0f));
        for (int side = 0; side < 2; ++side) {
          std::vector<float *> targets;
          for (int i = 0; i < 600; ++i) targets.push_back(twins.floats_at(side, scales) + i);
          octavo_gradient_scale c = {};
          c.size = sizeof(c);
          c.kind = OCTAVO_KIND_GRADIENT_SCALE;
          c.sum = twins.floats_at(side, sums);
          c.sum_count = 4;
          c.nonfinite = twins.floats_at(side, nonfinite);
          c.norm = twins.floats_at(side, found);
          c.skip = c.norm + 1;
          c.grad_scale = targets.data();
          c.count = targets.size();
          c.factor = 0.37f;
          c.max_norm = max_norm;
          ASSERT_EQ(devices.run(side, &octavo_adam_kernels::gradient_scale, c), OCTAVO_OK);
        }
        twins.expect_equal("max_norm " + std::to_string(max_norm));
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
