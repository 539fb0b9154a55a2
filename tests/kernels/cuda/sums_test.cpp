/* sum_rows, sum_of_squares and sum_quantized of device code against the CPU's kernels, and what
 * they touch: their arguments and nothing else.
 */
#include <thread>

#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

/* Whole packs and others; in one block, and in several that leave parts in the workspace, in more
 * turns than there are blocks. */
TEST(CudaSums, sums_of_rows_and_squares_as_the_cpu) {
  Devices devices(1);
  uint64_t seed = 1;
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const int64_t rows : {0, 1, 63, 600}) {
      for (const int64_t cols : {1, 17, 512}) {
        Twins twins(seed++);
        const auto in =
            twins.tensor(rows, cols, dtype, seed % 4 == 0 ? Values::kSpecial : Values::kNormal,
                         seed % 2 == 0 ? 3 : 0, seed % 5 == 0 ? 1 : 0);
        const Twins::Scales scales = {twins.floats({0.3f}),
                                      OCTAVO_SCALE(nullptr, 1, OCTAVO_F32, OCTAVO_PER_TENSOR)};
        const size_t sums = twins.floats(std::vector<float>(static_cast<size_t>(cols), 0.5f));
        const size_t square = twins.floats({0.125f});
        for (int side = 0; side < 2; ++side) {
          const octavo_tensor from = twins.at(side, in);
          const octavo_scale s = twins.at(side, scales);
          auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
          c.in = &from;
          c.in_scale_inv = seed % 3 == 0 ? &s : nullptr;
          c.out = twins.data(side, sums);
          c.accumulate = seed % 2;
          Workspace workspace(side, cuda::sum_workspace(c));
          c.workspace = seed % 3 == 0 ? nullptr : workspace.data();
          ASSERT_EQ(devices.run(side, &octavo_kernels::sum_rows, c), OCTAVO_OK);
          c.out = twins.data(side, square);
          ASSERT_EQ(devices.run(side, &octavo_adam_kernels::sum_of_squares, c), OCTAVO_OK);
        }
        twins.expect_equal(std::to_string(rows) + " rows of " + std::to_string(cols));
      }
    }
  }
}

TEST(CudaSums, sums_of_codes_as_the_cpu) {
  Devices devices;
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const uint64_t shards : {0, 1, 2, 5}) {
      Twins twins(shards + dtype);
      /* Several blocks; a stride that allows packs, and one that does not. */
      const uint64_t stride = shards == 5 ? 9301 : 9312;
      const auto codes = twins.tensor(6, static_cast<int64_t>(stride), dtype, Values::kSpecial);
      const size_t out = twins.bytes(9300, 0xAA);
      const size_t counts = twins.floats({1.0f, 2.0f});
      for (int side = 0; side < 2; ++side) {
        auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
        c.codes = twins.data(side, codes.buffer);
        c.out = twins.data(side, out);
        c.count = 9299;
        c.shards = shards;
        c.shard_stride = stride;
        c.dtype = dtype;
        c.count_as = 1.0f / 3.0f;
        c.saturated = twins.floats_at(side, counts);
        c.added = twins.floats_at(side, counts) + 1;
        Workspace workspace(side, cuda::sum_quantized_workspace(cuda::context_of(devices.cuda())));
        c.workspace = shards == 2 ? nullptr : workspace.data();
        ASSERT_EQ(devices.run(side, &octavo_msamp_kernels::sum_quantized, c), OCTAVO_OK)
            << devices.last_text();
      }
      twins.expect_equal(std::to_string(shards) + " shards");
    }
  }
}

/* 1 + 2^-24 is in the middle of two floats: whether the tiny squares raise it depends on which of
 * them are added first. */
TEST(CudaSums, order_of_squares_as_the_cpu) {
  Devices devices;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Twins twins(1);
    std::vector<float> values(512);
    for (int i = 0; i < 3 + round % 4; ++i) values[random() % values.size()] = 0x1p-27f;
    values[random() % values.size()] = 0x1p-12f;
    values[random() % values.size()] = 1.0f;
    const size_t in = twins.floats(values);
    const size_t square = twins.floats({0.0f});
    for (int side = 0; side < 2; ++side) {
      const octavo_tensor from = {twins.data(side, in), 2, 256, 256, OCTAVO_F32, 0};
      auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
      c.in = &from;
      c.out = twins.data(side, square);
      ASSERT_EQ(devices.run(side, &octavo_adam_kernels::sum_of_squares, c), OCTAVO_OK);
    }
    twins.expect_equal("round " + std::to_string(round));
  }
}

/* One block of threads adds what its warps have left in shared memory. */
TEST(CudaSums, squares_of_one_block_as_the_cpu) {
  for (uint64_t round = 0; round < 24; ++round) {
    Devices devices;
    Twins twins(round);
    const auto in = twins.tensor(64, 1024, OCTAVO_E4M3FN, Values::kNormal);
    const size_t square = twins.floats({0.0f});
    for (int side = 0; side < 2; ++side) {
      const octavo_tensor from = twins.at(side, in);
      auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
      c.in = &from;
      c.out = twins.data(side, square);
      ASSERT_EQ(devices.run(side, &octavo_adam_kernels::sum_of_squares, c), OCTAVO_OK);
    }
    twins.expect_equal("round " + std::to_string(round));
  }
}

/* A plan makes a formula of M of the sizes for 256 and 512 rows. */
TEST(CudaSums, workspace_holds_all_parts_and_is_affine) {
  Devices devices;
  const auto bytes = [&](int64_t rows, int64_t cols) {
    const octavo_tensor in = {nullptr, rows, cols, cols, OCTAVO_BF16, 0};
    auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
    c.in = &in;
    uint64_t found = 0;
    EXPECT_EQ(cuda::workspace_bytes(devices.cuda(), &c, &found), OCTAVO_OK);
    return static_cast<int64_t>(found);
  };
  for (const int64_t cols : {1, 31, 80, 100, 4096}) {
    const auto padded = [&](int64_t rows) { return (bytes(rows, cols) + 255) / 256 * 256; };
    const int64_t slope = (padded(512) - padded(256)) / 256;
    for (const int64_t rows : {256, 512, 1280, 65536}) {
      EXPECT_EQ(padded(rows), padded(256) + slope * (rows - 256)) << rows << " x " << cols;
    }
    for (const int64_t rows : {1, 255, 257, 5000}) {
      EXPECT_GE(bytes(rows, cols), divide_up(rows, 256) * cols * 8) << rows << " x " << cols;
      EXPECT_GE(bytes(rows, cols), divide_up(rows * cols, 4096) * 8) << rows << " x " << cols;
    }
  }
}

#ifndef OCTAVO_TESTS_ON_GPU
TEST(CudaSums, an_open_device_has_no_memory_of_its_own) {
  Devices devices;
  EXPECT_EQ(cuda_on_cpu::counters().allocations, 0);
}

/* As with streams of each thread, or the one of all, which several threads name alike: calls that
 * run at once, each with its own workspace. */
TEST(CudaSums, calls_at_once_on_one_handle_do_not_meet) {
  Devices devices(1);
  constexpr int kThreads = 2, kCalls = 20;
  constexpr int64_t kRows = 40, kCols = 4096; /* more than one block takes alone */
  std::vector<float> values[kThreads];
  std::vector<float> found[kThreads];
  const auto run = [&](int thread) {
    const octavo_tensor in = {values[thread].data(), kRows, kCols, kCols, OCTAVO_F32, 0};
    auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
    c.in = &in;
    c.stream = reinterpret_cast<void *>(2); /* cudaStreamPerThread */
    std::vector<double> workspace(cuda::sum_workspace(c) / sizeof(double) + 1);
    c.workspace = workspace.data();
    for (float &out : found[thread]) {
      c.out = &out;
      if (cuda::sum_of_squares(devices.cuda(), &c) != OCTAVO_OK) return;
    }
  };
  for (int i = 0; i < kThreads; ++i) {
    values[i].assign(kRows * kCols, static_cast<float>(1 + i));
    found[i].assign(kCalls, 0.0f);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(run, i);
  for (std::thread &each : threads) each.join();
  for (int i = 0; i < kThreads; ++i) {
    const auto expected = static_cast<float>((1 + i) * (1 + i) * kRows * kCols);
    EXPECT_EQ(found[i], std::vector<float>(kCalls, expected)) << "thread " << i;
  }
}
#endif

}  // namespace
}  // namespace octavo::test
