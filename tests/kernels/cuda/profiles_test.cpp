// What a driver and a CUDA runtime may answer, and what a host learns of it: it trains on the
// device or is refused with the reason, never moved to another one. The driver's answers come from
// libcuda and NVML, which liboctavo asks; the runtime's come later, inside the plugin, and may
// contradict them.
#include "tests/kernels/cuda/plugin_fixture.h"

namespace octavo::test {
namespace {

struct Profile {
  const char *name;
  const char *driver;                      // OCTAVO_FAKE_GPU
  void (*runtime)(cuda_on_cpu::Script &);  // null: a healthy one
  octavo_status status;
  const char *text;  // of the refusal, or of what octavo_explain says of the device
};

constexpr const char kHealthy[] = "cuda=13000 driver=580.65.06";

constexpr Profile kProfiles[] = {
    {"sm_89", "cuda=13000 capability=89",
     [](cuda_on_cpu::Script &s) { s.capability_major = 8, s.capability_minor = 9; }, OCTAVO_OK,
     "sm_89"},
    {"sm_90", kHealthy, nullptr, OCTAVO_OK, "sm_90"},
    {"sm_100", "cuda=13000 capability=100", [](cuda_on_cpu::Script &s) { s.capability_major = 10; },
     OCTAVO_OK, "sm_100"},
    {"sm_120", "cuda=13000 capability=120", [](cuda_on_cpu::Script &s) { s.capability_major = 12; },
     OCTAVO_OK, "sm_120"},
    {"driver_without_a_device", "cuda=13000 init=100", nullptr, OCTAVO_UNSUPPORTED, "driver"},
    {"driver_of_cuda_11", "cuda=11080", nullptr, OCTAVO_UNSUPPORTED, "11.8"},
    {"driver_of_cuda_12", "cuda=12040 driver=550.54.14", nullptr, OCTAVO_UNSUPPORTED,
     "a driver for CUDA 13.0 or later"},
    {"no_gpu", "cuda=13000 count=0", nullptr, OCTAVO_UNSUPPORTED, "no CUDA device"},
    {"sm_80", "cuda=13000 capability=80", nullptr, OCTAVO_UNSUPPORTED, "8.9"},
    {"mig_without_an_instance", "cuda=13000 count=0 gpus=1 mig=1", nullptr, OCTAVO_UNSUPPORTED,
     "MIG"},
    {"memory_is_full", "cuda=13000 free=100", nullptr, OCTAVO_UNSUPPORTED, "memory"},
    {"runtime_wants_a_newer_driver", kHealthy,
     [](cuda_on_cpu::Script &s) { s.device_count_error = cudaErrorInsufficientDriver; },
     OCTAVO_UNSUPPORTED, "The driver is older than CUDA 13.0"},
    {"runtime_finds_no_device", kHealthy, [](cuda_on_cpu::Script &s) { s.devices = 0; },
     OCTAVO_UNSUPPORTED, "CUDA finds no device"},
    {"runtime_does_not_start", kHealthy,
     [](cuda_on_cpu::Script &s) { s.device_count_error = cudaErrorInitializationError; },
     OCTAVO_UNSUPPORTED, "CUDA finds no device"},
    {"runtime_counts_other_devices", kHealthy,
     [](cuda_on_cpu::Script &s) { s.capability_major = 8, s.capability_minor = 0; },
     OCTAVO_UNSUPPORTED, "The device has no FP8 units"},
    {"memory_went_in_between", kHealthy, [](cuda_on_cpu::Script &s) { s.free_bytes = 0; },
     OCTAVO_NO_RESOURCE, "the kernels of the device: memory or another resource is short"},
};

class CudaProfile : public CudaPlugin, public testing::WithParamInterface<Profile> {};

TEST_P(CudaProfile, trains_or_says_why_not) {
  const Profile &profile = GetParam();
  environment.set("OCTAVO_FAKE_GPU", profile.driver);
  // The library that liboctavo will open, so that its runtime can be told before.
  void *library = dlopen(OCTAVO_FAKE_KERNELS_DIR "/kernels-cuda.so", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  if (profile.runtime != nullptr) profile.runtime(script());
  request.set("fp8.backend", "te").set("plugins.probe", "never");
  RunPtr run;
  ASSERT_EQ(request.open(run), profile.status) << request.host.error();
  if (profile.status == OCTAVO_OK) {
    EXPECT_EQ(octavo_run_session_desc(run.get())->device.type, uint32_t{OCTAVO_DEVICE_CUDA});
    EXPECT_THAT(line("device"), HasSubstr(profile.text));
  } else {
    EXPECT_THAT(request.host.error(), HasSubstr(profile.text));
    EXPECT_THAT(request.host.error(), testing::Not(HasSubstr("kernels cpu")));
  }
  run.reset();
  function<void()>("cuda_on_cpu_reset")();
  dlclose(library);
}

INSTANTIATE_TEST_SUITE_P(All, CudaProfile, testing::ValuesIn(kProfiles),
                         [](const auto &each) { return std::string(each.param.name); });

}  // namespace
}  // namespace octavo::test
