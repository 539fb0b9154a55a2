/* adam_step of device code against the CPU's kernels, for every layout of states. */
#include "octavo/draft/one_pass.h"
#include "octavo/draft/optimizer.h"
#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

struct Layout {
  uint32_t weight, gradient, exp_avg, exp_avg_sq;
  bool weight_scaled, gradient_scaled, exp_avg_scaled, exp_avg_sq_scaled;
  uint32_t granularity;
};

constexpr Layout kLayouts[] = {
    {OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, false, false, false, false, OCTAVO_PER_TENSOR},
    {OCTAVO_BF16, OCTAVO_BF16, OCTAVO_F32, OCTAVO_BF16, false, false, false, false,
     OCTAVO_PER_TENSOR},
    {OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F16, true, true, true, true,
     OCTAVO_PER_TENSOR},
    {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_E5M2, true, true, true, true,
     OCTAVO_PER_TENSOR},
    {OCTAVO_F32, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_E4M3FN, false, false, true, true,
     OCTAVO_FLAT_256},
    {OCTAVO_F32, OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_E4M3FN, false, false, true, true,
     OCTAVO_EXPANDED_128},
    {OCTAVO_F16, OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_F32, true, false, true, false, OCTAVO_FLAT_256},
};

struct Item {
  Twins::Tensor weight, gradient, exp_avg, exp_avg_sq;
  size_t scales[4];
  size_t step, hyper, amax;
};

/* How the elements of an item are in memory. */
struct Place {
  int64_t gap = 0;     /* elements behind each row */
  int64_t skipped = 0; /* elements before the first one */
};

Item make_item(Twins &twins, const Layout &l, int64_t rows, int64_t cols, Place place) {
  const auto tensor = [&](uint32_t dtype, Values values) {
    return twins.tensor(rows, cols, dtype, values, place.gap, place.skipped);
  };
  const auto scale = [&](int64_t floats) {
    std::vector<float> values;
    for (int64_t i = 0; i < floats; ++i) values.push_back(i % 3 == 0 ? 0.01f : 1.0f);
    return twins.floats(values);
  };
  const int64_t blocks = l.granularity == OCTAVO_FLAT_256       ? divide_up(rows * cols, 256)
                         : l.granularity == OCTAVO_EXPANDED_128 ? divide_up(rows * cols, 128) * 3
                                                                : 1;
  std::vector<float> hyper(OCTAVO_HYPER_COUNT, 0.0f);
  hyper[OCTAVO_HYPER_LR] = 1e-3f;
  hyper[OCTAVO_HYPER_BETA1] = 0.9f;
  hyper[OCTAVO_HYPER_BETA2] = 0.999f;
  hyper[OCTAVO_HYPER_EPS] = 1e-8f;
  hyper[OCTAVO_HYPER_WEIGHT_DECAY] = 0.1f;
  hyper[OCTAVO_HYPER_GRAD_SCALE] = 0.5f;
  return {tensor(l.weight, Values::kNormal),
          tensor(l.gradient, Values::kNormal),
          tensor(l.exp_avg, Values::kNormal),
          tensor(l.exp_avg_sq, Values::kZero),
          {scale(1), scale(1), scale(blocks), scale(blocks)},
          twins.bytes(4, 0),
          twins.floats(hyper),
          twins.floats(std::vector<float>(OCTAVO_AMAX_COUNT, 0.0f))};
}

struct Case {
  uint32_t decay = OCTAVO_DECAY_DECOUPLED;
  uint32_t flags = 0;
  float skip = 0.0f;
  Place place;
  uint32_t roundings[3] = {}; /* of weight, exp_avg and exp_avg_sq; not 0: a draft call */
  bool is_one_pass = false;
};

void run(Devices &devices, const Layout &l, const std::vector<Item> &all, Twins &twins,
         const Case &how) {
  const size_t skipped = twins.floats({how.skip});
  for (int step = 0; step < 3; ++step) {
    for (int side = 0; side < 2; ++side) {
      std::vector<octavo_adam_item> list;
      for (const Item &item : all) {
        const auto scale = [&](int which, bool exists) {
          return exists ? twins.floats_at(side, item.scales[which]) : nullptr;
        };
        list.push_back({twins.at(side, item.weight), twins.at(side, item.gradient),
                        twins.at(side, item.exp_avg), twins.at(side, item.exp_avg_sq),
                        scale(0, l.weight_scaled), scale(1, l.gradient_scaled),
                        scale(2, l.exp_avg_scaled), scale(3, l.exp_avg_sq_scaled),
                        static_cast<int32_t *>(twins.data(side, item.step)),
                        twins.floats_at(side, item.hyper)});
      }
      octavo_adam_step c = {};
      c.size = sizeof(c);
      c.kind = OCTAVO_KIND_ADAM_STEP;
      c.items = list.data();
      c.count = list.size();
      c.skip = twins.floats_at(side, skipped);
      c.rule = OCTAVO_RULE_MSAMP;
      c.decay_mode = how.decay;
      c.state_granularity = l.granularity;
      c.flags = how.flags;
      Workspace workspace(side,
                          how.is_one_pass ? cuda::one_pass_workspace(c) : cuda::adam_workspace(c));
      if (!how.is_one_pass && how.roundings[0] + how.roundings[1] + how.roundings[2] == 0) {
        c.workspace = workspace.data();
        ASSERT_EQ(devices.run(side, &octavo_adam_kernels::adam_step, c), OCTAVO_OK)
            << devices.last_text();
        continue;
      }
      std::vector<uint64_t> keys;
      for (size_t i = 0; i < all.size(); ++i) keys.push_back(0x9E3779B97F4A7C15 * (i + 1));
      octavo_adam_rounded rounded = {};
      rounded.size = sizeof(rounded);
      rounded.kind = OCTAVO_KIND_ADAM_ROUNDED;
      rounded.step = &c;
      rounded.workspace = workspace.data();
      rounded.keys = keys.data();
      rounded.weight_rounding = how.roundings[0];
      rounded.exp_avg_rounding = how.roundings[1];
      rounded.exp_avg_sq_rounding = how.roundings[2];
      if (how.is_one_pass) {
        std::vector<float *> amaxes;
        for (const Item &item : all) amaxes.push_back(twins.floats_at(side, item.amax));
        octavo_adam_one_pass one_pass = {sizeof(one_pass), OCTAVO_KIND_ADAM_ONE_PASS,
                                         nullptr,          &rounded,
                                         workspace.data(), amaxes.data()};
        ASSERT_EQ(devices.run(side, &octavo_one_pass_kernels::adam_one_pass, one_pass), OCTAVO_OK)
            << devices.last_text();
        continue;
      }
      ASSERT_EQ(devices.run(side, &octavo_rounding_kernels::adam_rounded, rounded), OCTAVO_OK)
          << devices.last_text();
    }
    twins.expect_equal("step " + std::to_string(step) + " layout of weight " +
                       std::to_string(l.weight) + " granularity " + std::to_string(l.granularity) +
                       " decay " + std::to_string(how.decay));
  }
}

/* Packs that device code takes by words, next to items with a tail; with numbers of each kind in
 * the moments. */
void run_words(Devices &devices, const Case &how, Values values) {
  const Layout &l = kLayouts[2];
  Twins twins(l.weight + static_cast<uint64_t>(values));
  std::vector<Item> all;
  for (const auto &[rows, cols] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {64, 64}, {3, 8}, {5, 7}, {70, 136}, {1, 8}, {2, 5}, {33, 40}}) {
    all.push_back(make_item(twins, l, rows, cols, how.place));
    Item &item = all.back();
    item.exp_avg = twins.tensor(rows, cols, l.exp_avg, values, 0, how.place.skipped);
    item.exp_avg_sq = twins.tensor(rows, cols, l.exp_avg_sq, values, 0, how.place.skipped);
    for (const Twins::Tensor *t : {&item.weight, &item.exp_avg, &item.exp_avg_sq})
      twins.allow_any_nan(*t);
  }
  run(devices, l, all, twins, how);
}

/* Small items, and a larger one among them. */
void run(Devices &devices, const Layout &l, int items, const Case &how) {
  Twins twins(l.weight + how.decay + how.flags);
  std::vector<Item> all;
  for (int i = 0; i < items; ++i) {
    const bool is_large = i == 1;
    all.push_back(
        make_item(twins, l, is_large ? 70 : 1 + i % 3, is_large ? 131 : 5 + i % 40, how.place));
  }
  run(devices, l, all, twins, how);
}

TEST(CudaAdam, every_layout_as_the_cpu) {
  Devices devices;
  for (const Layout &l : kLayouts) {
    for (const uint32_t decay : std::initializer_list<uint32_t>{
             OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2, OCTAVO_DECAY_L2_MSAMP04}) {
      if (decay == OCTAVO_DECAY_L2_MSAMP04 && l.granularity != OCTAVO_PER_TENSOR) continue;
      const int64_t gap = l.granularity == OCTAVO_PER_TENSOR ? 2 : 0;
      run(devices, l, 3, {decay, 0, 0.0f, {gap, 0}});
      run(devices, l, 2, {decay, OCTAVO_ADAM_KEEP_POSITIVE, 0.0f, {}});
    }
  }
}

TEST(CudaAdam, every_rounding_as_the_cpu) {
  Devices devices;
  constexpr uint32_t kRandom = OCTAVO_ROUND_STOCHASTIC;
  for (const Layout &l : kLayouts) {
    const int64_t gap = l.granularity == OCTAVO_PER_TENSOR ? 2 : 0;
    for (const uint32_t flags : {0, 1}) {
      run(devices, l, 3,
          {OCTAVO_DECAY_DECOUPLED, flags, 0.0f, {gap, 0}, {0, OCTAVO_ROUND_SHRINKING, 0}});
      run(devices, l, 3, {OCTAVO_DECAY_L2, flags, 0.0f, {gap, 0}, {kRandom, kRandom, kRandom}});
    }
  }
}

TEST(CudaAdam, one_pass_as_the_cpu) {
  Devices devices;
  constexpr uint32_t kRandom = OCTAVO_ROUND_STOCHASTIC;
  for (const Layout &l : kLayouts) {
    for (const uint32_t decay : std::initializer_list<uint32_t>{
             OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2, OCTAVO_DECAY_L2_MSAMP04}) {
      if (decay == OCTAVO_DECAY_L2_MSAMP04 && l.granularity != OCTAVO_PER_TENSOR) continue;
      const int64_t gap = l.granularity == OCTAVO_PER_TENSOR ? 2 : 0;
      run(devices, l, 3, {decay, 0, 0.0f, {gap, 0}, {}, true});
      run(devices, l, 40, {decay, 1, 0.0f, {}, {0, OCTAVO_ROUND_SHRINKING, 0}, true});
      run(devices, l, 2, {decay, 1, 0.0f, {}, {kRandom, kRandom, kRandom}, true});
      run(devices, l, 2, {decay, 1, 1.0f, {}, {}, true});
    }
  }
}

TEST(CudaAdam, words_as_the_cpu) {
  Devices devices;
  constexpr uint32_t kDecoupled = OCTAVO_DECAY_DECOUPLED, kShrinks = OCTAVO_ROUND_SHRINKING;
  for (const Values values : {Values::kNormal, Values::kSpecial, Values::kZero, Values::kTiny}) {
    for (const bool is_one_pass : {false, true}) {
      for (const uint32_t flags : {0u, uint32_t{OCTAVO_ADAM_KEEP_POSITIVE}}) {
        run_words(devices, {kDecoupled, flags, 0.0f, {}, {}, is_one_pass}, values);
        run_words(devices, {kDecoupled, flags, 0.0f, {}, {0, kShrinks, 0}, is_one_pass}, values);
      }
      run_words(devices, {kDecoupled, 0, 0.0f, {0, 1}, {0, kShrinks, 0}, is_one_pass}, values);
      run_words(devices, {OCTAVO_DECAY_L2, 0, 0.0f, {}, {0, kShrinks, 0}, is_one_pass}, values);
    }
  }
}

/* More chunks than blocks, so that a block has several of an item and of its neighbours. */
TEST(CudaAdam, items_larger_than_a_grid) {
  Devices devices(1);
  for (const Layout &l : kLayouts) {
    for (const Place place : {Place{0, 0}, Place{0, 1}, Place{1, 0}}) {
      if (place.gap != 0 && l.granularity != OCTAVO_PER_TENSOR) continue;
      Twins twins(l.gradient);
      const std::vector<Item> all = {
          make_item(twins, l, 3, 1, place), make_item(twins, l, 200, 211, place),
          make_item(twins, l, 0, 7, place), make_item(twins, l, 1, 9001, place),
          make_item(twins, l, 64, 640, place)};
      for (const bool is_one_pass : {false, place.gap == 0 && place.skipped == 0})
        run(devices, l, all, twins,
            {OCTAVO_DECAY_L2, OCTAVO_ADAM_KEEP_POSITIVE, 0.0f, place, {}, is_one_pass});
    }
  }
}

/* A scale of more parts than a warp has lanes; the largest values are in the last one. */
TEST(CudaAdam, scales_of_many_parts_as_the_cpu) {
  std::vector<uint8_t> codes(size_t{34} * 4096);
  codes.back() = 0x70;
  for (uint64_t round = 0; round < 4; ++round) {
    Devices devices(32);
    Twins twins(round);
    std::vector<Item> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(make_item(twins, kLayouts[3], 1, static_cast<int64_t>(codes.size()), {}));
      for (Twins::Tensor *t : {&all.back().weight, &all.back().gradient, &all.back().exp_avg})
        t->buffer = twins.bytes(codes);
    }
    for (const bool is_one_pass : {true, false})
      run(devices, kLayouts[3], all, twins, {OCTAVO_DECAY_DECOUPLED, 0, 0.0f, {}, {}, is_one_pass});
  }
}

TEST(CudaAdam, lists_longer_than_a_launch) {
  Devices devices;
  run(devices, kLayouts[3], 60, {});
#ifndef OCTAVO_TESTS_ON_GPU
  EXPECT_EQ(cuda_on_cpu::counters().launches, 3 * 2 * 3);
  EXPECT_EQ(cuda_on_cpu::counters().synchronisations, 0);
#endif
  reset_executor();
  run(devices, kLayouts[0], 60, {});
#ifndef OCTAVO_TESTS_ON_GPU
  EXPECT_EQ(cuda_on_cpu::counters().launches, 3 * 2 * 2);
#endif
}

TEST(CudaAdam, skip_is_read_on_the_device) {
  Devices devices;
  for (const Layout &l : {kLayouts[0], kLayouts[3]})
    run(devices, l, 3, {OCTAVO_DECAY_DECOUPLED, 0, 1.0f, {}});
}

}  // namespace
}  // namespace octavo::test
