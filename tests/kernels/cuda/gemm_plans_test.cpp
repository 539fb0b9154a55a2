/* What a product costs beside cuBLASLt's own call, once its plan is known: nothing that is counted
 * here. A program of its own: it replaces operator new.
 */
#include <thread>

#include "kernels/cuda/gemm_state.h"
#include "tests/kernels/cuda/gemm_product.h"
#include "tests/plugins/counting_new.h"

namespace octavo::test {
namespace {

const cuda::PlanCache &plans_of(const GemmDevices &devices) {
  return cuda::context_of(devices.cuda()).gemm.state.load()->plans;
}

struct Expected {
  uint32_t granularity;
  int capability;
  int launches;
};

TEST(CudaGemmPlans, a_known_product_is_one_call_and_nothing_else) {
  for (const Expected &e : {Expected{OCTAVO_PER_TENSOR, 89, 0}, Expected{OCTAVO_PER_TENSOR, 90, 0},
                            Expected{OCTAVO_PER_ROW, 90, 0}, Expected{OCTAVO_BLOCK_1X128, 90, 1},
                            Expected{OCTAVO_BLOCK_1X32, 100, 1}}) {
    GemmDevices devices(e.capability);
    fake_library().is_device = Product::is_device;
    fake_library().calls.reserve(16);
    Product product(devices, 32, 48, 128, e.granularity, OCTAVO_BF16);
    ASSERT_EQ(product.run(), OCTAVO_OK) << devices.host().last_text() << fake_library().refusal;
    fake_library().calls.clear();
    const int made = fake_library().objects_made;
    const int asked = fake_library().heuristics;
    const cuda_on_cpu::Counters before = cuda_on_cpu::counters();
    const uint64_t allocated = allocations.load();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(product.run(), OCTAVO_OK);
    const uint64_t allocated_by_calls = allocations.load() - allocated;
    const cuda_on_cpu::Counters after = cuda_on_cpu::counters();
    EXPECT_EQ(fake_library().calls.size(), 3u);
    EXPECT_TRUE(fake_library().calls[0].has_bias);
    EXPECT_EQ(fake_library().objects_made, made) << "descriptors";
    EXPECT_EQ(fake_library().heuristics, asked);
    EXPECT_EQ(after.launches - before.launches, 3 * e.launches);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.synchronisations, before.synchronisations);
    EXPECT_EQ(after.copies + after.memsets, before.copies + before.memsets);
    /* The fake library copies both operands; a launch is a std::function there. */
    if (e.launches == 0) {
      EXPECT_EQ(allocated_by_calls, 3u * 2u);
    }
    EXPECT_EQ(plans_of(devices).size(), 1u);
  }
}

/* The library is not asked to compute here, so all that is allocated would be our own. */
TEST(CudaGemmPlans, a_hit_allocates_nothing) {
  GemmDevices devices;
  Product product(devices, 32, 48, 128, OCTAVO_PER_TENSOR);
  ASSERT_EQ(product.run(), OCTAVO_OK);
  cuda::GemmState &state = *cuda::context_of(devices.cuda()).gemm.state.load();
  cuda::PlanKey key = {};
  key.m = key.n = key.k = 16;
  key.a_stride = key.b_stride = key.d_stride = 16;
  key.workspace = uint64_t{1} << 20;
  key.a_dtype = key.b_dtype = OCTAVO_E4M3FN;
  key.d_dtype = OCTAVO_F32;
  cuda::PlanCache::Lease lease;
  ASSERT_EQ(state.plans.take(key, {}, &lease), CUBLAS_STATUS_SUCCESS);
  state.plans.give_back(lease);
  const uint64_t before = allocations.load();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(state.plans.take(key, {}, &lease), CUBLAS_STATUS_SUCCESS);
    state.plans.give_back(lease);
  }
  EXPECT_EQ(allocations.load(), before);
}

TEST(CudaGemmPlans, what_differs_has_a_plan_of_its_own) {
  GemmDevices devices;
  Product product(devices, 64, 64, 128, OCTAVO_PER_TENSOR, OCTAVO_BF16);
  octavo_gemm &c = product.call;
  size_t plans = 0;
  const auto expect_new = [&](const char *what) {
    ASSERT_EQ(product.run(), OCTAVO_OK) << what << devices.host().last_text();
    EXPECT_EQ(plans_of(devices).size(), ++plans) << what;
    ASSERT_EQ(product.run(), OCTAVO_OK);
    EXPECT_EQ(plans_of(devices).size(), plans) << what << " again";
  };
  expect_new("first");
  c.accumulate = 1;
  expect_new("accumulate");
  c.fast_accumulation = 1;
  expect_new("fast");
  EXPECT_TRUE(fake_library().calls.back().is_fast);
  EXPECT_TRUE(fake_library().calls.back().accumulates);
  c.bias = nullptr;
  expect_new("no bias");
  octavo_tensor d = *c.d;
  c.d = &d;
  d.data = static_cast<uint8_t *>(d.data) + 16;
  d.rows = 63;
  octavo_tensor a = *c.a;
  a.rows = 63;
  c.a = &a;
  expect_new("rows");
  d.data = static_cast<uint8_t *>(d.data) + 16;
  a.dtype = OCTAVO_E5M2;
  expect_new("dtype");
  d.data = static_cast<uint8_t *>(d.data) - 32;
  ASSERT_EQ(product.run(), OCTAVO_OK);
  EXPECT_EQ(plans_of(devices).size(), plans) << "bits do not depend on where a tensor lies";
  octavo_tensor bias = product.bias();
  c.bias = &bias;
  expect_new("bias");
  bias.data = static_cast<uint8_t *>(bias.data) + 2;
  expect_new("a bias at an odd place");
  c.workspace = static_cast<uint8_t *>(c.workspace) + 16;
  ASSERT_EQ(product.run(), OCTAVO_OK);
  EXPECT_EQ(plans_of(devices).size(), plans) << "the workspace's address is no part of a plan";
}

TEST(CudaGemmPlans, the_store_is_bounded_and_drops_what_was_used_longest_ago) {
  GemmDevices devices;
  Product product(devices, 16, 16, 16, OCTAVO_PER_TENSOR);
  ASSERT_EQ(product.run(), OCTAVO_OK);
  const cuda::Blas &blas = cuda::context_of(devices.cuda()).gemm.state.load()->blas;
  const int objects = fake_library().objects;
  {
    cuda::PlanCache plans(blas, 3);
    cuda::PlanKey key = {};
    key.n = key.k = key.a_stride = key.b_stride = key.d_stride = 16;
    key.workspace = uint64_t{1} << 20;
    key.a_dtype = key.b_dtype = OCTAVO_E4M3FN;
    key.d_dtype = OCTAVO_F32;
    const auto use = [&](int64_t m) {
      cuda::PlanCache::Lease lease;
      key.m = m;
      EXPECT_EQ(plans.take(key, {}, &lease), CUBLAS_STATUS_SUCCESS);
      plans.give_back(lease);
    };
    for (const int64_t m : {1, 2, 3, 1, 4}) use(m);
    EXPECT_EQ(plans.size(), 3u);
    const int asked = fake_library().heuristics;
    use(1);
    EXPECT_EQ(fake_library().heuristics, asked) << "1 was used after 2";
    use(2);
    EXPECT_EQ(fake_library().heuristics, asked + 1) << "2 was dropped";
    cuda::PlanCache::Lease held[4];
    for (int64_t i = 0; i < 4; ++i) {
      key.m = 100 + i;
      EXPECT_EQ(plans.take(key, {}, &held[i]), CUBLAS_STATUS_SUCCESS);
    }
    EXPECT_EQ(plans.size(), 4u) << "none of them may go";
    for (const auto &lease : held) plans.give_back(lease);
  }
  EXPECT_EQ(fake_library().objects, objects);
}

/* Each call in flight has a descriptor to itself. */
TEST(CudaGemmPlans, threads_share_plans) {
  GemmDevices devices;
  Product product(devices, 16, 16, 16, OCTAVO_PER_TENSOR);
  ASSERT_EQ(product.run(), OCTAVO_OK);
  cuda::GemmState &state = *cuda::context_of(devices.cuda()).gemm.state.load();
  cuda::PlanKey key = {};
  key.m = key.n = key.k = key.a_stride = key.b_stride = key.d_stride = 32;
  key.workspace = uint64_t{1} << 20;
  key.a_dtype = key.b_dtype = OCTAVO_E4M3FN;
  key.d_dtype = OCTAVO_F32;
  cuda::PlanCache::Lease first;
  cuda::PlanCache::Lease second;
  ASSERT_EQ(state.plans.take(key, {}, &first), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(state.plans.take(key, {}, &second), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(first.entry, second.entry);
  EXPECT_NE(first.descriptor, second.descriptor);
  state.plans.give_back(first);
  state.plans.give_back(second);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        cuda::PlanCache::Lease lease;
        if (state.plans.take(key, {}, &lease) != CUBLAS_STATUS_SUCCESS) ++failures;
        if (lease.descriptor == nullptr) ++failures;
        state.plans.give_back(lease);
      }
    });
  }
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(state.plans.size(), 2u);
}

/* The second of three algorithms is the fastest. */
void advance_clock(int algorithm) {
  cuda_on_cpu::script().milliseconds += algorithm == 1 ? 1.0f : 2.0f;
}

TEST(CudaGemmPlans, tuning_takes_the_fastest_and_leaves_sums_alone) {
  setenv("OCTAVO_CUDA_TUNE", "3", 1);
  setenv("OCTAVO_CUDA_GEMM_SMS", "2", 1);
  {
    GemmDevices devices;
    octavo_kernels_caps caps = {};
    caps.size = sizeof(caps);
    ASSERT_EQ(cuda::describe(devices.cuda(), &caps), OCTAVO_OK);
    EXPECT_EQ(caps.flags & OCTAVO_CAPS_DETERMINISTIC, 0u);
    fake_library().on_matmul = advance_clock;
    GemmCase g = {32, 48, 64};
    for (const bool accumulates : {false, true}) {
      g.accumulates = accumulates;
      ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
      EXPECT_EQ(fake_library().calls.size(), 3u * 4u + 1u) << "three algorithms, four times each";
      EXPECT_EQ(fake_library().calls.back().algorithm, 1);
      EXPECT_EQ(fake_library().calls.back().sm_target, 2);
      fake_library().calls.clear();
    }
    cuda_on_cpu::script().is_capturing = true;
    g.m = 64;
    ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK);
    EXPECT_EQ(fake_library().calls.size(), 1u) << "what a graph captures is not timed";
  }
  unsetenv("OCTAVO_CUDA_TUNE");
  unsetenv("OCTAVO_CUDA_GEMM_SMS");
}

}  // namespace
}  // namespace octavo::test
