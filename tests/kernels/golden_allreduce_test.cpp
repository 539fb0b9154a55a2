/* Golden vectors, allreduce/: the kernels that an FP8 gradient reduction is made of.
 *
 * Common scale, cast of every rank, sum of the shards and re-cast are all bit-exact; the pre-scale
 * 1 / sqrt(W) or 1 / W is what a backend multiplies the rule's scale with.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"
#include "tests/support/draft_calls.h"

namespace octavo::test {
namespace {

float prescale(const std::string &name, int world) {
  if (name == "none") return 1.0f;
  return static_cast<float>(name == "sqrt" ? 1.0 / std::sqrt(world) : 1.0 / world);
}

TEST(GoldenAllreduce, scale_cast_and_sum) {
  const VectorFiles &files = VectorFiles::get();
  const Csv cases = files.csv("allreduce/cases.csv");
  Kernels kernels(2);
  for (size_t row = 0; row < cases.rows(); ++row) {
    const int world = cases.integer(row, "W");
    const int64_t n = cases.integer(row, "elements");
    const std::string kind = "allreduce/W" + std::to_string(world) + "_" + cases.text(row, "kind");
    const std::string name = kind + "_" + cases.text(row, "prescale");

    float amax = cases.real(row, "common_amax_bits");
    float scale = 0;
    auto rule = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
    rule.amax = &amax;
    rule.scale = &scale;
    rule.n = 1;
    rule.format_max = kMaxE4m3;
    rule.divide_by = 1;
    rule.rule = OCTAVO_RULE_POW2;
    ASSERT_EQ(kernels.table->scale_from_amax(kernels.ctx(), &rule), OCTAVO_OK);
    EXPECT_EQ(scale, cases.real(row, "ruleP_scale_bits")) << name;
    auto factor = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
    factor.out = &scale;
    factor.in = &scale;
    factor.n = 1;
    factor.factor = prescale(cases.text(row, "prescale"), world);
    ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &factor), OCTAVO_OK);
    EXPECT_EQ(scale, cases.real(row, "scale_bits")) << name;

    Matrix in(OCTAVO_F32, world, n);
    const std::vector<uint8_t> gradients = files.bytes(kind + "_grads.bin");
    ASSERT_EQ(gradients.size(), in.data().size());
    std::memcpy(in.at(0, 0), gradients.data(), gradients.size());
    Matrix codes(OCTAVO_E4M3FN, world, n);
    float scale_inv = 0;
    float found_amax = 0;
    const octavo_scale out_scale_inv = per_tensor(&scale_inv);
    auto cast = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    cast.in = in.tensor();
    cast.out = codes.tensor();
    cast.out_scale_inv = &out_scale_inv;
    cast.scale = &scale;
    cast.amax = &found_amax;
    ASSERT_EQ(kernels.quantize(cast), OCTAVO_OK);
    EXPECT_EQ(found_amax, amax) << name;
    EXPECT_EQ(scale_inv, cases.real(row, "scale_inv_bits")) << name;
    EXPECT_EQ(codes.data(), files.array<uint8_t>(name + "_rank_codes.bin")) << name;

    Matrix out(OCTAVO_E4M3FN, 1, n);
    float outside = 0;
    auto sum = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
    sum.codes = codes.tensor()->data;
    sum.out = out.tensor()->data;
    sum.count = static_cast<uint64_t>(n);
    sum.shards = static_cast<uint64_t>(world);
    sum.shard_stride = sum.count;
    sum.saturated = &outside;
    sum.dtype = OCTAVO_E4M3FN;
    ASSERT_EQ(draft_call(kernels.table, kernels.ctx(), &sum), OCTAVO_OK);
    EXPECT_EQ(out.data(), files.array<uint8_t>(name + "_out_codes.bin")) << name;
    EXPECT_EQ(outside, static_cast<float>(cases.integer(row, "sum_above_448"))) << name;
  }
}

}  // namespace
}  // namespace octavo::test
