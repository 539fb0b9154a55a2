// What each architecture multiplies, from the caps to the verdict of te: a recipe whose every
// product would be the reference kernel's is refused.
#include "tests/kernels/cuda/plugin_fixture.h"

namespace octavo::test {
namespace {

struct Gpu {
  int capability;
  bool has_long;  // blocks of 128
  bool has_mx;
};
constexpr Gpu kGpus[] = {
    {89, false, false}, {90, true, false}, {100, false, true}, {120, false, true}};

class CudaCapabilities : public CudaPlugin {
 protected:
  void use(int capability) {
    environment.set("OCTAVO_FAKE_GPU",
                    "cuda=13000 driver=580.65.06 capability=" + std::to_string(capability));
  }
  struct Asked : Request {
    explicit Asked(const char *recipe) {
      on_cuda(*this, OCTAVO_FAKE_KERNELS_DIR).set("layers.min_gain", "off");
      set("fp8.backend", "te").set("fp8.te.recipe", recipe);
    }
  };
};

TEST_F(CudaCapabilities, granularities_are_those_of_tensor_cores) {
  for (const Gpu &gpu : kGpus) {
    use(gpu.capability);
    const Asked r("delayed");
    const RunPtr run = r.opened();
    ASSERT_NE(run, nullptr) << r.host.error();
    const uint64_t found = octavo_session_desc_of(run.get())->caps->granularities;
    const auto has = [&](uint32_t granularity) { return (found >> granularity & 1) != 0; };
    EXPECT_TRUE(has(OCTAVO_PER_TENSOR));
    EXPECT_TRUE(has(OCTAVO_PER_ROW));
    EXPECT_TRUE(has(OCTAVO_FLAT_256)) << "of states, which no product reads";
    for (const uint32_t granularity : {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128})
      EXPECT_EQ(has(granularity), gpu.has_long) << gpu.capability;
    for (const uint32_t granularity : {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32})
      EXPECT_EQ(has(granularity), gpu.has_mx) << gpu.capability;
  }
}

TEST_F(CudaCapabilities, recipes_that_no_tensor_core_multiplies_are_refused_with_another) {
  for (const Gpu &gpu : kGpus) {
    use(gpu.capability);
    for (const char *recipe : {"delayed", "current", "block", "mx"}) {
      const std::string name = recipe;
      const bool runs = name == "block" ? gpu.has_long : name != "mx" || gpu.has_mx;
      const Asked r(recipe);
      RunPtr run;
      EXPECT_EQ(r.open(run), runs ? OCTAVO_OK : OCTAVO_UNSUPPORTED)
          << gpu.capability << " " << name << r.host.error();
      if (runs) continue;
      EXPECT_THAT(r.host.error(), HasSubstr("lack the scales of the recipe"));
      EXPECT_THAT(r.host.error(), HasSubstr("recipe = \"" + name + "\" needs scales of 1x"));
      const char *other = gpu.has_mx ? "mx" : gpu.has_long ? "block" : "current";
      EXPECT_THAT(r.host.error(), HasSubstr(std::string("fp8.te.recipe = \"") + other + "\""));
    }
  }
}

TEST_F(CudaCapabilities, the_report_of_a_fallback_says_what_the_device_lacks) {
  use(100);
  Asked r("block");
  r.text("fp8.fallback = [\"bf16\"]\n");
  std::string said;
  ASSERT_EQ(r.print(octavo_explain, "text", said), OCTAVO_OK) << r.host.error();
  EXPECT_THAT(said, HasSubstr("lack the scales of the recipe"));
  EXPECT_THAT(said, HasSubstr("1x128"));
}

// Slow on purpose, so nothing is refused.
TEST_F(CudaCapabilities, who_asks_for_the_reference_kernel_gets_every_recipe) {
  environment.set("OCTAVO_CUDA_GEMM", "reference");
  for (const Gpu &gpu : kGpus) {
    use(gpu.capability);
    for (const char *recipe : {"block", "mx"}) {
      const Asked r(recipe);
      RunPtr run;
      EXPECT_EQ(r.open(run), OCTAVO_OK) << gpu.capability << recipe << r.host.error();
    }
  }
}

}  // namespace
}  // namespace octavo::test
