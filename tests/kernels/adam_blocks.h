/* tests/kernels/adam_blocks.h: an Adam step whose two moments are in blocks.
 *
 * States begin as zero bytes, scales included, as slots do.
 */
#ifndef OCTAVO_TESTS_KERNELS_ADAM_BLOCKS_H
#define OCTAVO_TESTS_KERNELS_ADAM_BLOCKS_H

#include "octavo/draft/optimizer.h"
#include "tests/kernels/adam_oracle.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/state_oracle.h"

namespace octavo::test {

inline constexpr AdamHyper kHyper = {1e-3, 0.9, 0.999, 1e-8, 0.1, 0.5, false};

/* A plain f32 weight and gradient with both moments in blocks; states begin as zero bytes. */
struct Blocks {
  Matrix weight;
  Matrix gradient;
  Matrix exp_avg;
  Matrix exp_avg_sq;
  std::vector<float> exp_avg_inv;
  std::vector<float> exp_avg_sq_inv;
  int32_t step = 0;
  float hyper[OCTAVO_HYPER_COUNT] = {};
  octavo_adam_item item = {};
  octavo_adam_step c = make_call<octavo_adam_step>(OCTAVO_KIND_ADAM_STEP);

  Blocks(uint32_t g, int64_t rows, int64_t cols, const AdamHyper &h)
      : weight(OCTAVO_F32, rows, cols),
        gradient(OCTAVO_F32, rows, cols),
        exp_avg(OCTAVO_E4M3FN, rows, cols),
        exp_avg_sq(OCTAVO_E4M3FN, rows, cols),
        exp_avg_inv(static_cast<size_t>(scale_count(g, rows * cols)), 0.0f),
        exp_avg_sq_inv(exp_avg_inv) {
    weight.fill(1);
    gradient.fill(2);
    std::memset(exp_avg.at(0, 0), 0, exp_avg.data().size());
    std::memset(exp_avg_sq.at(0, 0), 0, exp_avg_sq.data().size());
    const double values[] = {h.lr, h.beta1, h.beta2, h.eps, h.weight_decay, h.grad_scale};
    for (int i = 0; i < 6; ++i) hyper[i] = static_cast<float>(values[i]);
    item.weight = *weight.tensor();
    item.gradient = *gradient.tensor();
    item.exp_avg = *exp_avg.tensor();
    item.exp_avg_sq = *exp_avg_sq.tensor();
    item.exp_avg_scale_inv = exp_avg_inv.data();
    item.exp_avg_sq_scale_inv = exp_avg_sq_inv.data();
    item.step = &step;
    item.hyper = hyper;
    c.items = &item;
    c.count = 1;
    c.state_granularity = g;
    c.decay_mode = h.is_l2 ? OCTAVO_DECAY_L2 : OCTAVO_DECAY_DECOUPLED;
    c.rule = 99; /* not looked at: nothing has one scale per tensor */
  }
  Blocks(const Blocks &) = delete;
  Blocks &operator=(const Blocks &) = delete;

  float at(const Matrix &m, size_t i) const {
    const int64_t index = static_cast<int64_t>(i);
    return m.get(index / m.cols(), index % m.cols());
  }
};

}  // namespace octavo::test

#endif
