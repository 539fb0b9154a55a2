/* What linears of te and msamp ask of cuBLASLt: the real plugins on kernels/cuda over the fake
 * library, which refuses what cuBLASLt refuses, at 20 shapes, beside the same on kernels/cpu.
 */
#include <algorithm>
#include <array>

#include "octavo/draft/gradients.h"
#include "octavo/octavo.h"
#include "sdk/verify/host.h"
#include "tests/kernels/cuda/cuda_table.h"
#include "tests/kernels/cuda/gemm_case.h"
#include "tests/support/environment.h"
#include "tests/support/request.h"

namespace octavo::test {
namespace {

struct Recipe {
  const char *name;
  const char *backend;
  const char *key;
  const char *value;
  int capability;
  int32_t mode; /* of the operands' scales */
};

void PrintTo(const Recipe &r, std::ostream *out) {
  *out << r.name;
}

constexpr Recipe kRecipes[] = {
    {"te_delayed", "te", "fp8.te.recipe", "delayed", 90, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
    {"te_current", "te", "fp8.te.recipe", "current", 89, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
    {"te_block", "te", "fp8.te.recipe", "block", 90, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F},
    {"te_mx", "te", "fp8.te.recipe", "mx", 100, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0},
    {"te_rowwise", "te", "fp8.te.recipe", "rowwise", 90,
     CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
    {"msamp_o1", "msamp", "fp8.msamp.opt_level", "O1", 90, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
    {"msamp_o2", "msamp", "fp8.msamp.opt_level", "O2", 120,
     CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F}};

/* N, K and the rows of x. */
constexpr std::array<int64_t, 3> kShapes[] = {
    {16, 16, 16},  {32, 48, 64}, {64, 32, 1},    {48, 80, 17},   {128, 128, 128},
    {144, 96, 33}, {17, 33, 5},  {1, 16, 16},    {16, 1, 7},     {100, 60, 31},
    {129, 127, 3}, {15, 255, 9}, {130, 40, 129}, {256, 16, 48},  {24, 24, 24},
    {63, 65, 66},  {96, 160, 2}, {31, 7, 100},   {160, 144, 80}, {272, 48, 15}};

int64_t padded(int64_t size) {
  return (size + 15) / 16 * 16;
}

class GemmLinears : public testing::TestWithParam<Recipe> {
 protected:
  GemmLinears() {
    environment_.set("OCTAVO_CUDA_GEMM_WORKSPACE", "1");
    devices_ = std::make_unique<GemmDevices>(GetParam().capability);
    request_.set("fp8.backend", GetParam().backend)
        .set(GetParam().key, GetParam().value)
        .set("plugins.trust", "dev");
    run_ = request_.opened();
  }

  conformance::Target target(bool is_cuda) {
    conformance::Target t;
    t.backend = octavo_run_backend(run_.get());
    t.optimizer = static_cast<const octavo_optimizer *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
    t.gradients = static_cast<const octavo_gradients *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
    t.desc = *octavo_run_session_desc(run_.get());
    /* Both sides without panels of packed codes, so that their slots are alike. */
    caps_ = *t.desc.caps;
    caps_.pack_rows = 0;
    caps_.alignment = 16;
    t.desc.caps = &caps_;
    if (is_cuda) {
      t.desc.kernels = &table_;
      t.desc.kernels_ctx = devices_->cuda();
    }
    return t;
  }

  /* y, dx and dw of one linear. */
  std::vector<std::vector<uint8_t>> train(bool is_cuda, const std::array<int64_t, 3> &shape) {
    const conformance::Target t = target(is_cuda);
    const conformance::Context context = {t, 7, 16};
    conformance::Session session(context);
    conformance::Model model;
    model.parameters.push_back({"w", shape[0], shape[1]});
    model.linears.push_back({"l", "w"});
    session.add(model);
    session.seal();
    conformance::Host host(session, 7);
    host.quantize_weights();
    std::vector<std::vector<uint8_t>> found;
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16}) {
      conformance::Batch &batch = host.add_batch({0, shape[2], 11, dtype, dtype, 0, 0});
      host.forward(batch);
      host.backward(batch);
      found.push_back(conformance::bytes_of(batch.y));
      found.push_back(conformance::bytes_of(batch.dx));
      for (const double v : host.gradient(0)) {
        const auto *bytes = reinterpret_cast<const uint8_t *>(&v);
        found.emplace_back(bytes, bytes + sizeof(v));
      }
    }
    return found;
  }

  Environment environment_;
  std::unique_ptr<GemmDevices> devices_;
  Request request_;
  RunPtr run_;
  octavo_kernels_caps caps_{};
  const octavo_kernels table_ = cuda_table();
};

TEST_P(GemmLinears, every_product_is_one_call_in_the_shape_that_the_library_takes) {
  ASSERT_NE(run_, nullptr) << request_.host.error();
  for (const auto &shape : kShapes) {
    std::string where = "N, K, M:";
    for (const int64_t size : shape) where += ' ', where += std::to_string(size);
    products().clear();
    fake_library().calls.clear();
    const auto found = train(true, shape);
    EXPECT_EQ(found, train(false, shape)) << where;
    const std::vector<fake_blas::Call> &calls = fake_library().calls;
    /* fprop, dgrad and wgrad of two batches; rows that an output lacks are a part of their own. */
    const auto parts = [](int64_t rows, int64_t cols) {
      return cols % 16 != 0 ? size_t{1} : size_t{rows >= 16} + size_t{rows % 16 != 0};
    };
    const bool is_msamp = GetParam().backend == std::string("msamp");
    const size_t of_fprop = parts(shape[2], shape[0]);
    const size_t of_wgrad = is_msamp ? 1 : parts(shape[0], shape[1]);
    const size_t of_batch = of_fprop + parts(shape[2], shape[1]) + of_wgrad;
    ASSERT_EQ(products().size(), 2 * of_batch) << where;
    ASSERT_EQ(calls.size(), products().size()) << where << ": " << devices_->host().last_text();
    const int64_t n = padded(shape[0]);
    const int64_t k = padded(shape[1]);
    for (size_t i = 0; i < calls.size(); ++i) {
      const fake_blas::Call &c = calls[i];
      const GemmShape &p = products()[i];
      /* cuBLASLt's columns are our rows. */
      EXPECT_EQ(c.m, static_cast<uint64_t>(p.n)) << where;
      EXPECT_EQ(c.n, static_cast<uint64_t>(p.m)) << where;
      EXPECT_EQ(c.k, static_cast<uint64_t>(p.k)) << where;
      EXPECT_EQ(c.transa, CUBLAS_OP_T) << where;
      EXPECT_EQ(c.transb, CUBLAS_OP_N) << where;
      EXPECT_EQ(c.m % 16 + c.n % 16 + c.k % 16, 0u) << where;
      EXPECT_EQ(c.b_mode, GetParam().mode) << where;
      const bool is_gradient = i % of_batch >= of_fprop;
      /* Padded or not, a bias of the output's dtype is the library's; f32 it has none of. */
      EXPECT_EQ(c.has_bias, !is_gradient && i >= of_batch) << where;
      EXPECT_EQ(c.b_type, is_gradient && is_msamp ? CUDA_R_8F_E5M2 : c.b_type);
    }
    const GemmShape &fprop = products()[0];
    EXPECT_EQ(fprop.n, n) << where;
    EXPECT_EQ(fprop.k, k) << where;
    EXPECT_EQ(fprop.m + (of_fprop == 2 ? 16 : 0), padded(shape[2])) << where;
  }
  EXPECT_TRUE(devices_->host().texts().empty()) << devices_->host().last_text();
  EXPECT_EQ(cuda_on_cpu::counters().synchronisations, 0);
  EXPECT_EQ(cuda_on_cpu::counters().allocations, 0);
}

/* Sizes that need no padding, and a bias that the library adds. */
TEST_P(GemmLinears, a_forward_is_few_launches) {
  ASSERT_NE(run_, nullptr) << request_.host.error();
  const conformance::Target t = target(true);
  const conformance::Context context = {t, 7, 16};
  conformance::Session session(context);
  conformance::Model model;
  model.parameters.push_back({"w", 64, 128});
  model.linears.push_back({"l", "w"});
  session.add(model);
  session.seal();
  conformance::Host host(session, 7);
  host.quantize_weights();
  conformance::Batch &batch = host.add_batch({0, 256, 11, OCTAVO_BF16, OCTAVO_BF16, 0, 0});
  host.forward(batch); /* makes the plan */
  const cuda_on_cpu::Counters before = cuda_on_cpu::counters();
  fake_library().calls.clear();
  host.forward(batch);
  const cuda_on_cpu::Counters after = cuda_on_cpu::counters();
  EXPECT_EQ(fake_library().calls.size(), 1u);
  /* Scales of rows and columns are cleared, measured, read by the cast, and inverted. */
  const bool is_rowwise = GetParam().mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  EXPECT_LE(after.launches - before.launches + after.copies - before.copies + after.memsets -
                before.memsets + 1,
            is_rowwise ? 5 : 3);
  EXPECT_EQ(after.synchronisations, before.synchronisations);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_TRUE(devices_->host().texts().empty()) << devices_->host().last_text();
}

/* N and K of linears: of a model of 5 billion parameters, and small ones. */
constexpr std::array<int64_t, 2> kAlignedSizes[] = {
    {4096, 4096}, {12288, 4096}, {16384, 4096}, {4096, 16384}, {50304, 4096}, {64, 128}, {16, 16}};

/* Codes and scales take room, and so do 16 rows that M may lack; an f32 output takes none. */
TEST_P(GemmLinears, workspaces_of_aligned_sizes_hold_no_output) {
  ASSERT_NE(run_, nullptr) << request_.host.error();
  const conformance::Target t = target(true);
  const bool keeps_gradient = std::string(GetParam().backend) == "msamp";
  const bool is_mx = GetParam().mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  for (const auto &[n, k] : kAlignedSizes) {
    const conformance::Context context = {t, 7, 16};
    conformance::Session session(context);
    conformance::Model model;
    model.parameters.push_back({"w", n, k});
    model.linears.push_back({"l", "w"});
    session.add(model);
    session.seal();
    const octavo_linear_plan plan = session.plan(0);
    const auto bytes = [](const octavo_extent &e, int64_t rows) {
      return static_cast<int64_t>(octavo_extent_bytes(&e, rows));
    };
    constexpr int64_t kRows = 16384;
    constexpr int64_t kFixed = int64_t{8} << 20; /* of kernels: 1.5 MiB a product */
    /* Codes of x; at most f32 scales for 32 elements as they are and as the library wants them. */
    const int64_t forward = kRows * (k + k / 8 + 16) + (n + k + 4096) * (k / 16 + 80);
    EXPECT_LE(bytes(plan.forward_workspace, kRows), forward + kFixed) << n << " " << k;
    /* Codes of dy in both directions; msamp adds up a gradient in f32. */
    const int64_t sum = keeps_gradient ? 4 * n * k : 0;
    const int64_t backward = kRows * (2 * n + n / 4 + (n + k) / 16 + 64) +
                             (n + k + 4096) * (n / 16 + 80) + 2 * 64 * (n + k) + sum;
    EXPECT_LE(bytes(plan.backward_workspace, kRows), backward + kFixed) << n << " " << k;
    if (!is_mx && n * k > int64_t{1} << 20) {
      /* With an f32 output the bounds would not hold. */
      EXPECT_GT(bytes(plan.forward_workspace, kRows) + 4 * kRows * n, forward + kFixed);
    }
  }
}

/* The rows that M lacks are computed aside, the others in place. */
TEST_P(GemmLinears, rows_beyond_sixteen_are_a_product_of_their_own) {
  ASSERT_NE(run_, nullptr) << request_.host.error();
  for (const int64_t m : {5, 16, 33, 144, 150}) {
    products().clear();
    EXPECT_EQ(train(true, {48, 32, m}), train(false, {48, 32, m})) << m;
    const bool has_rest = m % 16 != 0;
    const bool has_front = m >= 16;
    /* fprop and dgrad, of two batches; wgrad has M as its K. */
    const size_t expected = 2 * (2 * (size_t{has_rest} + size_t{has_front}) + 1);
    ASSERT_EQ(products().size(), expected) << m;
    if (has_front) {
      EXPECT_EQ(products()[0].m, m / 16 * 16);
    }
    if (has_rest) {
      EXPECT_EQ(products()[has_front].m, 16);
    }
  }
}

/* x in bf16, as under autocast, with a weight in f32: te evaluates in the host's precision, which
 * is bf16, msamp in FP8. */
TEST_P(GemmLinears, an_evaluation_under_autocast_is_a_product_of_the_library) {
  ASSERT_NE(run_, nullptr) << request_.host.error();
  std::vector<uint8_t> found[2];
  for (const bool is_cuda : {false, true}) {
    const conformance::Target t = target(is_cuda);
    const conformance::Context context = {t, 7, 16};
    conformance::Session session(context);
    conformance::Model model;
    model.parameters.push_back({"w", 48, 80});
    model.linears.push_back({"l", "w"});
    session.add(model);
    session.seal();
    conformance::Host host(session, 7);
    host.quantize_weights();
    conformance::Batch &batch = host.add_batch({0, 33, 11, OCTAVO_BF16, OCTAVO_BF16, 0, 0});
    conformance::Call call;
    call.evaluates = true;
    call.save = call.record = false;
    fake_library().calls.clear();
    host.forward(batch, call);
    found[is_cuda] = conformance::bytes_of(batch.y);
  }
  EXPECT_EQ(found[0], found[1]);
  const bool is_msamp = GetParam().backend == std::string("msamp");
  ASSERT_EQ(fake_library().calls.size(), is_msamp ? 2u : 1u) << "rows 0 to 31, and the rest";
  EXPECT_EQ(fake_library().calls[0].a_type, is_msamp ? CUDA_R_8F_E4M3 : CUDA_R_16BF);
  EXPECT_TRUE(devices_->host().texts().empty());
}

INSTANTIATE_TEST_SUITE_P(Recipes, GemmLinears, testing::ValuesIn(kRecipes),
                         [](const auto &i) { return std::string(i.param.name); });

}  // namespace
}  // namespace octavo::test
