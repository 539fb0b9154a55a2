// Every call that kernels offer, in every format, is compared by a check or is in the closed list
// of the verifier. The CPU's kernels offer them all.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/draft/msamp.h"
#include "octavo/plugin.h"
#include "sdk/verify/kernels/checks.h"

namespace octavo::conformance::kernels {
namespace {

// The CPU's kernels as a plugin, with every level that this machine has.
Tables tables_of_cpu() {
  void *library = dlopen(OCTAVO_TEST_KERNELS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Failure(dlerror());
  const auto query =
      reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(library, OCTAVO_PLUGIN_SYMBOL));
  const octavo_plugin *plugin = nullptr;
  if (query(silent_host(), &plugin) != OCTAVO_OK) throw Failure(last_message());
  Tables tables;
  tables.kernels =
      static_cast<const octavo_kernels *>(plugin->get_interface(OCTAVO_STR(OCTAVO_KERNELS_ID)));
  tables.memory =
      static_cast<const octavo_memory *>(plugin->get_interface(OCTAVO_STR(OCTAVO_MEMORY_ID)));
  tables.device = {12, 0};
  return tables;
}

bool is_listed(const std::string &name) {
  return std::ranges::any_of(not_compared(),
                             [&](const NotCompared &one) { return name == one.name; });
}

constexpr uint32_t kDtypes[] = {OCTAVO_F32,     OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2,
                                OCTAVO_E8M0FNU, OCTAVO_I32,  OCTAVO_U8,  OCTAVO_E2M1};
constexpr uint32_t kGranularities[] = {
    OCTAVO_PER_TENSOR, OCTAVO_PER_ROW,    OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128,
    OCTAVO_BLOCK_1X32, OCTAVO_FLAT_256,   OCTAVO_BLOCK_32X32, OCTAVO_EXPANDED_128,
    OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16};

// Of a question to `ability`, which of its fields are read (kernels.h): of these the dtype is not.
bool has_dtype(uint32_t kind) {
  return kind != OCTAVO_KIND_SCALE_FROM_AMAX && kind != OCTAVO_KIND_DELAYED_SCALE_UPDATE &&
         kind != OCTAVO_KIND_COPY && kind != OCTAVO_KIND_GRADIENT_SCALE &&
         kind != OCTAVO_KIND_SCALE_VALUES && kind != OCTAVO_KIND_PRESCALE_UPDATE &&
         kind != OCTAVO_KIND_COUNT;
}
bool has_granularity(uint32_t kind) {
  return has_dtype(kind) && kind != OCTAVO_KIND_PACK;
}

// The CPU has no streams: the late device of this folder has, under `octavo plugin verify`.
bool cannot_be_queued(const std::string &check) {
  return check == "kernels.streams" || check == "kernels.capture" ||
         check == "kernels.current_device";
}

void expect_compared(bool is_compared, const std::string &name) {
  EXPECT_NE(is_compared, is_listed(name))
      << name
      << (is_compared ? ": a check compares it, so it is not for the closed list"
                      : ": no check compares it");
}

TEST(VerifiedCalls, all_that_the_cpu_offers_is_compared_or_listed) {
  const Tables tables = tables_of_cpu();
  const Side cpu(tables, silent_host());
  ASSERT_TRUE(compared().functions.empty()) << "the checks of another test would count";
  for (const Check &check : checks()) {
    try {
      check.run({tables, &cpu, 1});
    } catch (const Skip &skip) {
      const bool is_known = std::string(check.name) == "kernels.layer" ||
                            cannot_be_queued(check.name) ||
                            (std::string(check.name) == "kernels.pack" && cpu.caps.pack_rows == 0);
      EXPECT_TRUE(is_known) << check.name << ": " << skip.what();
    } catch (const Failure &failure) {
      ADD_FAILURE() << check.name << ": " << failure.what();
    }
    take_steps(true);
  }
  for (const std::string &name : names_of_calls())
    if (name != "pack" || cpu.caps.pack_rows != 0)
      expect_compared(compared().functions.count(name) > 0, name);
  for (const uint32_t kind : kCalls) {
    for (const uint32_t granularity : kGranularities)
      for (const uint32_t dtype : kDtypes) {
        if ((!has_dtype(kind) && dtype != kDtypes[0]) ||
            (!has_granularity(kind) && granularity != 0))
          continue;
        const octavo_ability q = asking(kind, dtype, granularity, 0, dtype, granularity);
        if (cpu.decision(q) == OCTAVO_DECLINE) continue;
        expect_compared(
            compared().formats.count({kind, has_dtype(kind) ? dtype : 0, granularity}) > 0,
            text("call ", kind, " of ", name_of(dtype), ", ", granularity_name(granularity)));
      }
    for (uint32_t flag = 1; flag != 0 && flag < 1 << 16; flag *= 2) {
      bool is_offered = false;
      for (const uint32_t granularity : kGranularities)
        for (const uint32_t dtype : kDtypes)
          is_offered = is_offered || cpu.decision(asking(kind, dtype, granularity, flag, dtype,
                                                         granularity)) != OCTAVO_DECLINE;
      if (!is_offered) continue;
      const auto &flags = compared().flags;
      expect_compared(std::ranges::any_of(flags,
                                          [&](const std::array<uint32_t, 2> &one) {
                                            return one[0] == kind && (one[1] & flag) != 0;
                                          }),
                      text("call ", kind, ", flag ", flag));
    }
  }
}

}  // namespace
}  // namespace octavo::conformance::kernels
