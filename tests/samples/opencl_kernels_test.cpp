// samples/opencl_kernels: each call gives the bytes of the CPU's kernels, trainings the CPU's
// numbers, and what cannot be is refused.
//
// A call runs on two copies of one memory, the CPU's and the device's, all of which is compared: so
// a write that is none of the call's shows, too.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <CL/cl.h>
#include <random>

#include "octavo/memory.h"
#include "octavo/plugin.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/samples/replica_group.h"
#include "tests/support/program.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using Ready = std::vector<unsigned char>;

constexpr octavo_device kOpenCl = {4, 0};
constexpr uint32_t kDtypes[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

bool has_device() {
  cl_platform_id platforms[16];
  cl_uint count = 0, devices = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return false;
  for (cl_uint i = 0; i < count && i < 16 && devices == 0; ++i)
    clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 0, nullptr, &devices);
  return devices > 0;
}

#define NEEDS_OPENCL() \
  if (!has_device()) GTEST_SKIP() << "OpenCL has no device: apt-get install pocl-opencl-icd"

class OpenClKernels : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_OPENCL();
    const std::string file = std::string(OCTAVO_OPENCL_DIR) + "/opencl_kernels.so";
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto query =
        reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(library, OCTAVO_PLUGIN_SYMBOL));
    const octavo_plugin *plugin = nullptr;
    ASSERT_EQ(query(host_.get(), &plugin), OCTAVO_OK);
    table_ =
        static_cast<const octavo_kernels *>(plugin->get_interface(OCTAVO_STR(OCTAVO_KERNELS_ID)));
    memory_ =
        static_cast<const octavo_memory *>(plugin->get_interface(OCTAVO_STR(OCTAVO_MEMORY_ID)));
    ASSERT_EQ(table_->open_device(kOpenCl, host_.get(), &ctx_), OCTAVO_OK) << host_.last_text();
    ASSERT_EQ(octavo_cpu_kernels()->open_device(kCpu, host_.get(), &cpu_), OCTAVO_OK);
  }
  void TearDown() override {
    if (ctx_ != nullptr) table_->close_device(ctx_);
    if (cpu_ != nullptr) octavo_cpu_kernels()->close_device(cpu_);
  }

  // call(table, ctx, base, workspace): addresses are those of `bytes` from base on.
  template <typename Call>
  void expect_same(const std::string &what, const Ready &bytes, Call call) {
    Ready on_cpu = bytes, on_device(bytes.size()), workspace(8 << 20);
    void *base = nullptr;
    ASSERT_EQ(memory_->allocate(ctx_, bytes.size(), &base), OCTAVO_OK);
    ASSERT_EQ(memory_->copy(ctx_, base, bytes.data(), bytes.size()), OCTAVO_OK);
    EXPECT_EQ(call(*octavo_cpu_kernels(), cpu_, on_cpu.data(), workspace.data()), OCTAVO_OK)
        << host_.last_text();
    EXPECT_EQ(call(*table_, ctx_, static_cast<unsigned char *>(base), nullptr), OCTAVO_OK)
        << host_.last_text();
    ASSERT_EQ(memory_->copy(ctx_, on_device.data(), base, bytes.size()), OCTAVO_OK);
    memory_->release(ctx_, base);
    EXPECT_NE(on_cpu, bytes) << what << ": the call writes nothing";
    const auto at = static_cast<size_t>(
        std::mismatch(on_cpu.begin(), on_cpu.end() - 1, on_device.begin()).first - on_cpu.begin());
    EXPECT_TRUE(on_cpu == on_device) << what << ": byte " << at << " is " << int{on_cpu[at]}
                                     << " on the CPU, " << int{on_device[at]} << " on the device";
    ++compared_;
  }

  FakeHost host_;
  const octavo_kernels *table_ = nullptr;
  const octavo_memory *memory_ = nullptr;
  void *ctx_ = nullptr;
  void *cpu_ = nullptr;
  int compared_ = 0;
};

// Factors and collected values first, then the tensors.
constexpr size_t kFactors = 1024, kFirst = 4096, kRoom = 64 << 10;
enum Factor { kScale, kInverse, kInverseT, kAmax, kNonfinite, kCounter, kInInverse };

void set(Ready *bytes, size_t index, float value) {
  std::memcpy(bytes->data() + index * sizeof(float), &value, sizeof(value));
}

// wild: any bits at all in what is read, with subnormals, infinities and NaN.
Ready memory_of(uint32_t dtype, bool wild, size_t size = kFirst + 4 * kRoom) {
  std::mt19937 random(dtype + wild);
  std::normal_distribution<float> normal;
  Ready bytes(size);
  const size_t width = OCTAVO_DTYPE_BITS(dtype) / 8;
  for (size_t i = kFirst; i + 4 <= size; i += width) {
    const uint32_t bits = random();
    if (wild) std::memcpy(bytes.data() + i, &bits, width);
    if (!wild) encode(dtype, 3 * normal(random), bytes.data() + i);
  }
  const float factors[] = {19.7f, 0, 0, 0.25f, 0, 7, 0.37f};
  for (size_t i = 0; i < std::size(factors); ++i) set(&bytes, i, factors[i]);
  return bytes;
}

octavo_tensor matrix(unsigned char *base, int part, uint32_t dtype, int64_t rows, int64_t cols,
                     int64_t gap = 3) {
  return {base + kFirst + static_cast<size_t>(part) * kRoom, rows, cols, cols + gap, dtype, 0};
}
float *factor(unsigned char *base, size_t which) {
  return reinterpret_cast<float *>(base) + which;
}

TEST_F(OpenClKernels, casts) {
  for (const uint32_t in : kDtypes)
    for (const uint32_t code : {OCTAVO_E4M3FN, OCTAVO_E5M2})
      for (const uint32_t rule : {0u, 1u, 2u, 3u})
        for (const int variant : {0, 1, 2, 3, 4, 5}) {
          const bool wild = variant % 2 == 1;
          expect_same(
              testing::PrintToString(std::vector<uint32_t>{in, code, rule, uint32_t(variant)}),
              memory_of(in, wild),
              [&](auto &table, void *ctx, unsigned char *base, void *workspace) {
                octavo_tensor x = matrix(base, 0, in, 37, 53), out = matrix(base, 1, code, 48, 64),
                              out_t = matrix(base, 2, code, 53, 37, 0);
                const octavo_scale inverse = per_tensor(factor(base, kInverse));
                const octavo_scale inverse_t = per_tensor(factor(base, kInverseT));
                auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
                q.in = &x;
                if (in == OCTAVO_E4M3FN || in == OCTAVO_E5M2)
                  q.in_scale_inv = factor(base, kInInverse);
                q.out = variant == 4 ? nullptr : &out;
                q.out_t = variant == 0 ? nullptr : &out_t;
                q.out_scale_inv = &inverse;
                q.out_t_scale_inv = variant == 3 ? &inverse_t : nullptr;
                q.scale = rule == 0 || variant >= 2 ? factor(base, kScale) : nullptr;
                q.counter = rule != 0 && variant >= 2 ? factor(base, kCounter) : nullptr;
                q.window = variant == 2 ? 7 : 8; /* reached, not reached */
                q.amax = factor(base, kAmax);
                q.nonfinite = variant == 5 ? nullptr : factor(base, kNonfinite);
                q.format_max = code == OCTAVO_E4M3FN ? 448 : 57344;
                q.eps = variant == 0 ? 100.0f : 0;
                q.rule = rule;
                q.workspace = workspace;
                return table.quantize(ctx, &q);
              });
        }
  EXPECT_EQ(compared_, 5 * 2 * 4 * 6);
}

TEST_F(OpenClKernels, conversions_and_amax) {
  for (const uint32_t in : kDtypes)
    for (const uint32_t plain : kPlain)
      for (const uint32_t accumulate : {0u, 1u})
        expect_same(testing::PrintToString(std::vector<uint32_t>{in, plain, accumulate}),
                    memory_of(in, accumulate == 0),
                    [&](auto &table, void *ctx, unsigned char *base, void *) {
                      octavo_tensor x = matrix(base, 0, in, 31, 70),
                                    out = matrix(base, 1, plain, 31, 70, 5);
                      const octavo_scale inverse = per_tensor(factor(base, kInInverse));
                      auto d = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
                      d.in = &x;
                      d.scale_inv = &inverse;
                      d.out = &out;
                      d.accumulate = accumulate;
                      auto a = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
                      a.in = &x;
                      a.in_scale_inv = accumulate != 0 ? &inverse : nullptr;
                      a.amax = factor(base, kAmax);
                      a.nonfinite = factor(base, kNonfinite);
                      const octavo_status status = table.dequantize(ctx, &d);
                      return status != OCTAVO_OK ? status : table.compute_amax(ctx, &a);
                    });
}

struct Product {
  int64_t m, n, k;
  uint32_t a, b, d, layout, accumulate;
  int bias; /* 0: none, 2: after the product was rounded */
};

TEST_F(OpenClKernels, products) {
  const Product products[] = {
      {70, 37, 45, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 0, 0, 0},
      {70, 37, 45, OCTAVO_E5M2, OCTAVO_E4M3FN, OCTAVO_BF16, 0, 1, 1},
      {64, 128, 96, OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16, 0, 0, 2},
      {1, 1, 1, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 0, 1, 2},
      {5, 130, 0, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_F32, 0, 0, 1},
      {33, 65, 47, OCTAVO_F32, OCTAVO_F32, OCTAVO_F32, 0, 0, 1},
      {33, 65, 47, OCTAVO_BF16, OCTAVO_F32, OCTAVO_BF16, OCTAVO_GEMM_A_KM, 1, 0},
      {33, 65, 47, OCTAVO_F16, OCTAVO_BF16, OCTAVO_F32, OCTAVO_GEMM_B_KN, 1, 2},
      {33, 65, 47, OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN, 0, 1}};
  for (const Product &p : products)
    expect_same(
        testing::PrintToString(&p - products), memory_of(p.a == OCTAVO_E5M2 ? p.a : p.b, false),
        [&](auto &table, void *ctx, unsigned char *base, void *workspace) {
          const bool a_km = (p.layout & OCTAVO_GEMM_A_KM) != 0,
                     b_kn = (p.layout & OCTAVO_GEMM_B_KN) != 0;
          octavo_tensor a = matrix(base, 0, p.a, a_km ? p.k : p.m, a_km ? p.m : p.k),
                        b = matrix(base, 1, p.b, b_kn ? p.k : p.n, b_kn ? p.n : p.k),
                        bias = matrix(base, 2, p.b, 1, p.n), d = matrix(base, 3, p.d, p.m, p.n);
          bias.dtype = OCTAVO_DTYPE_BITS(p.b) == 8 ? OCTAVO_F16 : p.b;
          const octavo_scale a_inverse = per_tensor(factor(base, kInInverse));
          const octavo_scale b_inverse = per_tensor(factor(base, kScale));
          auto g = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
          g.a = &a, g.b = &b, g.d = &d, g.bias = p.bias != 0 ? &bias : nullptr;
          g.a_scale_inv = OCTAVO_DTYPE_BITS(p.a) == 8 ? &a_inverse : nullptr;
          g.b_scale_inv = OCTAVO_DTYPE_BITS(p.b) == 8 ? &b_inverse : nullptr;
          g.accumulate = p.accumulate;
          g.bias_after = p.bias == 2 ? 1 : 0;
          g.layout = p.layout;
          g.workspace = workspace;
          return table.gemm(ctx, &g);
        });
}

TEST_F(OpenClKernels, sums) {
  for (const uint32_t in : kDtypes)
    for (const auto &[rows, cols] : {std::pair<int64_t, int64_t>{1, 5}, {300, 70}, {1031, 1024}})
      for (const uint32_t accumulate : {0u, 1u})
        expect_same(
            "sums",
            memory_of(in, false, kFirst + 4 * static_cast<size_t>(rows * (cols + 1) + cols)),
            [&](auto &table, void *ctx, unsigned char *base, void *workspace) {
              octavo_tensor x = matrix(base, 0, in, rows, cols, accumulate);
              const octavo_scale inverse = per_tensor(factor(base, kInInverse));
              auto s = make_call<octavo_sum>(OCTAVO_KIND_SUM);
              s.in = &x;
              s.in_scale_inv = accumulate != 0 ? &inverse : nullptr;
              s.out = base + kFirst + 4 * static_cast<size_t>(rows * (cols + 1));
              s.workspace = workspace;
              s.accumulate = accumulate;
              return table.sum_rows(ctx, &s);
            });
}

TEST_F(OpenClKernels, histories_and_copies) {
  for (const uint32_t rule : {1u, 2u, 3u})
    for (uint32_t flags = 0; flags < 16; ++flags)
      for (const uint64_t length : {1u, 2u, 5u})
        expect_same(
            testing::PrintToString(std::vector<uint64_t>{rule, flags, length}),
            memory_of(OCTAVO_F32, flags % 3 == 1),
            [&](auto &table, void *ctx, unsigned char *base, void *) {
              constexpr size_t kColumns = 97;
              float *values = factor(base, kFactors);
              auto u = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
              u.amax = values, u.scale = values + kColumns, u.history = values + 3 * kColumns;
              u.counter = flags % 2 == 0 ? values + 2 * kColumns : nullptr;
              u.n = kColumns, u.length = length;
              u.format_max = 448, u.rule = rule, u.history_flags = flags;
              u.margin = flags % 4 == 3 ? 130 : static_cast<int32_t>(flags) - 3;
              u.use_max = flags / 4 % 2;
              auto c = make_call<octavo_copy>(OCTAVO_KIND_COPY);
              c.out = base + kFirst + kRoom + 1, c.in = flags % 2 == 0 ? base + kFirst : nullptr;
              c.bytes = 1003;
              const octavo_status status = table.delayed_scale_update(ctx, &u);
              return status != OCTAVO_OK ? status : table.copy(ctx, &c);
            });
}

TEST_F(OpenClKernels, what_cannot_be_is_refused) {
  void *memory = nullptr;
  EXPECT_EQ(memory_->allocate(ctx_, uint64_t{1} << 45, &memory), OCTAVO_NO_RESOURCE);
  EXPECT_EQ(memory, nullptr);
  EXPECT_THAT(host_.last_text(), HasSubstr("a buffer of 35184372088832 bytes answered"));
  EXPECT_THAT(host_.last_text(), HasSubstr("use a smaller batch or model"));

  ASSERT_EQ(memory_->allocate(ctx_, 256, &memory), OCTAVO_OK);
  float own[64] = {};
  auto c = make_call<octavo_copy>(OCTAVO_KIND_COPY);
  c.out = own, c.bytes = 256;
  EXPECT_EQ(table_->copy(ctx_, &c), OCTAVO_INVALID);
  EXPECT_THAT(host_.last_text(),
              HasSubstr("expected memory that octavo.memory/1 of these kernels"));
  c.out = memory, c.bytes = 257;
  EXPECT_EQ(table_->copy(ctx_, &c), OCTAVO_INVALID);
  c.bytes = 256, c.stream = own;
  EXPECT_EQ(table_->copy(ctx_, &c), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(host_.last_text(), HasSubstr("expected null, the device's one queue"));
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // the driver has threads
  EXPECT_EXIT(static_cast<volatile float *>(memory)[0] = 1, testing::KilledBySignal(SIGSEGV), "");
  memory_->release(ctx_, memory);
  void *other = nullptr;
  EXPECT_EQ(table_->open_device({4, 31}, host_.get(), &other), OCTAVO_UNSUPPORTED);
}

// Memory of one who opens the device is memory of the others, who may leave first.
TEST_F(OpenClKernels, who_opens_a_device_shares_it) {
  void *other = nullptr, *memory = nullptr;
  ASSERT_EQ(table_->open_device(kOpenCl, host_.get(), &other), OCTAVO_OK);
  ASSERT_EQ(memory_->allocate(other, 4, &memory), OCTAVO_OK);
  const float written = 3;
  float read = 0;
  EXPECT_EQ(memory_->copy(ctx_, memory, &written, 4), OCTAVO_OK);
  EXPECT_EQ(memory_->copy(other, &read, memory, 4), OCTAVO_OK);
  table_->close_device(other);
  EXPECT_EQ(memory_->copy(ctx_, &read, memory, 4), OCTAVO_OK);
  EXPECT_EQ(read, written);
  memory_->release(ctx_, memory);
}

TEST(OpenClPlugin, without_a_driver_the_refusal_says_what_to_install) {
  const Finished check = run_program({"/usr/bin/env", "OCL_ICD_VENDORS=/dev/null",
                                      std::string("OCTAVO_PLUGIN_PATH=") + OCTAVO_OPENCL_DIR,
                                      OCTAVO_CLI, "check", "--set", "device.kind=opencl"});
  EXPECT_NE(check.exit_code, 0);
  EXPECT_THAT(check.out + check.err,
              HasSubstr("OpenCL found no device: install the driver of your device"));
}

}  // namespace
}  // namespace octavo::test

namespace gpt {
namespace {

Options on(const std::string &device) {
  Options options = tiny();
  options.steps = 4;
  options.device = device;
  options.config = gpt_test::test_directory() + "/octavo.toml";
  gpt_test::write_text(options.config, "layers.min_gain = \"off\"\n");
  return options;
}

// Before the first run, whose options are the whole configuration but for this.
class Plugins : public testing::Environment {
 public:
  void SetUp() override { setenv("OCTAVO_PLUGIN_PATH", OCTAVO_OPENCL_DIR, 1); }
};
const auto *const plugins = testing::AddGlobalTestEnvironment(new Plugins);

TEST(OpenClTraining, has_the_numbers_of_the_cpu) {
  if (!octavo::test::has_device())
    GTEST_SKIP() << "OpenCL has no device: apt-get install pocl-opencl-icd";
  for (const char *run : {"te:recipe=current", "te:recipe=delayed",
                          "te:recipe=current,backward_override=dequantized"})
    for (const int ranks : {1, 2}) {
      const RunResult cpu = train_once(on("cpu"), run, ranks);
      const RunResult device = train_once(on("opencl"), run, ranks);
      ASSERT_EQ(device.steps.size(), 4u);
      EXPECT_EQ(numbers(device), numbers(cpu)) << run;
      EXPECT_THAT(device.report, testing::HasSubstr("kernels opencl_kernels"));
      for (const Placement &p : device.placements) EXPECT_EQ(p.where, device.backend) << p.layer;
    }
}

}  // namespace
}  // namespace gpt
