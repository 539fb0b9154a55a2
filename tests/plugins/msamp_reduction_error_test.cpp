// The error of msamp's gradient reduction stays flat over the number of ranks.
//
// The ring that it is compared with is computed here with the same kernels, casting at each hop.
#include "octavo/kernels.h"
#include "tests/plugins/msamp_reduction.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

// Relative L2 error of the mean over ranks against fp64.
struct Errors {
  double two_shot;
  double ring;
};

// Adds codes of all ranks as a ring does: one rank's codes after the other, each partial sum cast
// back to E4M3 with the common scale.
std::vector<double> ring_mean(ReductionGroup &group, std::vector<std::vector<float>> &gradients,
                              float factor) {
  const octavo_session_desc &desc = *octavo_run_session_desc(group.run());
  float amax = 0;
  for (const auto &one : gradients)
    for (const float v : one) amax = std::fmax(amax, std::fabs(v));
  float scale = std::exp2(std::floor(std::log2(kE4m3.max / amax))) * factor;
  float scale_inv = 0;
  const size_t n = gradients[0].size();
  const auto count = static_cast<int64_t>(n);
  const octavo_scale out_scale_inv OCTAVO_SCALE(&scale_inv, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  const AlignedBytes pair(2 * n), sum(n);
  for (size_t rank = 0; rank < gradients.size(); ++rank) {
    const octavo_tensor in{gradients[rank].data(), 1, count, count, OCTAVO_F32, 0};
    octavo_tensor out{static_cast<uint8_t *>(pair.get()) + n, 1, count, count, OCTAVO_E4M3FN, 0};
    octavo_quantize q{};
    q.size = sizeof(q);
    q.kind = OCTAVO_KIND_QUANTIZE;
    q.in = &in;
    q.out = &out;
    q.out_scale_inv = &out_scale_inv;
    q.scale = &scale;
    q.rule = OCTAVO_RULE_GIVEN;
    uint64_t bytes = 0;
    EXPECT_EQ(desc.kernels->workspace_bytes(desc.kernels_ctx, &q, &bytes), OCTAVO_OK);
    const AlignedBytes workspace(bytes);
    q.workspace = workspace.get();
    EXPECT_EQ(desc.kernels->quantize(desc.kernels_ctx, &q), OCTAVO_OK);
    if (rank == 0) {
      std::memcpy(pair.get(), out.data, n);
      continue;
    }
    octavo_sum_quantized s{};
    s.size = sizeof(s);
    s.kind = OCTAVO_KIND_SUM_QUANTIZED;
    s.codes = pair.get();
    s.out = sum.get();
    s.count = n;
    s.shards = 2;
    s.shard_stride = n;
    s.dtype = OCTAVO_E4M3FN;
    EXPECT_EQ(test::draft_call(desc.kernels, desc.kernels_ctx, &s), OCTAVO_OK);
    std::memcpy(pair.get(), sum.get(), n);
  }
  std::vector<double> mean(n);
  for (size_t i = 0; i < n; ++i)
    mean[i] =
        static_cast<double>(value_of_code(static_cast<uint8_t *>(pair.get())[i]) * scale_inv) /
        static_cast<double>(gradients.size());
  return mean;
}

double relative_error(const std::vector<double> &found, const std::vector<double> &exact) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (found[i] - exact[i]) * (found[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(error / size);
}

class MsampErrorGrowth : public MsampReduction, public testing::WithParamInterface<const char *> {
 protected:
  // Gaussian gradients whose standard deviations spread over 15 powers of two.
  Errors measure(uint32_t world) {
    constexpr int64_t kRows = 64, kCols = 240;
    constexpr size_t kCount = kRows * kCols;
    open(world, kTwoShot, {{"gradient_accumulation", "fp32"}, {"prescale", GetParam()}},
         {{kRows, kCols}});
    std::vector<std::vector<float>> gradients;
    std::vector<double> exact(kCount), mean(kCount);
    for (uint32_t rank = 0; rank < world; ++rank) {
      Normal normal(1000 * world + rank);
      gradients.emplace_back(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        gradients[rank][i] = static_cast<float>(std::ldexp(normal(), -static_cast<int>(i % 15)));
        exact[i] += static_cast<double>(gradients[rank][i]) / world;
      }
      std::memcpy(group->floats(rank, "gradient"), gradients[rank].data(), kCount * sizeof(float));
    }
    EXPECT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
    for (size_t i = 0; i < kCount; ++i)
      mean[i] = static_cast<double>(group->floats(0, "gradient")[i]);
    // The ring beside "auto" takes the factor of "sqrt".
    const auto ranks = static_cast<float>(world);
    const float factor = std::string(GetParam()) == "full" ? 1 / ranks : 1 / std::sqrt(ranks);
    return {relative_error(mean, exact),
            relative_error(ring_mean(*group, gradients, factor), exact)};
  }
};

TEST_P(MsampErrorGrowth, stays_flat_where_a_ring_grows) {
  Errors first{}, last{};
  for (const uint32_t world : {2U, 4U, 8U, 16U, 64U}) {
    last = measure(world);
    if (world == 2) first = last;
    std::printf("relative L2 error, prescale %s, W = %2u: two-shot %.4f, ring %.4f\n", GetParam(),
                world, last.two_shot, last.ring);
  }
  std::printf("error(64) / error(2), prescale %s: two-shot %.3f, ring %.2f\n", GetParam(),
              last.two_shot / first.two_shot, last.ring / first.ring);
  // An element is rounded twice for any W: cast and re-cast, each by about 2^-4 / sqrt(3) of it.
  // The casts of W ranks are independent, so their part of the sum does not grow against it either.
  EXPECT_LE(last.two_shot / first.two_shot, 1.15);
  // A ring rounds every partial sum by its own size: about W / 2 roundings of the result and the
  // cast, so about sqrt((64 / 2 + 1) / 2) = 4 times the error of W = 2.
  EXPECT_GT(last.ring / first.ring, 2.0);
  EXPECT_GT(last.ring, last.two_shot);
}

INSTANTIATE_TEST_SUITE_P(Prescale, MsampErrorGrowth, testing::Values("auto", "full", "sqrt"),
                         [](const auto &one) { return std::string(one.param); });

}  // namespace
}  // namespace octavo::test
