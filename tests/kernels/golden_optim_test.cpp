/* Golden vectors, optim/: adam_step against torch.optim over 20 steps, against torchao's states in
 * blocks and against O2-style states.
 *
 * The tolerances are those of the README beside the vectors.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "octavo/draft/optimizer.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

struct Case {
  std::string folder;
  size_t elements;
  size_t steps;
  double lr;
  double beta2;
  double weight_decay;
  bool is_l2;
  float hyper[OCTAVO_HYPER_COUNT];
};

/* The cases of hyper.csv whose name begins so. */
std::vector<Case> cases_of(const std::string &prefix) {
  const Csv table = VectorFiles::get().csv("optim/hyper.csv");
  std::vector<Case> cases;
  for (size_t row = 0; row < table.rows(); ++row) {
    const std::string &name = table.text(row, "case");
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const auto real = [&](const char *column) { return std::stod(table.text(row, column)); };
    Case c = {"optim/" + name,
              static_cast<size_t>(table.integer(row, "elements")),
              static_cast<size_t>(table.integer(row, "steps")),
              real("lr"),
              real("beta2"),
              real("weight_decay"),
              table.text(row, "class").compare(0, 5, "AdamW") != 0,
              {}};
    c.hyper[OCTAVO_HYPER_LR] = static_cast<float>(c.lr);
    c.hyper[OCTAVO_HYPER_BETA1] = static_cast<float>(real("beta1"));
    c.hyper[OCTAVO_HYPER_BETA2] = static_cast<float>(c.beta2);
    c.hyper[OCTAVO_HYPER_EPS] = static_cast<float>(real("eps"));
    c.hyper[OCTAVO_HYPER_WEIGHT_DECAY] = static_cast<float>(c.weight_decay);
    c.hyper[OCTAVO_HYPER_GRAD_SCALE] = 1.0f;
    cases.push_back(c);
  }
  return cases;
}

/* One row of `columns` elements at `data`. */
octavo_tensor row_tensor(void *data, size_t columns, uint32_t dtype) {
  const int64_t n = static_cast<int64_t>(columns);
  return {data, 1, n, n, dtype, 0};
}

octavo_adam_step call_of(const Case &c, const octavo_adam_item *item) {
  auto call = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);
  call.items = item;
  call.count = 1;
  call.rule = OCTAVO_RULE_POW2;
  call.decay_mode = c.is_l2 ? OCTAVO_DECAY_L2 : OCTAVO_DECAY_DECOUPLED;
  return call;
}

void expect_torch(const Case &c) {
  const VectorFiles &files = VectorFiles::get();
  std::vector<float> gradients = files.array<float>(c.folder + "/grad.bin");
  const std::vector<float> params = files.array<float>(c.folder + "/param.bin");
  const std::vector<float> exp_avgs = files.array<float>(c.folder + "/exp_avg.bin");
  const std::vector<float> exp_avg_sqs = files.array<float>(c.folder + "/exp_avg_sq.bin");
  const size_t n = c.elements;
  ASSERT_EQ(params.size(), (c.steps + 1) * n);
  std::vector<float> param(params.begin(), params.begin() + static_cast<std::ptrdiff_t>(n));
  std::vector<float> exp_avg(n, 0.0f);
  std::vector<float> exp_avg_sq(n, 0.0f);
  std::vector<double> largest(n, 0.0); /* G of the README */
  int32_t step = 0;
  Kernels kernels(2);
  for (size_t k = 0; k < c.steps; ++k) {
    for (size_t i = 0; i < n; ++i) {
      const double decay = c.is_l2 ? c.weight_decay * std::abs(params[k * n + i]) : 0.0;
      largest[i] = std::fmax(largest[i], std::abs(gradients[k * n + i]) + decay);
    }
    octavo_adam_item item = {};
    item.weight = row_tensor(param.data(), n, OCTAVO_F32);
    item.gradient = row_tensor(&gradients[k * n], n, OCTAVO_F32);
    item.exp_avg = row_tensor(exp_avg.data(), n, OCTAVO_F32);
    item.exp_avg_sq = row_tensor(exp_avg_sq.data(), n, OCTAVO_F32);
    item.step = &step;
    item.hyper = c.hyper;
    ASSERT_EQ(kernels.adam_step(call_of(c, &item)), OCTAVO_OK) << kernels.host().last_text();
    for (size_t i = 0; i < n; ++i) {
      const double p = params[(k + 1) * n + i];
      const double m = exp_avgs[k * n + i];
      const double v = exp_avg_sqs[k * n + i];
      const double g = largest[i];
      ASSERT_LE(std::abs(param[i] - p), 4e-6 * (std::abs(p) + c.lr)) << k << " element " << i;
      ASSERT_LE(std::abs(exp_avg[i] - m), 2e-6 * g) << k << " element " << i;
      ASSERT_LE(std::abs(exp_avg_sq[i] - v), 4e-6 * std::abs(v) + 4e-6 * (1 - c.beta2) * g * g)
          << k << " element " << i;
    }
  }
}

/* Codes equal the recorded ones, or a neighbour where the recording marks a tie. */
template <typename Code>
void expect_codes(const std::vector<Code> &found, const std::vector<Code> &recorded,
                  const std::vector<uint8_t> &tie, size_t step, const char *name) {
  const size_t n = found.size();
  for (size_t i = 0; i < n; ++i) {
    const int expected = recorded.at(step * n + i);
    if (tie.at(step * n + i) == 1) {
      ASSERT_LE(std::abs(found[i] - expected), 1) << name << " step " << step << " element " << i;
    } else {
      ASSERT_EQ(+found[i], expected) << name << " step " << step << " element " << i;
    }
  }
}

template <typename Code>
std::vector<Code> row_of(const std::vector<Code> &all, size_t row, size_t n) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * n);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

void expect_o2(const Case &c, uint32_t rule, bool is_msamp04) {
  const VectorFiles &files = VectorFiles::get();
  const size_t n = c.elements;
  const auto bytes = [&](const char *name) {
    return files.array<uint8_t>(c.folder + "/" + name + ".bin");
  };
  const auto halves = [&](const char *name) {
    return files.array<uint16_t>(c.folder + "/" + name + ".bin");
  };
  std::vector<uint8_t> gradients = bytes("grad_codes");
  const std::vector<uint8_t> m_codes = bytes("m_codes");
  const std::vector<uint16_t> v_codes = halves("v_codes");
  const std::vector<uint16_t> w_codes = halves("w_codes");
  const Csv scales = files.csv(c.folder + "/scales.csv");
  Kernels kernels;
  for (size_t k = 0; k < c.steps; ++k) {
    /* Every step starts from the recorded state of the step before. */
    std::vector<uint8_t> m = k == 0 ? std::vector<uint8_t>(n, 0) : row_of(m_codes, k - 1, n);
    std::vector<uint16_t> v = k == 0 ? std::vector<uint16_t>(n, 0) : row_of(v_codes, k - 1, n);
    std::vector<uint16_t> w = k == 0 ? halves("w0_codes") : row_of(w_codes, k - 1, n);
    const auto inverse = [&](size_t row, const char *column) {
      return 1.0f / scales.real(row, column);
    };
    float m_inv = inverse(k, "m_scale_bits");
    float v_inv = inverse(k, "v_scale_bits");
    float w_inv = inverse(k, "w_scale_bits");
    const float g_inv = inverse(k + 1, "grad_scale_bits");
    int32_t step = static_cast<int32_t>(k);
    octavo_adam_item item = {};
    item.weight = row_tensor(w.data(), n, OCTAVO_F16);
    item.gradient = row_tensor(&gradients[k * n], n, OCTAVO_E4M3FN);
    item.exp_avg = row_tensor(m.data(), n, OCTAVO_E4M3FN);
    item.exp_avg_sq = row_tensor(v.data(), n, OCTAVO_F16);
    item.weight_scale_inv = &w_inv;
    item.gradient_scale_inv = &g_inv;
    item.exp_avg_scale_inv = &m_inv;
    item.exp_avg_sq_scale_inv = &v_inv;
    item.step = &step;
    item.hyper = c.hyper;
    octavo_adam_step call = call_of(c, &item);
    call.rule = rule;
    if (is_msamp04) call.decay_mode = OCTAVO_DECAY_L2_MSAMP04;
    ASSERT_EQ(kernels.adam_step(call), OCTAVO_OK) << kernels.host().last_text();
    EXPECT_EQ(m_inv, inverse(k + 1, "m_scale_bits")) << "step " << k;
    EXPECT_EQ(v_inv, inverse(k + 1, "v_scale_bits")) << "step " << k;
    EXPECT_EQ(w_inv, inverse(k + 1, "w_scale_bits")) << "step " << k;
    ASSERT_NO_FATAL_FAILURE(expect_codes(m, m_codes, bytes("m_tie"), k, "exp_avg"));
    ASSERT_NO_FATAL_FAILURE(expect_codes(v, v_codes, bytes("v_tie"), k, "exp_avg_sq"));
    ASSERT_NO_FATAL_FAILURE(expect_codes(w, w_codes, bytes("w_tie"), k, "weight"));
  }
}

/* Every step starts from the recorded state of the step before. */
void expect_torchao(const Case &c) {
  const VectorFiles &files = VectorFiles::get();
  const size_t n = c.elements;
  std::vector<float> gradients = files.array<float>(c.folder + "/grad.bin");
  const std::vector<float> params = files.array<float>(c.folder + "/param.bin");
  const std::vector<uint8_t> codes[] = {files.array<uint8_t>(c.folder + "/m_codes.bin"),
                                        files.array<uint8_t>(c.folder + "/v_codes.bin")};
  const std::vector<float> scales[] = {files.array<float>(c.folder + "/m_scale.bin"),
                                       files.array<float>(c.folder + "/v_scale.bin")};
  const size_t blocks = n / 256;
  ASSERT_EQ(scales[0].size(), c.steps * blocks);
  Kernels kernels(2);
  size_t neighbours = 0;
  for (size_t k = 0; k < c.steps; ++k) {
    std::vector<float> param = row_of(params, k, n);
    std::vector<uint8_t> state[2];
    std::vector<float> scale_inv[2];
    for (int i = 0; i < 2; ++i) {
      state[i] = k == 0 ? std::vector<uint8_t>(n, 0) : row_of(codes[i], k - 1, n);
      scale_inv[i] = k == 0 ? std::vector<float>(blocks, 0.0f) : row_of(scales[i], k - 1, blocks);
    }
    int32_t step = static_cast<int32_t>(k);
    octavo_adam_item item = {};
    item.weight = row_tensor(param.data(), n, OCTAVO_F32);
    item.gradient = row_tensor(&gradients[k * n], n, OCTAVO_F32);
    item.exp_avg = row_tensor(state[0].data(), n, OCTAVO_E4M3FN);
    item.exp_avg_sq = row_tensor(state[1].data(), n, OCTAVO_E4M3FN);
    item.exp_avg_scale_inv = scale_inv[0].data();
    item.exp_avg_sq_scale_inv = scale_inv[1].data();
    item.step = &step;
    item.hyper = c.hyper;
    octavo_adam_step call = call_of(c, &item);
    call.state_granularity = OCTAVO_FLAT_256;
    ASSERT_EQ(kernels.adam_step(call), OCTAVO_OK) << kernels.host().last_text();
    for (size_t i = 0; i < n; ++i) {
      const double p = params[(k + 1) * n + i];
      /* The corrections 1 - beta^t are not rounded to fp32 before they are used. */
      ASSERT_LE(std::abs(param[i] - p), 5e-5 * (std::abs(p) + c.lr)) << k << " element " << i;
      for (int s = 0; s < 2; ++s) {
        const int distance = std::abs(state[s][i] - codes[s][k * n + i]);
        ASSERT_LE(distance, 1) << "step " << k << " state " << s << " element " << i;
        neighbours += static_cast<size_t>(distance);
      }
    }
    for (size_t i = 0; i < blocks; ++i) {
      for (int s = 0; s < 2; ++s) {
        const double recorded = scales[s][k * blocks + i];
        ASSERT_LE(std::abs(scale_inv[s][i] - recorded), 4e-7 * recorded) << k << " block " << i;
      }
    }
  }
  EXPECT_LE(neighbours, c.steps * n * 2 / 1000) << "codes that are one step away";
}

TEST(GoldenOptim, plain_states_follow_torch) {
  const std::vector<Case> cases = cases_of("torch_");
  ASSERT_FALSE(cases.empty());
  for (const Case &c : cases) ASSERT_NO_FATAL_FAILURE(expect_torch(c)) << c.folder;
}

TEST(GoldenOptim, scaled_states_follow_the_derived_steps) {
  for (const char *name :
       {"derived_o2_adamw", "derived_o2_adam_l2_fixed", "derived_o2_adam_l2_msamp04"}) {
    const std::vector<Case> cases = cases_of(name);
    ASSERT_EQ(cases.size(), 1u) << name;
    const bool is_msamp04 = std::string(name).find("msamp04") != std::string::npos;
    for (const uint32_t rule : std::initializer_list<uint32_t>{OCTAVO_RULE_POW2, OCTAVO_RULE_MSAMP,
                                                               OCTAVO_RULE_MSAMP04}) {
      ASSERT_NO_FATAL_FAILURE(expect_o2(cases[0], rule, is_msamp04)) << name << " rule " << rule;
    }
  }
}

TEST(GoldenOptim, states_in_blocks_follow_torchao) {
  const std::vector<Case> cases = cases_of("torchao_");
  ASSERT_EQ(cases.size(), 2u);
  for (const Case &c : cases) ASSERT_NO_FATAL_FAILURE(expect_torchao(c)) << c.folder;
}

}  // namespace
}  // namespace octavo::test
