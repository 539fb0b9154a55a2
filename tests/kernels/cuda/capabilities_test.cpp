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

// The answer about a product of these codes.
octavo_ability asked(const octavo_session_desc &desc, uint32_t a_dtype, uint32_t a_granularity,
                     uint32_t b_dtype, uint32_t b_granularity) {
  octavo_ability q{};
  q.size = sizeof q;
  q.kind = OCTAVO_KIND_ABILITY;
  q.call = OCTAVO_KIND_GEMM;
  q.dtype = a_dtype;
  q.granularity = a_granularity;
  q.b_dtype = b_dtype;
  q.b_granularity = b_granularity;
  EXPECT_EQ(desc.kernels->ability(desc.kernels_ctx, &q), OCTAVO_OK);
  EXPECT_EQ(q.decision == OCTAVO_ACCEPT, q.evidence.size == 0);
  return q;
}

TEST_F(CudaCapabilities, products_are_those_of_tensor_cores) {
  for (const Gpu &gpu : kGpus) {
    use(gpu.capability);
    const Asked r("delayed");
    const RunPtr run = r.opened();
    ASSERT_NE(run, nullptr) << r.host.error();
    const octavo_session_desc &desc = *octavo_run_session_desc(run.get());
    const auto decision = [&](uint32_t a, uint32_t b) {
      return asked(desc, OCTAVO_E4M3FN, a, OCTAVO_E4M3FN, b).decision;
    };
    const auto either = [](bool has) {
      return has ? uint32_t{OCTAVO_ACCEPT} : uint32_t{OCTAVO_ACCEPT_EMULATED};
    };
    EXPECT_EQ(decision(OCTAVO_PER_TENSOR, OCTAVO_PER_TENSOR), uint32_t{OCTAVO_ACCEPT});
    EXPECT_EQ(decision(OCTAVO_PER_ROW, OCTAVO_PER_ROW), uint32_t{OCTAVO_ACCEPT});
    EXPECT_EQ(decision(OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128), either(gpu.has_long));
    EXPECT_EQ(decision(OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128), either(gpu.has_long));
    EXPECT_EQ(decision(OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_128X128), either(false));
    EXPECT_EQ(decision(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32), either(gpu.has_mx));
    EXPECT_EQ(decision(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32), either(gpu.has_mx));
    EXPECT_EQ(decision(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X128), uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(decision(OCTAVO_FLAT_256, OCTAVO_FLAT_256), uint32_t{OCTAVO_DECLINE});
    EXPECT_EQ(asked(desc, OCTAVO_E5M2, OCTAVO_PER_TENSOR, OCTAVO_E5M2, OCTAVO_PER_TENSOR).decision,
              uint32_t{OCTAVO_ACCEPT_EMULATED});
    EXPECT_EQ(asked(desc, OCTAVO_BF16, OCTAVO_PER_TENSOR, OCTAVO_BF16, OCTAVO_PER_TENSOR).decision,
              uint32_t{OCTAVO_ACCEPT});
  }
}

TEST_F(CudaCapabilities, recipes_that_no_tensor_core_multiplies_are_refused_with_another) {
  for (const Gpu &gpu : kGpus) {
    use(gpu.capability);
    for (const char *recipe : {"delayed", "current", "block", "mx", "nvfp4", "rowwise"}) {
      const std::string name = recipe;
      const bool runs = name == "block" ? gpu.has_long
                        : name == "mx"  ? gpu.has_mx
                                        : name != "nvfp4";
      const Asked r(recipe);
      RunPtr run;
      EXPECT_EQ(r.open(run), runs ? OCTAVO_OK : OCTAVO_UNSUPPORTED)
          << gpu.capability << " " << name << r.host.error();
      if (runs) continue;
      EXPECT_THAT(r.host.error(), HasSubstr("lack a product of the recipe"));
      EXPECT_THAT(r.host.error(),
                  HasSubstr(name == "mx"      ? "from compute capability 10.0 on"
                            : name == "nvfp4" ? "float4_e2m1fn"
                                              : "with compute capability 9.0 only"));
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
  EXPECT_THAT(said, HasSubstr("lack a product of the recipe"));
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
