// samples/opencl_kernels: what cannot be is refused, who opens a device shares it, and trainings
// have the CPU's numbers. The numbers of each call are checked by `octavo plugin verify`, a test of
// the sample's own project.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <CL/cl.h>

#include "octavo/memory.h"
#include "octavo/plugin.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/samples/replica_group.h"
#include "tests/support/program.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr octavo_device kOpenCl = {4, 0};

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
  }
  void TearDown() override {
    if (ctx_ != nullptr) table_->close_device(ctx_);
  }

  FakeHost host_;
  const octavo_kernels *table_ = nullptr;
  const octavo_memory *memory_ = nullptr;
  void *ctx_ = nullptr;
};

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

Finished check_with(const std::string &variable) {
  return run_program({"/usr/bin/env", variable,
                      std::string("OCTAVO_PLUGIN_PATH=") + OCTAVO_OPENCL_DIR, OCTAVO_CLI, "check",
                      "--set", "device.kind=opencl"});
}

TEST(OpenClPlugin, without_a_driver_the_refusal_says_what_to_install) {
  const Finished check = check_with("OCL_ICD_VENDORS=/dev/null");
  EXPECT_NE(check.exit_code, 0);
  EXPECT_THAT(check.out + check.err,
              HasSubstr("OpenCL has no driver: install the driver of your device"));
}

TEST(OpenClPlugin, without_a_folder_for_pocl_the_refusal_says_which) {
  cl_platform_id only = nullptr;
  cl_uint count = 0;
  char name[128] = "";
  if (clGetPlatformIDs(1, &only, &count) == CL_SUCCESS && count == 1)
    clGetPlatformInfo(only, CL_PLATFORM_NAME, sizeof(name) - 1, name, nullptr);
  if (std::string(name) != "Portable Computing Language")
    GTEST_SKIP() << "pocl is not the only driver";
  const Finished check = check_with("POCL_CACHE_DIR=/proc/none");
  EXPECT_NE(check.exit_code, 0);
  EXPECT_THAT(check.out + check.err,
              HasSubstr("pocl needs a folder to write to, HOME or POCL_CACHE_DIR"));
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
  gpt_test::write_text(options.config, "layers.min_gain = \"off\"\nlayers.skip = []\n");
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
