/* What linears of te and msamp ask of cuBLASLt: the real plugins on kernels/cuda over the fake
 * library, which refuses what cuBLASLt refuses, at 20 shapes, beside the same on kernels/cpu.
 */
#include <algorithm>
#include <array>

#include "octavo/octavo.h"
#include "tests/conformance/host.h"
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
    t.backend = octavo_backend_of(run_.get());
    t.optimizer = octavo_optimizer_of(run_.get());
    t.gradients = octavo_gradients_of(run_.get());
    t.desc = *octavo_session_desc_of(run_.get());
    /* Both sides without panels of packed codes, so that their slots are alike. */
    caps_ = *t.desc.caps;
    caps_.pack_rows = 0;
    caps_.alignment = 16;
    caps_.flags |= OCTAVO_CAPS_GEMM_K_CONTIGUOUS_ONLY;
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
    ASSERT_EQ(products().size(), 6u) << where << ": fprop, dgrad and wgrad of two batches";
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
      const bool is_gradient = i % 3 != 0;
      EXPECT_EQ(c.b_type, is_gradient && std::string(GetParam().backend) == "msamp" ? CUDA_R_8F_E5M2
                                                                                    : c.b_type);
    }
    const GemmShape &fprop = products()[0];
    EXPECT_EQ(fprop.n, n) << where;
    EXPECT_EQ(fprop.k, k) << where;
    EXPECT_GE(fprop.m, padded(shape[2])) << where;
  }
  /* A padded product has an f32 bias; beside a bf16 output that is beyond cuBLASLt's epilogue. */
  for (const std::string &text : devices_->host().texts())
    EXPECT_NE(text.find("through f32 tiles"), std::string::npos) << text;
  EXPECT_EQ(cuda_on_cpu::counters().synchronisations, 0);
  EXPECT_EQ(cuda_on_cpu::counters().allocations, 1) << "scratch, when the device was opened";
}

/* Sizes that need no padding, and a bias that the library adds. */
TEST_P(GemmLinears, a_forward_is_three_launches_at_most) {
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
  EXPECT_LE(after.launches - before.launches + after.copies - before.copies + after.memsets -
                before.memsets + 1,
            3);
  EXPECT_EQ(after.synchronisations, before.synchronisations);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_TRUE(devices_->host().texts().empty()) << devices_->host().last_text();
}

INSTANTIATE_TEST_SUITE_P(Recipes, GemmLinears, testing::ValuesIn(kRecipes),
                         [](const auto &i) { return std::string(i.param.name); });

}  // namespace
}  // namespace octavo::test
