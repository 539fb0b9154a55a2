// The gradient reduction of msamp: golden numbers, equal bits on every path, the quirk of 0.4.0.
//
// The bounds of the golden vectors come with them; everything else compares bits.
#include "tests/plugins/msamp_reduction.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

TEST_F(MsampReduction, golden_vectors) {
  const VectorFiles &files = VectorFiles::get();
  const Csv cases = files.csv("allreduce/cases.csv");
  ASSERT_GT(cases.rows(), 0U);
  std::string opened;
  for (const int one_shot : {kTwoShot, kOneShot}) {
    for (size_t row = 0; row < cases.rows(); ++row) {
      const int world = cases.integer(row, "W");
      const std::string prescale = cases.text(row, "prescale");
      const std::string kind =
          "allreduce/W" + std::to_string(world) + "_" + cases.text(row, "kind");
      const std::string where =
          kind + "_" + prescale + ", one_shot_bytes " + std::to_string(one_shot);
      const auto n = static_cast<size_t>(cases.integer(row, "elements"));
      open(static_cast<uint32_t>(world), one_shot,
           {{"gradient_accumulation", "fp32"}, {"prescale", prescale.c_str()}},
           {{1, static_cast<int64_t>(n)}});
      const std::vector<uint32_t> bits = files.array<uint32_t>(kind + "_grads.bin");
      ASSERT_EQ(bits.size(), n * static_cast<size_t>(world));
      std::vector<double> exact(n);
      for (int rank = 0; rank < world; ++rank) {
        float *slot = group->floats(static_cast<uint32_t>(rank), "gradient");
        std::memcpy(slot, &bits[static_cast<size_t>(rank) * n], n * sizeof(float));
        for (size_t i = 0; i < n; ++i) exact[i] += static_cast<double>(slot[i]) / world;
      }
      ASSERT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
      const auto codes = files.array<uint8_t>(kind + "_" + prescale + "_out_codes.bin");
      const auto bound = files.array<double>(kind + "_" + prescale + "_bound.bin");
      // W is a power of two in these cases, so the division by W is exact.
      const float scale_inv = cases.real(row, "scale_inv_bits") / static_cast<float>(world);
      float outside = 0;
      for (int rank = 0; rank < world; ++rank) {
        const float *mean = group->floats(static_cast<uint32_t>(rank), "gradient");
        for (size_t i = 0; i < n; ++i) {
          const float expected = value_of_code(codes[i]) * scale_inv;
          ASSERT_EQ(std::bit_cast<uint32_t>(mean[i]), std::bit_cast<uint32_t>(expected))
              << where << ", rank " << rank << ", element " << i << ": found " << mean[i]
              << ", expected " << expected;
          ASSERT_LE(std::fabs(static_cast<double>(mean[i]) - exact[i]), bound[i])
              << where << ", rank " << rank << ", element " << i;
        }
        outside += *group->floats(static_cast<uint32_t>(rank), "reduce/saturated");
      }
      // Sums of W counts of 1 / W, or of one rank's 1: both are exact in fp32.
      EXPECT_EQ(outside, static_cast<float>(cases.integer(row, "sum_above_448"))) << where;
    }
  }
}

// What every reduction of FP8 gradients must give in whatever way it is carried out.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{7, 13}, {1, 5}, {33, 16}, {24, 40}};

Matrix gradient_of(uint32_t rank, uint32_t parameter) {
  const auto &[rows, cols] = kShapes[parameter];
  return some_matrix(rows, cols, 100 * rank + parameter, 0.75f * static_cast<float>(rank + 1));
}

TEST_F(MsampReduction, one_shot_and_two_shot_give_equal_bits_on_every_rank) {
  for (const uint32_t world : {2U, 3U, 5U, 8U}) {
    for (const char *accumulation : {"fp8", "fp32"}) {
      std::vector<std::vector<uint8_t>> results;
      for (const int one_shot : {kTwoShot, kOneShot, kTwoShot}) {  // the first again at the end
        open(world, one_shot, {{"gradient_accumulation", accumulation}}, kShapes);
        for (uint32_t rank = 0; rank < world; ++rank)
          for (const uint32_t p : group->all()) group->write(rank, p, gradient_of(rank, p));
        ASSERT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
        const auto bytes = all_bytes();
        results.insert(results.end(), bytes.begin(), bytes.end());
      }
      for (const auto &bytes : results)
        EXPECT_EQ(bytes, results[0]) << "W = " << world << ", " << accumulation;
    }
  }
}

TEST_F(MsampReduction, buckets_in_flight_do_not_touch) {
  const std::vector<uint32_t> first = {0, 3}, second = {2, 1};
  std::vector<std::vector<uint8_t>> results[2];
  for (const bool interleaved : {false, true}) {
    open(3, kTwoShot, {{"prescale", "sqrt"}}, kShapes);
    for (uint32_t rank = 0; rank < 3; ++rank)
      for (const uint32_t p : group->all()) group->write(rank, p, gradient_of(rank, p));
    if (interleaved) {
      ReductionGroup::Bucket a, b;
      ASSERT_EQ(group->start(first, a), OCTAVO_OK);
      ASSERT_EQ(group->start(second, b), OCTAVO_OK);
      for (uint32_t stage = 0; stage < a.stages.size(); ++stage) {
        ASSERT_EQ(group->run_stage(a, stage), OCTAVO_OK);
        ASSERT_EQ(group->run_stage(b, stage), OCTAVO_OK);
        group->communicate(b, stage);
        group->communicate(a, stage);
      }
    } else {
      ASSERT_EQ(group->by_hand(first), OCTAVO_OK);
      ASSERT_EQ(group->by_hand(second), OCTAVO_OK);
    }
    results[interleaved ? 1 : 0] = all_bytes();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(MsampReduction, one_rank_and_an_empty_bucket_change_nothing) {
  for (const uint32_t world : {1U, 2U}) {
    open(world, kTwoShot, {}, kShapes);
    for (uint32_t rank = 0; rank < world; ++rank)
      for (const uint32_t p : group->all()) group->write(rank, p, gradient_of(rank, p));
    const auto before = all_bytes();
    ASSERT_EQ(world == 1 ? group->by_hand() : group->by_hand({}), OCTAVO_OK);
    EXPECT_EQ(all_bytes(), before);
    EXPECT_EQ(*group->floats(0, "reduce/added"), 0.0f);
  }
}

// MS-AMP 0.4.0 keeps the pre-scaled scale, and pre-scales it again where the amax gives none.
TEST_F(MsampReduction, kept_scale_of_an_empty_gradient_compounds_in_msamp04_only) {
  for (const uint32_t world : {2U, 4U}) {
    const float factor = 1 / std::sqrt(static_cast<float>(world));
    const auto ranks = static_cast<float>(world);
    open(world, kTwoShot, {{"profile", "msamp04"}, {"prescale", "sqrt"}}, {{4, 8}});
    float kept = 1;
    for (int step = 0; step < 5; ++step) {
      ASSERT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
      kept *= factor;
      for (uint32_t rank = 0; rank < world; ++rank) {
        EXPECT_EQ(*group->floats(rank, "gradient/reduce_scale"), kept) << step;
        EXPECT_EQ(*group->floats(rank, "gradient/scale_inv"), 1 / kept * (1 / ranks)) << step;
      }
    }
    EXPECT_LT(kept, 0.18f);  // 2^-2.5 with two ranks
    const Matrix ones(4, 8, 1.0f);
    for (uint32_t rank = 0; rank < world; ++rank) group->write(rank, 0, ones);
    ASSERT_EQ(group->by_hand(), OCTAVO_OK);
    EXPECT_EQ(*group->floats(0, "gradient/reduce_scale"), 256 * factor);  // an amax starts it anew

    open(world, kTwoShot, {{"profile", "msamp-fixed"}, {"prescale", "sqrt"}}, {{4, 8}});
    EXPECT_EQ(group->slot("gradient/reduce_scale"), nullptr);
    for (int step = 0; step < 5; ++step) {
      ASSERT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
      EXPECT_EQ(*group->floats(0, "gradient/scale_inv"), 1 / factor * (1 / ranks)) << step;
    }
  }
}

}  // namespace
}  // namespace octavo::test
