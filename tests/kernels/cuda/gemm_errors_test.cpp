/* What fails in a product of kernels/cuda, and what the host is told. */
#include "kernels/cuda/plan.h"
#include "tests/kernels/cuda/gemm_case.h"
#include "tests/support/environment.h"

namespace octavo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr GemmCase kCase = {16, 32, 48};

struct Library {
  std::string path;
  octavo_status status;
  const char *found;
};

TEST(CudaGemmErrors, libraries_that_are_none) {
  Environment environment;
  for (const Library &l :
       {Library{"/nowhere/libcublasLt.so.13", OCTAVO_NO_RESOURCE, "/nowhere/libcublasLt.so.13"},
        Library{OCTAVO_FAKE_BLAS_OLD, OCTAVO_INCOMPATIBLE, "found version 120900"},
        Library{OCTAVO_FAKE_BLAS_PART, OCTAVO_INCOMPATIBLE, "cublasLtGetStatusName"}}) {
    GemmDevices devices(90, l.path);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(run_gemm(devices, kCase), l.status);
      EXPECT_THAT(devices.host().last_text(),
                  AllOf(HasSubstr(l.found), HasSubstr("expected"), HasSubstr("install cuBLAS")));
    }
    environment.set("OCTAVO_CUBLASLT", OCTAVO_FAKE_BLAS);
    EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK) << "nothing is remembered of the failure";
  }
}

/* The name alone, as the dynamic linker finds it: it is open already under that name. */
TEST(CudaGemmErrors, the_library_is_found_by_its_name) {
  Environment environment;
  fake_library();
  GemmDevices devices(90, "");
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK) << devices.host().last_text();
  EXPECT_EQ(fake_library().calls.size(), 1u);
}

TEST(CudaGemmErrors, settings_that_are_none) {
  Environment environment;
  for (const auto &[name, value] :
       {std::pair<const char *, const char *>{"OCTAVO_CUDA_GEMM", "fast"},
        {"OCTAVO_CUDA_TUNE", "9"},
        {"OCTAVO_CUDA_TUNE", "two"},
        {"OCTAVO_CUDA_GEMM_SMS", "-1"},
        {"OCTAVO_CUDA_GEMM_SMS", "5"},
        {"OCTAVO_CUDA_GEMM_WORKSPACE", "0"}}) {
    environment.set(name, value);
    cuda_on_cpu::reset();
    const FakeHost host;
    void *ctx = nullptr;
    EXPECT_EQ(cuda::open_device(kCuda, host.get(), &ctx), OCTAVO_INVALID);
    EXPECT_EQ(ctx, nullptr);
    EXPECT_THAT(host.last_text(), AllOf(HasSubstr(name), HasSubstr(value), HasSubstr("expected")));
    environment.unset(name);
  }
}

struct Answer {
  cublasStatus_t answer;
  octavo_status status;
};

constexpr Answer kAnswers[] = {{CUBLAS_STATUS_NOT_INITIALIZED, OCTAVO_FAILED_DEVICE},
                               {CUBLAS_STATUS_ALLOC_FAILED, OCTAVO_NO_RESOURCE},
                               {CUBLAS_STATUS_INVALID_VALUE, OCTAVO_INVALID},
                               {CUBLAS_STATUS_ARCH_MISMATCH, OCTAVO_UNSUPPORTED},
                               {CUBLAS_STATUS_MAPPING_ERROR, OCTAVO_FAILED_DEVICE},
                               {CUBLAS_STATUS_EXECUTION_FAILED, OCTAVO_FAILED_DEVICE},
                               {CUBLAS_STATUS_INTERNAL_ERROR, OCTAVO_FAILED_DEVICE},
                               {CUBLAS_STATUS_NOT_SUPPORTED, OCTAVO_UNSUPPORTED},
                               {CUBLAS_STATUS_LICENSE_ERROR, OCTAVO_FAILED_DEVICE}};

TEST(CudaGemmErrors, every_answer_of_a_call_reaches_the_caller) {
  for (const Answer &a : kAnswers) {
    for (cublasStatus_t fake_blas::State::*step :
         {&fake_blas::State::create, &fake_blas::State::describe, &fake_blas::State::matmul}) {
      const bool is_refusal =
          step == &fake_blas::State::matmul && a.answer == CUBLAS_STATUS_NOT_SUPPORTED;
      if (is_refusal) continue; /* a_refused_call_takes_another_way */
      const bool is_create = step == &fake_blas::State::create;
      GemmDevices devices(90, OCTAVO_FAKE_BLAS, is_create ? a.answer : CUBLAS_STATUS_SUCCESS);
      fake_library().*step = a.answer;
      EXPECT_EQ(run_gemm(devices, kCase), a.status) << a.answer;
      EXPECT_THAT(devices.host().last_text(), HasSubstr("CUBLAS_STATUS_")) << a.answer;
      EXPECT_EQ(devices.host().codes().back(), a.status);
      fake_library().*step = CUBLAS_STATUS_SUCCESS;
      EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK) << "the next call starts anew";
    }
  }
}

/* "I cannot" of the heuristics leads to another way, with the same bits; a failure does not. */
TEST(CudaGemmErrors, answers_of_the_heuristics) {
  for (const Answer &a : kAnswers) {
    GemmDevices devices;
    fake_library().heuristic = a.answer;
    const bool is_refusal =
        a.answer == CUBLAS_STATUS_NOT_SUPPORTED || a.answer == CUBLAS_STATUS_ARCH_MISMATCH;
    EXPECT_EQ(run_gemm(devices, kCase), is_refusal ? octavo_status{OCTAVO_OK} : a.status);
    EXPECT_TRUE(fake_library().calls.empty());
    EXPECT_THAT(devices.host().last_text(),
                HasSubstr(is_refusal ? "has no algorithm" : "CUBLAS_STATUS_"));
  }
}

/* A defect of ours, which a slower way would hide. */
TEST(CudaGemmErrors, a_question_that_the_library_calls_malformed_is_an_error) {
  GemmDevices devices;
  GemmCase g = kCase;
  g.bias = OCTAVO_BF16;
  fake_library().heuristic = CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run_gemm(devices, g), OCTAVO_INVALID);
    EXPECT_THAT(devices.host().last_text(),
                AllOf(HasSubstr("CUBLAS_STATUS_INVALID_VALUE"), HasSubstr("M = 16, N = 32, K = 48"),
                      HasSubstr("a 0x80a stride 48"), HasSubstr("bias 0x1004"),
                      HasSubstr("scale modes 0 0"), HasSubstr("report this line"),
                      HasSubstr("OCTAVO_CUDA_GEMM=reference")));
  }
  fake_library().heuristic = CUBLAS_STATUS_SUCCESS;
  EXPECT_EQ(run_gemm(devices, g), OCTAVO_OK) << "it was not kept as a product without algorithm";
  EXPECT_EQ(fake_library().calls.size(), 1u);
}

TEST(CudaGemmErrors, a_product_without_algorithm_is_told_once_and_asked_for_once) {
  GemmDevices devices;
  fake_library().heuristic = CUBLAS_STATUS_NOT_SUPPORTED;
  ASSERT_EQ(run_gemm(devices, kCase), OCTAVO_OK);
  const int asked = fake_library().heuristics;
  ASSERT_EQ(run_gemm(devices, kCase), OCTAVO_OK);
  EXPECT_EQ(fake_library().heuristics, asked);
  EXPECT_EQ(devices.host().texts().size(), 1u);
}

TEST(CudaGemmErrors, a_refused_call_takes_another_way) {
  GemmDevices devices;
  fake_library().matmul = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK) << devices.host().last_text();
  EXPECT_TRUE(fake_library().calls.empty());
  EXPECT_THAT(devices.host().last_text(), HasSubstr("has no algorithm"));
}

/* The first product may be one that a graph captures. */
TEST(CudaGemmErrors, the_library_opens_with_the_device) {
  GemmDevices devices;
  EXPECT_EQ(fake_library().handles, 1);
  cuda_on_cpu::script().is_capturing = true;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK) << devices.host().last_text();
}

TEST(CudaGemmErrors, a_library_that_did_not_open_is_left_alone_in_a_capture) {
  Environment environment;
  GemmDevices devices(90, "/nowhere/libcublasLt.so.13");
  EXPECT_TRUE(devices.host().texts().empty()) << devices.host().last_text();
  cuda_on_cpu::script().is_capturing = true;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_WRONG_STATE);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("captured"));
  cuda_on_cpu::script().is_capturing = false;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_NO_RESOURCE);
}

/* Its epilogue reads vectors of 16 bytes, at whatever address. */
TEST(CudaGemmErrors, a_bias_at_an_odd_address_is_added_later) {
  for (const int64_t at : {1, 2, 7, 8}) {
    GemmDevices devices;
    GemmCase g = {16, 32, 48};
    g.bias = OCTAVO_BF16;
    g.bias_at = at;
    EXPECT_EQ(run_gemm(devices, g), OCTAVO_OK) << devices.host().last_text();
    ASSERT_EQ(fake_library().calls.size(), 1u);
    EXPECT_EQ(fake_library().calls[0].has_bias, at % 8 == 0) << at;
  }
}

/* A process has one current device, which torch, too, relies on. */
TEST(CudaGemmErrors, the_current_device_stays) {
  Environment environment;
  environment.set("OCTAVO_CUBLASLT", OCTAVO_FAKE_BLAS);
  cuda_on_cpu::reset();
  cuda_on_cpu::script().devices = 3;
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  const FakeHost host;
  void *ctx = nullptr;
  ASSERT_EQ(cuda::open_device({OCTAVO_DEVICE_CUDA, 1}, host.get(), &ctx), OCTAVO_OK);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 2);
  cuda::close_device(ctx);
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 2);
}

/* Such as 11.0, for which nothing of sm_100 runs. */
TEST(CudaGemmErrors, a_device_without_code_is_refused) {
  cuda_on_cpu::reset();
  cuda_on_cpu::script().capability_major = 11;
  cuda_on_cpu::script().has_code = false;
  const FakeHost host;
  void *ctx = nullptr;
  EXPECT_EQ(cuda::open_device(kCuda, host.get(), &ctx), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(host.last_text(), AllOf(HasSubstr("11.0"), HasSubstr("ARCHITECTURES=110")));
  cuda_on_cpu::reset();
}

struct Failure {
  cudaError_t error;
  bool is_lasting;
};

/* A failed capture, and a launch with too many resources, leave the device as it was. */
TEST(CudaGemmErrors, only_errors_that_stay_end_a_device) {
  for (const Failure f : {Failure{cudaErrorLaunchOutOfResources, false},
                          {cudaErrorNotSupported, false},
                          {cudaErrorStreamCaptureUnsupported, false},
                          {cudaErrorStreamCaptureInvalidated, false},
                          {cudaErrorIllegalAddress, true},
                          {cudaErrorMisalignedAddress, true},
                          {cudaErrorECCUncorrectable, true}}) {
    GemmDevices devices;
    GemmCase g = kCase;
    g.a = g.b = OCTAVO_E5M2; /* a kernel of this tree converts them */
    cuda_on_cpu::script().launch_error = f.error;
    EXPECT_EQ(run_gemm(devices, g), OCTAVO_FAILED_DEVICE) << f.error;
    EXPECT_EQ(devices.host().last_text().find("restart it") != std::string::npos, f.is_lasting)
        << devices.host().last_text();
    cuda_on_cpu::script().launch_error = cudaSuccess;
    EXPECT_EQ(run_gemm(devices, g), f.is_lasting ? OCTAVO_FAILED_DEVICE : OCTAVO_OK) << f.error;
  }
}

TEST(CudaGemmErrors, too_little_workspace_for_any_algorithm) {
  GemmDevices devices;
  fake_library().workspace = size_t{33} << 20;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_OK);
  EXPECT_TRUE(fake_library().calls.empty());
  EXPECT_THAT(devices.host().last_text(), HasSubstr("has no algorithm"));
}

TEST(CudaGemmErrors, each_detour_is_told_once) {
  GemmDevices devices;
  GemmCase g = {16, 16, 16};
  g.a = g.b = OCTAVO_E5M2;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("E5M2 by E5M2"));
  g = {16, 17, 16};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("multiples of 16 bytes"));
  EXPECT_EQ(fake_library().calls.size(), 4u);
  g = {16, 16, 32};
  g.a_scale = g.b_scale = OCTAVO_BLOCK_1X32;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("compute capability"));
  EXPECT_EQ(fake_library().calls.size(), 4u) << "the reference kernel";
  g = {16, 16, 32};
  g.a = OCTAVO_BF16;
  g.a_scale = kNoScale;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("these dtypes"));
  EXPECT_EQ(devices.host().texts().size(), 4u);
  EXPECT_EQ(fake_library().calls.size(), 6u);
}

/* A kernel of an earlier verb broke the device, and cuBLASLt is the first to hear of it. */
TEST(CudaGemmErrors, a_lost_device_refuses_the_next_product) {
  GemmDevices devices;
  ASSERT_EQ(run_gemm(devices, kCase), OCTAVO_OK);
  cuda_on_cpu::script().launches_before_failure = 0;
  float value = 1.0f;
  octavo_scale_values c = {};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_SCALE_VALUES;
  c.out = &value;
  c.in = &value;
  c.n = 1;
  ASSERT_EQ(cuda::scale_values(devices.cuda(), &c), OCTAVO_OK) << "the device tells later";
  fake_library().matmul = CUBLAS_STATUS_EXECUTION_FAILED;
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_FAILED_DEVICE);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("cudaErrorIllegalAddress"));
  fake_library().matmul = CUBLAS_STATUS_SUCCESS;
  const size_t calls = fake_library().calls.size();
  EXPECT_EQ(run_gemm(devices, kCase), OCTAVO_FAILED_DEVICE);
  EXPECT_THAT(devices.host().last_text(), HasSubstr("failed before"));
  EXPECT_EQ(fake_library().calls.size(), calls);
}

/* CUDA's own library, where it is at hand, takes every attribute as it is set here: that needs no
 * device. What it computes is the matter of the tests on a GPU. */
TEST(CudaGemmErrors, the_real_library_takes_the_descriptions) {
  const char *chosen = std::getenv("OCTAVO_REAL_CUBLASLT");
  const char *path = chosen == nullptr ? "/usr/local/cuda/lib64/libcublasLt.so.13" : chosen;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "no cuBLASLt here: " << dlerror();
  cuda::Blas blas;
#define OCTAVO_FIND(name)                                                              \
  blas.name = reinterpret_cast<decltype(blas.name)>(dlsym(library, "cublasLt" #name)); \
  ASSERT_NE(blas.name, nullptr) << #name;
  OCTAVO_BLAS_FUNCTIONS(OCTAVO_FIND)
#undef OCTAVO_FIND
  EXPECT_GE(blas.GetVersion(), cuda::kOldestBlas);
  cuda::PlanKey key = {};
  key.m = key.n = key.k = key.a_stride = key.b_stride = key.d_stride = 64;
  key.workspace = uint64_t{1} << 20;
  key.a_dtype = key.b_dtype = OCTAVO_E4M3FN;
  key.d_dtype = key.bias_dtype = OCTAVO_BF16;
  key.sm_target = 16;
  key.is_fast = 1;
  for (const int32_t mode :
       {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
        CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
        CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F}) {
    key.a_scaling = key.b_scaling = mode;
    cublasLtMatmulDesc_t descriptor = nullptr;
    EXPECT_EQ(cuda::make_descriptor(blas, key, &descriptor), CUBLAS_STATUS_SUCCESS) << mode;
    EXPECT_EQ(blas.MatmulDescDestroy(descriptor), CUBLAS_STATUS_SUCCESS);
    /* Layouts and preferences too; without a handle the question itself is not answered. */
    cuda::Plan plan;
    EXPECT_EQ(cuda::make_plan(blas, key, {}, &plan), CUBLAS_STATUS_NOT_INITIALIZED) << mode;
    EXPECT_FALSE(plan.is_possible);
    for (const auto layout : {plan.a, plan.b, plan.d}) EXPECT_NE(layout, nullptr);
    cuda::destroy_plan(blas, &plan);
  }
}

/* The sizes that a backend asks for: affine over multiples of 64 in each of M, N and K. */
TEST(CudaGemmErrors, workspace_never_falls_and_is_affine) {
  GemmDevices devices;
  const auto bytes = [&](int64_t m, int64_t n, int64_t k) {
    const octavo_tensor a = {nullptr, m, k, k, OCTAVO_E4M3FN, 0};
    const octavo_tensor b = {nullptr, n, k, k, OCTAVO_E5M2, 0};
    octavo_gemm c = {};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_GEMM;
    c.a = &a;
    c.b = &b;
    uint64_t out = 0;
    EXPECT_TRUE(cuda::gemm_workspace(devices.cuda(), c, &out));
    return static_cast<int64_t>(out);
  };
  for (int64_t i = 1; i < 9; ++i) {
    const int64_t s = 64 * i;
    EXPECT_EQ(bytes(s + 128, 64, 192) - bytes(s + 64, 64, 192),
              bytes(s + 64, 64, 192) - bytes(s, 64, 192));
    EXPECT_EQ(bytes(64, s + 128, 192) - bytes(64, s + 64, 192),
              bytes(64, s + 64, 192) - bytes(64, s, 192));
    EXPECT_EQ(bytes(192, 64, s + 128) - bytes(192, 64, s + 64),
              bytes(192, 64, s + 64) - bytes(192, 64, s));
  }
  for (int64_t size = 0; size < 300; ++size) {
    EXPECT_LE(bytes(size, 5, 70), bytes(size + 1, 5, 70));
    EXPECT_LE(bytes(5, size, 70), bytes(5, size + 1, 70));
    EXPECT_LE(bytes(70, 5, size), bytes(70, 5, size + 1));
  }
  const octavo_tensor huge = {nullptr, INT64_MAX / 2, 4096, 4096, OCTAVO_E4M3FN, 0};
  octavo_gemm c = {};
  c.a = &huge;
  c.b = &huge;
  uint64_t out = 0;
  EXPECT_FALSE(cuda::gemm_workspace(devices.cuda(), c, &out)) << "more than 2^63 bytes";
}

}  // namespace
}  // namespace octavo::test
