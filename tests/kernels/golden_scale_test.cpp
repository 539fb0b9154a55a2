/* Golden vectors, scale/: every scale rule against the library that it is named after.
 *
 * Rows where a library rounds a logarithm wrongly accept the exact power of two as well; nothing
 * else is compared loosely.
 */
#include <gtest/gtest.h>

#include <string>

#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"

namespace octavo::test {
namespace {

Csv scale_table(const std::string &name) {
  return VectorFiles::get().csv("scale/" + name + ".csv");
}

float format_max(const Csv &table, size_t row) {
  const std::string &name = table.text(row, "fmt");
  if (name == "fp16") return kMaxF16;
  return name == "e4m3" ? kMaxE4m3 : kMaxE5m2;
}

std::string place(const Csv &table, size_t row) {
  return "row " + std::to_string(row) + ", amax " + table.text(row, "amax_bits");
}

/* scale_from_amax of one amax, as {scale, scale_inv}. */
std::pair<float, float> from_table(Kernels *kernels, uint32_t rule, float amax, float m,
                                   const float *kept = nullptr) {
  float scale = -1;
  float scale_inv = -1;
  auto c = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
  c.amax = &amax;
  c.scale = &scale;
  c.scale_inv = &scale_inv;
  c.n = 1;
  c.format_max = m;
  c.divide_by = 1;
  c.rule = rule;
  c.kept = kept;
  EXPECT_EQ(kernels->table->scale_from_amax(kernels->ctx(), &c), OCTAVO_OK);
  return {scale, scale_inv};
}

TEST(GoldenScale, te_delayed) {
  Kernels kernels;
  const Csv table = scale_table("te_delayed_unfused");
  for (size_t row = 0; row < table.rows(); ++row) {
    const float amax = table.real(row, "amax_bits");
    const float old_scale = table.real(row, "old_scale_bits");
    const float m = format_max(table, row);
    const int margin = table.integer(row, "margin");
    const float unfused = scale_te_delayed_unfused(amax, old_scale, m, margin);
    const float fused = scale_te_delayed_fused(amax, old_scale, m, margin);
    EXPECT_TRUE(same_value(unfused, table.real(row, "scale_bits"))) << place(table, row);
    EXPECT_TRUE(same_value(1.0f / unfused, table.real(row, "scale_inv_bits"))) << place(table, row);
    EXPECT_TRUE(same_value(fused, table.real(row, "ieee_quotient_bits"))) << place(table, row);
    if (margin != 0 || old_scale != 1.0f) continue; /* the table's own rule keeps 1 */
    EXPECT_TRUE(same_value(from_table(&kernels, OCTAVO_RULE_RECIPROCAL, amax, m).first, unfused))
        << place(table, row);
    EXPECT_TRUE(same_value(from_table(&kernels, OCTAVO_RULE_QUOTIENT, amax, m).first, fused))
        << place(table, row);
  }
}

TEST(GoldenScale, te_current_and_block) {
  Kernels kernels;
  for (const char *name : {"te_current", "te_block"}) {
    const Csv table = scale_table(name);
    for (size_t row = 0; row < table.rows(); ++row) {
      const float amax = table.real(row, "amax_bits");
      const float eps = table.real(row, "eps_bits");
      const float m = format_max(table, row);
      const bool pow2 = table.integer(row, "pow2") == 1;
      const std::string &dtype = table.text(row, "input_dtype");
      const float largest = dtype == "fp32" ? kFloatMax : dtype == "bf16" ? kMaxBf16 : kMaxF16;
      const float scale = scale_te_current(amax, m, eps, pow2, largest);
      EXPECT_TRUE(same_value(scale, table.real(row, "scale_bits"))) << name << place(table, row);
      EXPECT_TRUE(same_value(scale_te_block(amax, m, eps, pow2, largest), scale));
      EXPECT_TRUE(same_value(1.0f / scale, table.real(row, "scale_inv_bits")))
          << name << place(table, row);
      if (eps != 0.0f || dtype != "fp32") continue; /* the table's rules have neither */
      const auto [ours, inverse] =
          from_table(&kernels, pow2 ? OCTAVO_RULE_POW2 : OCTAVO_RULE_QUOTIENT, amax, m);
      EXPECT_TRUE(same_value(ours, scale)) << name << place(table, row);
      EXPECT_TRUE(same_value(inverse, 1.0f / scale)) << name << place(table, row);
    }
  }
}

TEST(GoldenScale, mx) {
  const Csv te = scale_table("mx_te");
  for (size_t row = 0; row < te.rows(); ++row) {
    const uint8_t code = scale_inv_te_mx(te.real(row, "amax_bits"), format_max(te, row));
    EXPECT_EQ(code, te.code(row, "e8m0_code")) << place(te, row);
    EXPECT_TRUE(same_value(e8m0_multiplier(code), te.real(row, "multiplier_bits")))
        << place(te, row);
  }
  const Csv ocp = scale_table("mx_ocp");
  for (size_t row = 0; row < ocp.rows(); ++row) {
    const int emax = ocp.text(row, "fmt") == "e4m3" ? 8 : 15;
    EXPECT_EQ(scale_inv_ocp_mx(ocp.real(row, "amax_bits"), emax), ocp.code(row, "e8m0_exact_floor"))
        << place(ocp, row);
  }
}

TEST(GoldenScale, msamp04) {
  Kernels kernels;
  const Csv table = scale_table("msamp");
  for (size_t row = 0; row < table.rows(); ++row) {
    const float amax = table.real(row, "amax_bits");
    const float old_scale = table.real(row, "old_scale_bits");
    const float m = format_max(table, row);
    const int margin = table.integer(row, "margin");
    const float scale = scale_by_rule(OCTAVO_RULE_MSAMP04, amax, old_scale, m, margin);
    const bool is_recorded = same_value(scale, table.real(row, "scale_bits"));
    if (table.text(row, "row_class") == "log2_edge") {
      EXPECT_TRUE(is_recorded || same_value(scale, table.real(row, "exact_pow2_floor_bits")))
          << place(table, row);
    } else {
      EXPECT_TRUE(is_recorded) << place(table, row) << " " << table.text(row, "row_class");
      EXPECT_TRUE(same_value(1.0f / scale, table.real(row, "scale_inv_bits"))) << place(table, row);
    }
    if (margin != 0) continue; /* scale_from_amax has none */
    EXPECT_TRUE(
        same_value(from_table(&kernels, OCTAVO_RULE_MSAMP04, amax, m, &old_scale).first, scale))
        << place(table, row);
  }
}

/* MSAMP differs from the recording in three ways only: the exact floor at a logarithm's edge, 2^127
 * where the scale would be infinite, the old scale for an infinite amax. */
TEST(GoldenScale, msamp) {
  Kernels kernels;
  const Csv table = scale_table("msamp");
  size_t specials = 0;
  for (size_t row = 0; row < table.rows(); ++row) {
    const float amax = table.real(row, "amax_bits");
    const float old_scale = table.real(row, "old_scale_bits");
    const float m = format_max(table, row);
    const int margin = table.integer(row, "margin");
    const float scale = scale_by_rule(OCTAVO_RULE_MSAMP, amax, old_scale, m, margin);
    if (table.text(row, "row_class") == "special") {
      EXPECT_EQ(scale, old_scale) << place(table, row);
      ++specials;
    } else {
      const float exact = table.real(row, "exact_pow2_floor_bits");
      EXPECT_EQ(scale, std::isinf(exact) ? 0x1p127f : exact) << place(table, row);
    }
    if (margin != 0) continue; /* scale_from_amax has none */
    EXPECT_EQ(from_table(&kernels, OCTAVO_RULE_MSAMP, amax, m, &old_scale).first, scale)
        << place(table, row);
  }
  EXPECT_EQ(specials, 54u);
}

TEST(GoldenScale, torchao) {
  const Csv table = scale_table("torchao");
  for (size_t row = 0; row < table.rows(); ++row) {
    const float amax = table.real(row, "amax_bits");
    const bool pow2 = table.integer(row, "pow2") == 1;
    const float scale = scale_torchao(amax, format_max(table, row), pow2);
    const float recorded = table.real(row, "scale_bits");
    if (pow2 && !same_value(scale, recorded)) {
      /* Their fp32 logarithm rounds up to the integer just below a power of two. */
      const float quotient = scale_torchao(amax, format_max(table, row), false);
      EXPECT_EQ(recorded, 2 * scale) << place(table, row);
      EXPECT_LT((2.0 * scale - quotient) / quotient, 1e-6) << place(table, row);
    } else {
      EXPECT_TRUE(same_value(scale, recorded)) << place(table, row);
      EXPECT_TRUE(same_value(1.0f / scale, table.real(row, "reciprocal_bits")))
          << place(table, row);
    }
  }
}

TEST(GoldenScale, deepgemm) {
  const Csv table = scale_table("deepgemm");
  for (size_t row = 0; row < table.rows(); ++row) {
    const float amax = table.real(row, "amax_bits");
    const float plain = scale_inv_deepgemm(amax, false);
    const float pow2 = scale_inv_deepgemm(amax, true);
    EXPECT_TRUE(same_value(plain, table.real(row, "sf_bits"))) << place(table, row);
    EXPECT_TRUE(same_value(1.0f / plain, table.real(row, "one_over_sf_bits"))) << place(table, row);
    EXPECT_TRUE(same_value(pow2, table.real(row, "ue8m0_sf_bits"))) << place(table, row);
    EXPECT_TRUE(same_value(1.0f / pow2, table.real(row, "one_over_ue8m0_bits")))
        << place(table, row);
  }
}

}  // namespace
}  // namespace octavo::test
