/* Opening the CPU: verdicts, the choice of a level, what describe says.
 *
 * A forced level that the machine lacks must fail loudly; that is tested on whatever level is
 * missing here, and a machine that has them all is told by the list of supported levels.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

octavo_verdict probe(octavo_device device) {
  octavo_verdict verdict = {};
  octavo_verdict_sink sink = {};
  sink.size = sizeof(sink);
  sink.kind = OCTAVO_KIND_VERDICT_SINK;
  sink.ctx = &verdict;
  sink.verdict = [](void *ctx, const octavo_verdict *v) {
    *static_cast<octavo_verdict *>(ctx) = *v;
  };
  EXPECT_EQ(octavo_cpu_kernels()->probe_device(device, &sink), OCTAVO_OK);
  return verdict;
}

octavo_kernels_caps describe(const Kernels &kernels) {
  octavo_kernels_caps caps = {};
  caps.size = sizeof(caps);
  EXPECT_EQ(kernels.table->describe(kernels.ctx(), &caps), OCTAVO_OK);
  return caps;
}

TEST(Device, probe_accepts_the_cpu_as_emulated_and_declines_the_rest) {
  EXPECT_EQ(probe(kCpu).decision, static_cast<uint32_t>(OCTAVO_ACCEPT_EMULATED));
  for (const octavo_device device : {octavo_device{OCTAVO_DEVICE_CUDA, 0}, octavo_device{77, 0},
                                     octavo_device{OCTAVO_DEVICE_CPU, 3}}) {
    const octavo_verdict verdict = probe(device);
    EXPECT_EQ(verdict.decision, static_cast<uint32_t>(OCTAVO_DECLINE));
    EXPECT_EQ(verdict.reason, static_cast<uint32_t>(OCTAVO_REASON_DEVICE));
    EXPECT_GT(verdict.text.size, 0u);
    EXPECT_GT(verdict.evidence.size, 0u);
    EXPECT_GT(verdict.remedy.size, 0u);
  }
}

TEST(Device, the_table_is_complete) {
  const octavo_kernels *table = octavo_cpu_kernels();
  ASSERT_EQ(table->size, sizeof(octavo_kernels));
  ASSERT_EQ(table->kind, static_cast<uint32_t>(OCTAVO_KIND_KERNELS));
  std::vector<void *> entries((sizeof(octavo_kernels) - 8) / sizeof(void *));
  std::memcpy(entries.data(), reinterpret_cast<const char *>(table) + 8,
              entries.size() * sizeof(void *));
  EXPECT_EQ(std::count(entries.begin(), entries.end(), nullptr), 0);
}

TEST(Device, describe_names_the_level_and_its_flags) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(1, level);
    const octavo_kernels_caps caps = describe(kernels);
    EXPECT_EQ(std::string(caps.id.data, caps.id.size), "cpu." + level);
    EXPECT_EQ(caps.alignment, 1u);
    EXPECT_EQ(caps.pack_rows, level == "avx512_bf16" ? 32u : 0u);
    EXPECT_EQ(caps.flags, static_cast<uint64_t>(OCTAVO_CAPS_EXACT_GEMM | OCTAVO_CAPS_DETERMINISTIC |
                                                OCTAVO_CAPS_EMULATED));
  }
}

/* Caps of a host that was built before a field came: what lies behind its size stays. */
TEST(Device, describe_writes_no_field_that_a_host_does_not_have) {
  const Kernels kernels;
  octavo_kernels_caps caps = {};
  caps.size = OCTAVO_SIZE_THROUGH(octavo_kernels_caps, alignment);
  caps.pack_rows = 77;
  ASSERT_EQ(kernels.table->describe(kernels.ctx(), &caps), OCTAVO_OK);
  EXPECT_EQ(caps.alignment, 1u);
  EXPECT_EQ(caps.pack_rows, 77u);
}

TEST(Device, the_baseline_always_works_and_a_missing_level_is_an_error) {
  const std::vector<std::string> supported = supported_levels();
  ASSERT_FALSE(supported.empty());
  EXPECT_EQ(supported.front(), "baseline");
  for (const char *level : {"avx2", "avx512", "avx512_bf16", "neon"}) {
    if (std::count(supported.begin(), supported.end(), level) == 1) continue;
    Kernels kernels(1, level);
    EXPECT_NE(kernels.status(), OCTAVO_OK);
    EXPECT_EQ(kernels.ctx(), nullptr);
    EXPECT_THAT(kernels.host().last_text(),
                HasSubstr(std::string("OCTAVO_FORCE_KERNELS=") + level));
  }
}

TEST(Device, a_reserved_level_is_an_error_that_says_so) {
  if (Kernels(0, "avx10_2").host().last_text().find("is not a level") != std::string::npos) {
    GTEST_SKIP() << "this build has no x86 levels";
  }
  Kernels kernels(0, "avx10_2");
  EXPECT_EQ(kernels.status(), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(kernels.ctx(), nullptr);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("OCTAVO_FORCE_KERNELS=avx10_2"));
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("no kernels for that instruction set"));
}

TEST(Device, an_unknown_level_is_an_error_that_lists_the_known_ones) {
  Kernels kernels(1, "mmx");
  EXPECT_EQ(kernels.status(), OCTAVO_INVALID);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("OCTAVO_FORCE_KERNELS=mmx"));
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("baseline"));
}

TEST(Device, open_refuses_other_devices_and_incomplete_hosts) {
  FakeHost host;
  void *ctx = &host;
  const octavo_kernels *table = octavo_cpu_kernels();
  EXPECT_EQ(table->open_device({OCTAVO_DEVICE_CUDA, 1}, host.get(), &ctx), OCTAVO_UNSUPPORTED);
  EXPECT_EQ(ctx, nullptr);
  EXPECT_THAT(host.last_text(), HasSubstr("device type 2, index 1; expected type 1"));
  EXPECT_EQ(table->open_device(kCpu, nullptr, &ctx), OCTAVO_INVALID);
  EXPECT_EQ(table->open_device(kCpu, host.get(), nullptr), OCTAVO_INVALID);
  EXPECT_THAT(host.last_text(), HasSubstr("ctx is null"));
}

}  // namespace
}  // namespace octavo::test
