// A training whose linears are on a GPU: made up, with device code that the CPU executes and memory
// that only the device may touch (tests/support/cuda_on_cpu/sealed.h).
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "host_adapters/standalone/error.h"
#include "octavo/kernels.h"
#include "tests/samples/replica_group.h"
#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/environment.h"
#include "tests/support/param_name.h"

namespace gpt {
namespace {

using testing::HasSubstr;

// Before the first run; where the fake driver lies must be known when the process starts.
class FakeGpu : public testing::Environment {
 public:
  void SetUp() override {
    setenv("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06", 1);
    setenv("OCTAVO_PLUGIN_PATH", OCTAVO_FAKE_KERNELS_DIR ":" OCTAVO_DEVICES_DIR, 1);
    setenv("CUDA_ON_CPU_SEALED", "1", 1);
  }
};
const auto *const fake_gpu = testing::AddGlobalTestEnvironment(new FakeGpu);

Options on(const std::string &device, const std::string &layers = "[]") {
  Options options = tiny();
  options.steps = 4;
  options.device = device;
  options.telemetry_every = 2;
  // Layers of this size gain nothing on a GPU, and would stay with the program.
  options.config = gpt_test::test_directory() + "/octavo.toml";
  gpt_test::write_text(
      options.config,
      "layers.min_gain = \"off\"\nlayers.skip = []\ndevice.layers = " + layers + "\n");
  return options;
}

// The numbers of a run, and those of the statistics of its casts.
std::vector<double> all_numbers(const RunResult &result) {
  std::vector<double> all = numbers(result);
  for (const StepRecord &record : result.steps) {
    for (const CastRecord &r : record.casts) {
      all.insert(all.end(), {r.amax.value_or(-1.0), r.scale.value_or(-1.0), r.saturated,
                             r.underflow, r.sqnr_db.value_or(-1.0)});
    }
  }
  return all;
}

struct GpuRun {
  const char *run;
  Fused fused;

  friend std::ostream &operator<<(std::ostream &out, const GpuRun &r) { return out << r.run; }
};

class EveryGpuRun : public testing::TestWithParam<GpuRun> {};

// The fake cuBLASLt adds up in the order of the CPU kernels, and so does every kernel.
TEST_P(EveryGpuRun, gives_the_numbers_of_the_cpu) {
  // Blocks of 32 begin with 10.0.
  const bool is_mx = std::string_view(GetParam().run) == "te:recipe=mx";
  setenv("OCTAVO_FAKE_GPU",
         is_mx ? "cuda=13000 driver=580.65.06 capability=100" : "cuda=13000 driver=580.65.06", 1);
  Options options = on("cpu");
  options.fused = GetParam().fused;
  const RunResult cpu = train_once(options, GetParam().run, 1);
  options.device = "cuda";
  const RunResult gpu = train_once(options, GetParam().run, 1);
  ASSERT_EQ(gpu.steps.size(), 4u);
  EXPECT_EQ(all_numbers(gpu), all_numbers(cpu));
  EXPECT_THAT(gpu.report, HasSubstr("cuda:0"));
  for (const Placement &p : gpu.placements) EXPECT_EQ(p.where, gpu.backend) << p.layer << p.reason;
  EXPECT_LT(gpu.steps.back().loss, gpu.steps.front().loss);
}

// Tables of octavo/draft pass through, too; and nothing of a layer's touches the GPU's memory.
TEST(GpuLayers, what_passes_through_one_has_the_same_bits) {
  setenv("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06", 1);
  for (const char *run : {"te:recipe=delayed,telemetry=true", "msamp:opt_level=O3"}) {
    const RunResult bare = train_once(on("cuda"), run, 1);
    const RunResult layered = train_once(on("cuda", "[\"int8\"]"), run, 1);
    EXPECT_EQ(all_numbers(layered), all_numbers(bare)) << run;
    EXPECT_THAT(layered.report, HasSubstr("kernels int8 on cuda\n"));
  }
}

// Emulation is for devices that have no units for FP8.
TEST(GpuLayers, a_number_format_that_a_gpu_would_emulate_is_refused) {
  try {
    train_once(on("cuda"), "int8", 1);
    ADD_FAILURE() << "it trained";
  } catch (const std::exception &e) {
    EXPECT_THAT(e.what(), HasSubstr("lack a cast of the recipe"));
    EXPECT_THAT(e.what(), HasSubstr("int8 in loops of the CPU"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Gpu, EveryGpuRun,
    testing::Values(GpuRun{"te:recipe=delayed,telemetry=true", Fused::kNo},
                    GpuRun{"te:recipe=current", Fused::kApply},
                    GpuRun{"te:recipe=block", Fused::kYes}, GpuRun{"te:recipe=mx", Fused::kYes},
                    GpuRun{"te:override_linear_precision=dgrad", Fused::kNo},
                    GpuRun{"msamp:opt_level=O1", Fused::kNo},
                    GpuRun{"msamp:opt_level=O2,gradient_accumulation=fp32", Fused::kNo},
                    GpuRun{"msamp:opt_level=O3", Fused::kNo}),
    octavo::test::kNameOfValue);

TEST(Gpu, ranks_share_it_and_give_the_numbers_of_the_cpu) {
  for (const char *run : {"te:recipe=delayed", "msamp:opt_level=O2"}) {
    Options options = on("cpu");
    options.ranks = 2;
    const RunResult cpu = train_once(options, run, 2);
    options.device = "cuda";
    EXPECT_EQ(numbers(train_once(options, run, 2)), numbers(cpu)) << run;
  }
}

TEST(Gpu, checkpoint_goes_on_where_the_other_device_ended) {
  for (const char *run : {"te:recipe=delayed", "msamp:opt_level=O2"}) {
    const RunResult whole = train_once(on("cpu"), run, 1);
    Options first = on("cuda");
    first.stop_after = 2;
    first.save = gpt_test::test_directory() + "/checkpoint";
    train_once(first, run, 1);
    Options second = on("cpu");
    second.resume = first.save;
    const RunResult rest = train_once(second, run, 1);
    ASSERT_EQ(rest.steps.size(), 2u) << run;
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(rest.steps[i].loss, whole.steps[2 + i].loss) << run;

    second.device = "cuda";
    EXPECT_EQ(numbers(train_once(second, run, 1)), numbers(rest)) << run;
  }
}

TEST(Gpu, infinite_gradient_skips_the_step) {
  Options options = on("cpu");
  options.inject_inf = 4;
  const RunResult cpu = train_once(options, "msamp:opt_level=O2", 1);
  options.device = "cuda";
  const RunResult gpu = train_once(options, "msamp:opt_level=O2", 1);
  EXPECT_GT(gpu.skipped_steps, 0);
  EXPECT_EQ(gpu.skipped_steps, cpu.skipped_steps);
  EXPECT_EQ(gpu.steps.back().loss, cpu.steps.back().loss);
}

TEST(Gpu, loss_of_the_device_is_told_with_its_first_error) {
  Group group("te", on("cuda"), 1);
  void *plugin = dlopen(OCTAVO_FAKE_KERNELS_DIR "/kernels-cuda.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(plugin, nullptr);
  auto script = reinterpret_cast<cuda_on_cpu::Script *(*)()>(dlsym(plugin, "cuda_on_cpu_script"))();
  script->launches_before_failure = 20;
  try {
    group.replicas[0]->take_step(group.corpus, 0);
    ADD_FAILURE() << "the step was taken";
  } catch (const std::runtime_error &e) {
    EXPECT_THAT(e.what(), HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_THAT(e.what(), HasSubstr("restart it from a checkpoint"));
  }
  reinterpret_cast<void (*)()>(dlsym(plugin, "cuda_on_cpu_reset"))();
  dlclose(plugin);
}

TEST(Gpu, none_is_a_refusal_and_not_the_cpu) {
  octavo::test::Environment environment;
  environment.set("OCTAVO_FAKE_GPU", "none");
  try {
    train_once(on("cuda"), "te", 1);
    ADD_FAILURE() << "it trained";
  } catch (const UserError &e) {
    EXPECT_THAT(e.what(), HasSubstr("no kernels for cuda are installed"));
  }
}

// What the tests above rest on: the seal is one.
TEST(SealedDevice, memory_is_out_of_the_reach_of_the_host) {
  train_once(on("cuda"), "te", 1);  // its kernels opened the pages
  Group group("te", on("cuda"), 1);
  OctavoRun &run = group.replicas[0]->octavo();
  const volatile auto *slot = static_cast<unsigned char *>(run.store()->address(0));
  ASSERT_NE(slot, nullptr);
  EXPECT_DEATH(*slot, "");
}

TEST(SealedDevice, kernels_do_not_reach_memory_of_the_host) {
  Group group("te", on("cuda"), 1);
  OctavoRun &run = group.replicas[0]->octavo();
  Buffer<float> x(16);
  auto quantize_from_the_host = [&] {
    const octavo_tensor in = octavo::view(x.data(), 1, 16);
    octavo_tensor out = run.staging().out(x.data(), 1, 16);
    octavo_prologue gelu = {};
    gelu.size = sizeof gelu;
    gelu.kind = OCTAVO_KIND_PROLOGUE;
    gelu.op = OCTAVO_PROLOGUE_GELU_TANH;
    gelu.in = &in;
    octavo_prologue_call call = {};
    call.size = sizeof call;
    call.kind = OCTAVO_KIND_PROLOGUE_CALL;
    call.prologue = &gelu;
    call.out = &out;
    const octavo_session_desc *desc = octavo_run_session_desc(run.get());
    octavo_status status = desc->kernels->prologue(desc->kernels_ctx, &call);
    if (status == OCTAVO_OK) {
      float y = 0.0f;
      status = static_cast<const octavo_memory *>(
                   octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_MEMORY_ID)))
                   ->copy(desc->kernels_ctx, &y, out.data, sizeof y);
    }
    std::_Exit(status == OCTAVO_FAILED_DEVICE ? 7 : 1);
  };
  EXPECT_EXIT(quantize_from_the_host(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gpt
