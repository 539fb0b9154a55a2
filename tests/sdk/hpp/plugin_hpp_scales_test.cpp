// Scales of rows and of blocks on octavo/plugin.hpp: codes, `saved`, weights, slots and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/plugin.hpp"
#include "sdk/verify/session.h"
#include "tests/sdk/hpp/plugin_hpp_backends.h"
#include "tests/sdk/hpp/plugin_hpp_target.h"
#include "tests/support/param_name.h"
#include "tests/support/recording_host.h"

namespace octavo::test {
namespace {

using namespace plugin;

// Every operand of every product has scales of one granularity, along the dimension it sums over.
template <uint32_t granularity>
class Scaled : public Backend<Scaled<granularity>> {
 public:
  static void check(const Device &, const NoOptions &, Verdicts &verdicts) {
    verdicts.need_product({OCTAVO_E4M3FN, granularity}, {OCTAVO_E4M3FN, granularity});
    verdicts.accept("float8_e4m3fn");
  }
  void declare(Slots &s) {
    nonfinite_ = s.nonfinite();
    weight_ = s.native_weight({OCTAVO_VERB_QUANTIZE_WEIGHT});
    cache_ = s.weight_codes("cache", OCTAVO_E4M3FN, kBothDirections, granularity);
  }
  void cast_weight(Pass &p, const WeightCall &c) const {
    Codes w = c[cache_];
    p.cast(c[weight_], w);
  }
  void forward(Pass &p, const ForwardCall &c) const {
    Codes x = c.keeps() ? p.saved_columns(c.k(), OCTAVO_E4M3FN, granularity) : Codes();
    p.add_rows(x, c.m(), c.k(), OCTAVO_E4M3FN, granularity);
    p.cast(c.x(), x);
    p.multiply(x.by_rows(), c[cache_].by_rows(), c.y(), c.bias());
  }
  void backward(Pass &p, const BackwardCall &c) const {
    Codes dy = p.codes(c.m(), c.n(), OCTAVO_E4M3FN, kBothDirections, granularity);
    p.cast(c.dy(), dy, {c[nonfinite_]});
    if (c.wants_dx()) p.multiply(dy.by_rows(), c[cache_].by_columns(), c.dx());
    if (c.wants_dw()) {
      const Codes x = p.saved_columns(c.k(), OCTAVO_E4M3FN, granularity);
      p.multiply(dy.by_columns(), x.by_columns(), c.dw(), nullptr, c.accumulates());
    }
    if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  }

 private:
  FloatSlot nonfinite_;
  MatrixSlot weight_;
  CodesSlot cache_;
};

// "name rows x cols / scale slot / granularity" of each slot, and the plan of one linear
// [20, 40] on kernels that want multiples of 16.
template <typename Tested>
std::pair<std::vector<std::string>, octavo_linear_plan> sealed() {
  const Opened opened;
  const conformance::Target t = opened.target<Tested>();
  conformance::Session session({t, 1, 16});
  session.add({{{"w", 20, 40}}, {{"l", "w"}}});
  session.seal();
  std::vector<std::string> all;
  for (const conformance::Slot &s : session.slots()) {
    const octavo_slot &d = s.desc;
    all.push_back(s.name + " " + std::to_string(d.rows) + "x" + std::to_string(d.cols));
    if (d.scale_slot != OCTAVO_NONE)
      all.back() += " by " + session.slots()[d.scale_slot].name + ", granularity " +
                    std::to_string(d.granularity);
  }
  return {all, session.plan(0)};
}

class PluginHppScales : public testing::TestWithParam<conformance::Check> {};

TEST_P(PluginHppScales, of_rows_pass) {
  expect_passes<Scaled<OCTAVO_PER_ROW>>(GetParam());
}
TEST_P(PluginHppScales, of_blocks_pass) {
  expect_passes<Scaled<OCTAVO_BLOCK_1X128>>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, PluginHppScales,
                         testing::ValuesIn(conformance::checks().begin(),
                                           conformance::checks().end()),
                         [](const auto &check) { return name_of_text(check.param.name); });

// Scales of the rows of x^T are as many as x has columns, for any M: 48 of 4 bytes.
TEST(PluginHppScaleSlots, of_rows) {
  const auto [slots, plan] = sealed<Scaled<OCTAVO_PER_ROW>>();
  EXPECT_THAT(slots, testing::ElementsAre("nonfinite 1x1", "weight 20x40",
                                          "cache 32x48 by cache/scale_inv, granularity 1",
                                          "cache/scale_inv 32x1",
                                          "cache_t 48x32 by cache_t/scale_inv, granularity 1",
                                          "cache_t/scale_inv 48x1"));
  EXPECT_EQ(plan.saved.row_multiple, 16u);
  EXPECT_EQ(plan.saved.bytes_per_row, 48u);
  EXPECT_EQ(plan.saved.fixed_bytes, 48u * 4);
}

// Scales of blocks along M follow M: 48 of 4 bytes for 128 rows, as whole bytes for each row.
TEST(PluginHppScaleSlots, of_blocks) {
  const auto [slots, plan] = sealed<Scaled<OCTAVO_BLOCK_1X128>>();
  EXPECT_THAT(slots, testing::ElementsAre("nonfinite 1x1", "weight 20x40",
                                          "cache 32x48 by cache/scale_inv, granularity 2",
                                          "cache/scale_inv 32x1",
                                          "cache_t 48x32 by cache_t/scale_inv, granularity 2",
                                          "cache_t/scale_inv 48x1"));
  EXPECT_EQ(plan.saved.row_multiple, 128u);
  EXPECT_EQ(plan.saved.bytes_per_row, 48u + 2);
  EXPECT_EQ(plan.saved.fixed_bytes, 0u);
}

TEST(PluginHppScaleSlots, that_the_kernels_lack_are_refused_by_name) {
  RecordingHost host;
  FakeDevice device(host.get());
  LackingKernels::granularities() = {OCTAVO_PER_ROW};
  octavo_session *s = nullptr;
  EXPECT_EQ(Tables<Scaled<OCTAVO_PER_ROW>>::backend()->open_session(&device.desc, &s),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(host.error(),
            "open_session: the kernels of this device lack a product of the recipe; found "
            "float8_e4m3fn with scales of rows by float8_e4m3fn with scales of rows: left out by a "
            "test; choose another backend or device");
}

}  // namespace
}  // namespace octavo::test
