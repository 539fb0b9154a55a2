// octavo.fused/1 of te: a fused forward equals prologue of the kernels and then linear_forward bit
// for bit, in what it returns, what it saves for backward, and what it records.
#include "tests/plugins/te_layer.h"
#include "tests/plugins/te_oracle.h"

namespace octavo::test {
namespace {

constexpr int64_t kN = 20, kK = 130;
constexpr uint32_t kOps[] = {OCTAVO_PROLOGUE_LAYER_NORM, OCTAVO_PROLOGUE_RMS_NORM,
                             OCTAVO_PROLOGUE_GELU, OCTAVO_PROLOGUE_GELU_TANH,
                             OCTAVO_PROLOGUE_SWIGLU};

// A prologue with its operands.
class Prologue {
 public:
  Prologue(uint32_t op, int64_t rows)
      : in_(uneven_matrix(rows, op == OCTAVO_PROLOGUE_SWIGLU ? 2 * kK : kK, 6, 8.0f)),
        gamma_(some_matrix(1, kK, 7, 2.0f)),
        beta_(some_matrix(1, kK, 8, 1.0f)),
        mean(1, rows),
        rstd(1, rows),
        in_tensor_(tensor_of(in_)),
        gamma_tensor_(tensor_of(gamma_)),
        beta_tensor_(tensor_of(beta_)) {
    p_.size = sizeof(p_);
    p_.kind = OCTAVO_KIND_PROLOGUE;
    p_.op = op;
    p_.in = &in_tensor_;
    const bool layer_norm = op == OCTAVO_PROLOGUE_LAYER_NORM;
    if (layer_norm || op == OCTAVO_PROLOGUE_RMS_NORM) {
      p_.eps = 1e-5f;
      p_.gamma = &gamma_tensor_;
      p_.rstd = rstd.v.data();
    }
    if (layer_norm) p_.beta = &beta_tensor_;
    if (layer_norm) p_.mean = mean.v.data();
  }
  Prologue(const Prologue &) = delete;
  Prologue &operator=(const Prologue &) = delete;
  octavo_prologue *get() { return &p_; }

 private:
  Matrix in_, gamma_, beta_;

 public:
  Matrix mean, rstd;

 private:
  octavo_tensor in_tensor_, gamma_tensor_, beta_tensor_;
  octavo_prologue p_{};
};

octavo_tensor shape_of(int64_t rows, uint32_t dtype) {
  return {nullptr, rows, kK, kK, dtype, 0};
}

void expect_same_saved(const TeLayer &found, const TeLayer &expected) {
  ASSERT_EQ(found.saved().size(), expected.saved().size());
  EXPECT_EQ(std::memcmp(found.saved().get(), expected.saved().get(), found.saved().size()), 0);
}

// Two training steps by both ways; the second one has scales of the first.
void expect_equal_steps(const TeSetup &setup, uint32_t op, int64_t rows, uint32_t dtype) {
  const Matrix w = uneven_matrix(kN, kK, 1, 0.75f);
  Matrix bias = some_matrix(1, kN, 4, 2.0f);
  TeLayer unfused(setup, w), fused(setup, w);
  octavo_extent extent{};
  ASSERT_EQ(fused.fused_workspace(&extent), OCTAVO_OK) << fused.error();
  for (uint32_t step = 0; step < 2; ++step) {
    unfused.quantize_weight();
    fused.quantize_weight();
    Prologue p(op, rows), q(op, rows);
    const AlignedBytes memory(static_cast<uint64_t>(rows * kK) * (OCTAVO_DTYPE_BITS(dtype) / 8));
    octavo_tensor x = shape_of(rows, dtype);
    x.data = memory.get();
    octavo_prologue_call apply{};
    apply.size = sizeof(apply);
    apply.kind = OCTAVO_KIND_PROLOGUE_CALL;
    apply.prologue = p.get();
    apply.out = &x;
    ASSERT_EQ(unfused.apply(apply), OCTAVO_OK) << unfused.error();
    const Matrix expected = unfused.forward(x, &bias);
    Matrix y;
    ASSERT_EQ(fused.forward_fused(*q.get(), shape_of(rows, dtype), extent, y, &bias), OCTAVO_OK)
        << fused.error();
    expect_same(y, expected, "y");
    expect_same(q.mean, p.mean, "mean");
    expect_same(q.rstd, p.rstd, "rstd");
    expect_same_saved(fused, unfused);
    for (const char *name : {"x/amax", "nonfinite", "x/saturated", "x/signal", "x/noise"}) {
      if (fused.slot(name) == nullptr) continue;
      EXPECT_EQ(*fused.slot(name), *unfused.slot(name)) << name;
    }
    const Matrix dy = uneven_matrix(rows, kN, 3 + step, 0.5f);
    Gradients found, wanted;
    unfused.backward(dy, Matrix(rows, kK), wanted);
    fused.backward(dy, Matrix(rows, kK), found);
    expect_same(found.dx, wanted.dx, "dx");
    expect_same(found.dw, wanted.dw, "dw");
    expect_same(found.db, wanted.db, "db");
    unfused.end_step();
    fused.end_step();
  }
}

class TeFused : public testing::TestWithParam<std::tuple<TeRecipe, uint64_t>> {
 protected:
  TeSetup setup() const {
    const auto &[recipe, alignment] = GetParam();
    return {recipe.options, alignment};
  }
};

TEST_P(TeFused, equals_apply_and_linear_forward) {
  for (const uint32_t op : kOps) {
    SCOPED_TRACE(op);
    expect_equal_steps(setup(), op, 33, OCTAVO_F32);
  }
}

TEST_P(TeFused, in_the_dtype_that_x_would_have) {
  for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16}) {
    SCOPED_TRACE(dtype);
    expect_equal_steps(setup(), OCTAVO_PROLOGUE_LAYER_NORM, 17, dtype);
    expect_equal_steps(setup(), OCTAVO_PROLOGUE_GELU, 17, dtype);
  }
}

TEST_P(TeFused, no_rows_and_many_rows) {
  expect_equal_steps(setup(), OCTAVO_PROLOGUE_RMS_NORM, 0, OCTAVO_F32);
  expect_equal_steps(setup(), OCTAVO_PROLOGUE_RMS_NORM, 1157, OCTAVO_BF16);
}

TEST_P(TeFused, a_backward_on_dequantized_codes) {
  const auto &options = std::get<0>(GetParam()).options;
  if (const auto found = options.find("recipe");
      found != options.end() && found->second == "\"delayed\"")
    GTEST_SKIP() << "backward_override needs a recipe without delayed scales";
  TeSetup with_override = setup();
  with_override.options["backward_override"] = "\"dequantized\"";
  expect_equal_steps(with_override, OCTAVO_PROLOGUE_GELU_TANH, 33, OCTAVO_F32);
}

TEST_P(TeFused, an_evaluation_in_fp8_saves_nothing) {
  TeSetup evaluates = setup();
  evaluates.options["use_autocast_during_eval"] = "true";
  TeLayer layer(evaluates, uneven_matrix(kN, kK, 1, 0.75f));
  layer.quantize_weight();
  octavo_extent extent{};
  ASSERT_EQ(layer.fused_workspace(&extent), OCTAVO_OK);
  Prologue p(OCTAVO_PROLOGUE_LAYER_NORM, 9);
  const octavo_tensor shape = shape_of(9, OCTAVO_F32);
  Matrix trained, evaluated;
  ASSERT_EQ(layer.forward_fused(*p.get(), shape, extent, trained, nullptr), OCTAVO_OK);
  ASSERT_EQ(
      layer.forward_fused(*p.get(), shape, extent, evaluated, nullptr, OCTAVO_FORWARD_EVALUATION),
      OCTAVO_OK)
      << layer.error();
  expect_same(evaluated, trained, "y");
}

TEST_P(TeFused, where_fprop_reads_plain_x) {
  TeSetup plain = setup();
  plain.options["override_linear_precision"] = "\"fprop\"";
  expect_equal_steps(plain, OCTAVO_PROLOGUE_LAYER_NORM, 33, OCTAVO_BF16);
  expect_equal_steps(plain, OCTAVO_PROLOGUE_SWIGLU, 0, OCTAVO_F32);
}

TEST_P(TeFused, where_telemetry_reads_plain_x) {
  TeSetup sampled = setup();
  sampled.options["telemetry"] = "true";
  expect_equal_steps(sampled, OCTAVO_PROLOGUE_RMS_NORM, 33, OCTAVO_BF16);
}

TEST_P(TeFused, an_evaluation_on_plain_operands_equals_the_sequence) {
  const Matrix w = uneven_matrix(kN, kK, 1, 0.75f);
  TeLayer unfused(setup(), w), fused(setup(), w);
  octavo_extent extent{};
  ASSERT_EQ(fused.fused_workspace(&extent), OCTAVO_OK) << fused.error();
  Prologue p(OCTAVO_PROLOGUE_LAYER_NORM, 9), q(OCTAVO_PROLOGUE_LAYER_NORM, 9);
  Matrix between(9, kK);
  octavo_tensor x = tensor_of(between);
  octavo_prologue_call apply{};
  apply.size = sizeof(apply);
  apply.kind = OCTAVO_KIND_PROLOGUE_CALL;
  apply.prologue = p.get();
  apply.out = &x;
  ASSERT_EQ(unfused.apply(apply), OCTAVO_OK) << unfused.error();
  unfused.quantize_weight();
  fused.quantize_weight();
  const Matrix expected = unfused.forward(x, nullptr, OCTAVO_FORWARD_EVALUATION);
  Matrix y;
  ASSERT_EQ(fused.forward_fused(*q.get(), shape_of(9, OCTAVO_F32), extent, y, nullptr,
                                OCTAVO_FORWARD_EVALUATION),
            OCTAVO_OK)
      << fused.error();
  expect_same(y, expected, "y");
}

TEST_P(TeFused, is_refused_where_backward_needs_x) {
  TeSetup refused = setup();
  refused.options["override_linear_precision"] = "\"wgrad\"";
  TeLayer layer(refused, uneven_matrix(kN, kK, 1, 0.75f));
  layer.quantize_weight();
  octavo_extent extent{7, 7, 7};
  EXPECT_EQ(layer.fused_workspace(&extent), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(extent.row_multiple, 7u) << "written, though refused";
  Prologue p(OCTAVO_PROLOGUE_LAYER_NORM, 9);
  Matrix y;
  EXPECT_EQ(layer.forward_fused(*p.get(), shape_of(9, OCTAVO_F32), {1, 0, 4096}, y, nullptr),
            OCTAVO_UNSUPPORTED);
  EXPECT_NE(layer.error().find("call prologue of the kernels, then linear_forward"),
            std::string::npos);
  EXPECT_EQ(y.v, Matrix(9, kN, -1.0f).v);
  EXPECT_EQ(*layer.slot("x/amax"), 0.0f);
}

TEST_P(TeFused, a_malformed_prologue_is_refused_and_nothing_is_written) {
  TeLayer layer(setup(), uneven_matrix(kN, kK, 1, 0.75f));
  layer.quantize_weight();
  octavo_extent extent{};
  ASSERT_EQ(layer.fused_workspace(&extent), OCTAVO_OK);
  Prologue p(OCTAVO_PROLOGUE_RMS_NORM, 9);
  p.get()->eps = -1;
  Matrix y;
  EXPECT_EQ(layer.forward_fused(*p.get(), shape_of(9, OCTAVO_F32), extent, y, nullptr),
            OCTAVO_INVALID);
  EXPECT_NE(layer.error().find("prologue.eps"), std::string::npos) << layer.error();
  EXPECT_EQ(y.v, Matrix(9, kN, -1.0f).v);
  EXPECT_EQ(*layer.slot("x/amax"), 0.0f);
  p.get()->eps = 0;
  EXPECT_EQ(layer.forward_fused(*p.get(), shape_of(8, OCTAVO_F32), extent, y, nullptr),
            OCTAVO_INVALID)
      << "in has 9 rows";
}

INSTANTIATE_TEST_SUITE_P(All, TeFused,
                         testing::Combine(testing::ValuesIn(te_recipes()),
                                          testing::Values(uint64_t{1}, uint64_t{16})),
                         [](const testing::TestParamInfo<std::tuple<TeRecipe, uint64_t>> &each) {
                           return std::string(std::get<0>(each.param).name) + "_alignment" +
                                  std::to_string(std::get<1>(each.param));
                         });

TEST(TeFusedInterface, a_frozen_weight_keeps_no_x_and_can_be_fused) {
  TeSetup setup{{{"recipe", "\"current\""}, {"override_linear_precision", "\"wgrad\""}}};
  setup.weight_flags |= OCTAVO_PARAMETER_FROZEN;
  TeLayer layer(setup, uneven_matrix(kN, kK, 1, 0.75f));
  octavo_extent extent{};
  EXPECT_EQ(layer.fused_workspace(&extent), OCTAVO_OK);
}

TEST(TeFusedInterface, backends_without_it_answer_null) {
  const Environment environment;
  for (const char *backend : {"reference", "msamp"}) {
    Request request;
    const RunPtr run = request.set("fp8.backend", backend).set("plugins.trust", "dev").opened();
    ASSERT_NE(run, nullptr) << request.host.error();
    EXPECT_EQ(static_cast<const octavo_fused *>(
                  octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_FUSED_ID))),
              nullptr)
        << backend;
  }
}

}  // namespace
}  // namespace octavo::test
