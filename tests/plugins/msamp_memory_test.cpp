// Bytes that a host of msamp allocates, and which parameters stay the host's own.
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

// Weights, gradients and optimizer states, without their scales.
uint64_t training_bytes(Msamp &m) {
  uint64_t bytes = 0;
  for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_MASTER_WEIGHT, OCTAVO_ROLE_GRADIENT,
                              OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ})
    bytes += octavo_store_bytes(m.store(), role);
  return bytes;
}

struct Case {
  const char *lines;
  double bytes;      // of one element
  uint64_t tensors;  // with a scale_inv, caches included
  double limit;
};

TEST(MsampMemory, bytes_for_each_parameter) {
  constexpr int64_t kSize = 1024;
  constexpr uint64_t kElements = kSize * kSize;
  // weight + master + gradient + exp_avg + exp_avg_sq; a scale_inv for each 8 and 16 bit tensor and
  // one for both caches.
  const Case cases[] = {{"opt_level = \"O1\"", 2 + 1 + 4 + 4, 3, 12},
                        {"opt_level = \"O2\"", 2 + 1 + 1 + 2, 5, 6},
                        {"opt_level = \"O3\"", 1 + 2 + 1 + 1 + 2, 5, 7}};
  for (const Case &c : cases) {
    Msamp m(c.lines);
    m.add_linear(Matrix(kSize, kSize, 0.5f));
    m.seal();
    const uint64_t scales = octavo_store_bytes(m.store(), OCTAVO_ROLE_SCALE_INV);
    EXPECT_EQ(training_bytes(m), static_cast<uint64_t>(c.bytes * kElements)) << c.lines;
    EXPECT_EQ(scales, c.tensors * sizeof(float)) << c.lines;
    // Twenty bytes of scales and four of the step count: 2.3e-5 of a byte for each of 2^20
    // elements.
    const double all = static_cast<double>(training_bytes(m) + scales + sizeof(int32_t));
    EXPECT_LE(all / kElements, c.limit + 1e-3) << c.lines;
  }
}

// With states in groups the scales count: f32 for 256 elements, three of them for 128.
TEST(MsampMemory, bytes_of_grouped_states) {
  for (const auto &[format, scales] :
       {std::pair{"e4m3-block", 4.0 / 256}, std::pair{"coat", 12.0 / 128}}) {
    Msamp m(std::string("state_format = \"") + format + "\"");
    m.add_linear(Matrix(256, 512, 0.5f));
    m.seal();
    constexpr uint64_t kElements = 256 * 512;
    EXPECT_EQ(training_bytes(m), 5 * kElements) << format;
    EXPECT_EQ(octavo_store_bytes(m.store(), OCTAVO_ROLE_SCALE_INV),
              static_cast<uint64_t>(2 * scales * kElements) + 3 * sizeof(float))
        << format;
  }
}

// O3 over N ranks, N equal weights: each rank owns one. Weight and gradient stay everywhere (2),
// master and moments lie on the owner (5): 2 + 5 / N bytes for each parameter.
TEST(MsampMemory, sharded_o3) {
  constexpr int64_t kSize = 128;
  constexpr uint64_t kElements = kSize * kSize;
  for (const uint32_t world : {2u, 4u}) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      Msamp m("opt_level = \"O3\"", rank, world);
      for (uint32_t i = 0; i < world; ++i) m.add_linear(rough_matrix(kSize, kSize, i + 1, 1.0f));
      m.seal();
      EXPECT_EQ(training_bytes(m), (2 * world + 5) * kElements) << rank << " of " << world;
      // scale_inv: weight and gradient of all, master and two moments of its own.
      EXPECT_EQ(octavo_store_bytes(m.store(), OCTAVO_ROLE_SCALE_INV), (2 * world + 3) * 4);
      uint32_t owned = 0;
      for (uint32_t p = 0; p < world; ++p) owned += octavo_store_owner(m.store(), p) == rank;
      EXPECT_EQ(owned, 1u);
    }
  }
}

TEST(MsampMemory, native_parameters) {
  struct Moments {
    const char *lines;
    uint32_t exp_avg, exp_avg_sq;
  };
  const Moments cases[] = {{"opt_level = \"O1\"", OCTAVO_F32, OCTAVO_F32},
                           {"opt_level = \"O2\"", OCTAVO_E4M3FN, OCTAVO_F16},
                           {"opt_level = \"O3\"", OCTAVO_E4M3FN, OCTAVO_F16},
                           {"state_format = \"coat\"", OCTAVO_E4M3FN, OCTAVO_E4M3FN}};
  for (const Moments &c : cases) {
    Msamp m(c.lines);
    octavo_parameter_desc d = parameter_desc("embedding", 8, 16, 0, OCTAVO_BF16);
    d.gradient_dtype = OCTAVO_F32;
    ASSERT_EQ(add_parameter(m.run(), d).status, OCTAVO_OK);
    ASSERT_EQ(octavo_seal(m.run()), OCTAVO_OK);
    EXPECT_EQ(m.slot("weight")->dtype, OCTAVO_BF16);
    EXPECT_EQ(m.slot("weight")->flags, uint32_t{OCTAVO_SLOT_NATIVE});
    EXPECT_EQ(m.slot("weight")->access[OCTAVO_VERB_OPTIMIZER_STEP], OCTAVO_ACCESS_UPDATE);
    EXPECT_EQ(m.slot("gradient")->dtype, OCTAVO_F32);
    EXPECT_EQ(m.slot("gradient")->flags, uint32_t{OCTAVO_SLOT_NATIVE});
    EXPECT_EQ(m.slot("gradient")->access[OCTAVO_VERB_OPTIMIZER_STEP], OCTAVO_ACCESS_READ);
    EXPECT_EQ(m.slot("exp_avg")->dtype, c.exp_avg) << c.lines;
    EXPECT_EQ(m.slot("exp_avg_sq")->dtype, c.exp_avg_sq) << c.lines;
    EXPECT_EQ(m.slot("exp_avg")->shard, uint32_t{OCTAVO_SHARD_WHOLE});
    EXPECT_EQ(m.slot("weight_cache"), nullptr);
    EXPECT_EQ(m.slot("master_weight"), nullptr);
  }
}

TEST(MsampMemory, frozen_has_no_gradient_and_no_states) {
  for (const char *level : {"O1", "O2", "O3"}) {
    Msamp m(std::string("opt_level = \"") + level + "\"");
    const uint32_t linear = m.add_linear(rough_matrix(8, 4, 1, 1.0f), OCTAVO_PARAMETER_FROZEN);
    m.add_parameter(Matrix(1, 8, 0.5f), OCTAVO_PARAMETER_FROZEN);
    m.seal();
    for (const char *name : {"gradient", "exp_avg", "exp_avg_sq", "step", "master_weight"})
      EXPECT_EQ(m.slot(name), nullptr) << level << " " << name;
    EXPECT_EQ(m.plan(linear).gradient, uint32_t{OCTAVO_GRADIENT_NONE});
    Matrix x = some_matrix(3, 4, 2, 1.0f), dy = some_matrix(3, 8, 3, 1.0f), y, dx;
    ASSERT_EQ(m.forward(linear, x, y), OCTAVO_OK);
    ASSERT_EQ(m.backward(linear, dy, dx), OCTAVO_OK);
    const Quantized w = by_rule(kE4m3, scaled_half(rough_matrix(8, 4, 1, 1.0f)));
    expect_same(dx, multiplied(by_rule(kE5m2, dy), transposed(w)), level);
  }
}

// At seal a LINEAR_WEIGHT that no linear uses becomes the host's, and stays so.
TEST(MsampMemory, weight_without_a_linear) {
  Msamp m;
  const Answer weight = add_weight(m.run(), "embedding", 4, 8);
  ASSERT_EQ(octavo_seal(m.run()), OCTAVO_OK);
  EXPECT_EQ(m.slot("weight")->flags, uint32_t{OCTAVO_SLOT_NATIVE});
  const uint32_t slots = octavo_run_slot_count(m.run());
  const Answer linear = add_linear(m.run(), "late", weight.id);
  EXPECT_EQ(linear.status, OCTAVO_OK);
  EXPECT_EQ(linear.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(text_of(linear.verdict.text),
            "the weight was sealed without a linear, so it stays the host's tensor");
  EXPECT_EQ(text_of(linear.verdict.remedy), "add the linear before the seal of its weight");
  ASSERT_EQ(octavo_seal(m.run()), OCTAVO_OK);
  EXPECT_EQ(octavo_run_slot_count(m.run()), slots);
}

// What an earlier seal emitted stays; a later one brings its own pools.
TEST(MsampMemory, later_seal) {
  Msamp m;
  const uint32_t first = m.add_linear(rough_matrix(4, 8, 1, 1.0f));
  m.seal();
  const uint32_t slots = octavo_run_slot_count(m.run());
  const uint32_t second = m.add_linear(rough_matrix(6, 8, 2, 1.0f));
  ASSERT_EQ(octavo_seal(m.run()), OCTAVO_OK);
  ASSERT_EQ(octavo_store_extend(m.store()), OCTAVO_OK);
  EXPECT_EQ(m.slot("nonfinite", 1), nullptr);
  EXPECT_EQ(m.slot("x/amax", 1)->id, slots + 12);  // behind the twelve of the second weight
  ASSERT_EQ(m.write(1, OCTAVO_ROLE_WEIGHT, rough_matrix(6, 8, 2, 1.0f)), OCTAVO_OK);
  m.quantize_weights();
  Matrix x = some_matrix(2, 8, 3, 2.0f), y;
  for (const auto &[linear, rows] : {std::pair{first, 4}, std::pair{second, 6}}) {
    ASSERT_EQ(m.forward(linear, x, y), OCTAVO_OK);
    const Quantized w = by_rule(kE4m3, scaled_half(rough_matrix(rows, 8, linear + 1, 1.0f)));
    expect_same(y, multiplied(by_rule(kE4m3, x), w), "y");
  }
  EXPECT_EQ(*m.floats("x/amax", 1), amax_of(x));
  ASSERT_EQ(m.end_step(), OCTAVO_OK);
  EXPECT_EQ(*m.floats("x/scale", 1), msamp_scale(amax_of(x), 448));
}

}  // namespace
}  // namespace octavo::test
