/* Golden vectors, trace/: 40 steps of delayed scaling through the table's delayed_scale_update.
 *
 * The recorded path is the unfused one, so the rule is RECIPROCAL and every bit must agree.
 */
#include <gtest/gtest.h>

#include <string>

#include "kernels/format/float8.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/vector_files.h"
#include "tests/support/history.h"

namespace octavo::test {
namespace {

/* What one line of scales.csv says about the run it belongs to. */
struct TraceRun {
  std::string trace;
  std::string format;
  int length;
  std::string algorithm;
  int margin;

  bool operator==(const TraceRun &) const = default;
};

TraceRun run_of(const Csv &scales, size_t row) {
  return {scales.text(row, "trace"), scales.text(row, "fmt"), scales.integer(row, "history_len"),
          scales.text(row, "algo"), scales.integer(row, "margin")};
}

/* amax_in.csv of one trace and step: one value per tensor. */
std::vector<float> amax_at(const Csv &amax, const std::string &trace, int step) {
  for (size_t row = 0; row < amax.rows(); ++row) {
    if (amax.text(row, "trace") != trace || amax.integer(row, "step") != step) continue;
    std::vector<float> values;
    for (int i = 0; amax.has("t" + std::to_string(i) + "_bits"); ++i) {
      values.push_back(amax.real(row, "t" + std::to_string(i) + "_bits"));
    }
    return values;
  }
  ADD_FAILURE() << "amax_in.csv has no step " << step << " of trace " << trace;
  return {};
}

/* The stored slots of one step: all, or the last ones. */
void expect_history(const TraceRun &run, int step, size_t tensors,
                    const std::vector<float> &history) {
  const std::string path =
      "trace/history_" + run.trace + "_L" + std::to_string(run.length) + ".bin";
  const size_t stored = static_cast<size_t>(VectorFiles::get().file(path).shape.at(1));
  const std::vector<float> recorded = VectorFiles::get().array<float>(path);
  const size_t length = static_cast<size_t>(run.length);
  for (size_t slot = 0; slot < length; ++slot) {
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      const bool is_stored = slot + stored >= length;
      const size_t from = (static_cast<size_t>(step) * stored + slot + stored - length) * tensors;
      const float expected = is_stored ? recorded.at(from + tensor) : 0.0f;
      ASSERT_TRUE(same_value(history[slot * tensors + tensor], expected))
          << path << " step " << step << " slot " << slot << " tensor " << tensor;
    }
  }
}

TEST(GoldenTrace, delayed_scaling_repeats_every_step) {
  const Csv amax_in = VectorFiles::get().csv("trace/amax_in.csv");
  const Csv scales = VectorFiles::get().csv("trace/scales.csv");
  Kernels kernels;
  TraceRun current = {};
  std::vector<float> history;
  std::vector<float> scale;
  for (size_t row = 0; row < scales.rows(); ++row) {
    const TraceRun run = run_of(scales, row);
    const int step = scales.integer(row, "step");
    std::vector<float> amax = amax_at(amax_in, run.trace, step);
    if (!(run == current)) {
      ASSERT_EQ(step, 0) << "row " << row << " starts a run in the middle";
      current = run;
      history.assign(static_cast<size_t>(run.length) * amax.size(), 0.0f);
      scale.assign(amax.size(), 1.0f);
    }
    auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
    c.amax = amax.data();
    c.history = history.data();
    c.scale = scale.data();
    c.n = amax.size();
    c.length = static_cast<uint64_t>(run.length);
    c.format_max = run.format == "e4m3" ? kMaxE4m3 : kMaxE5m2;
    c.margin = run.margin;
    c.use_max = run.algorithm == "max" ? 1 : 0;
    c.rule = OCTAVO_RULE_RECIPROCAL;
    c.history_flags = history_of(c.rule);
    ASSERT_EQ(kernels.table->delayed_scale_update(kernels.ctx(), &c), OCTAVO_OK);
    for (size_t i = 0; i < scale.size(); ++i) {
      const std::string number = std::to_string(i) + "_bits";
      ASSERT_TRUE(same_value(scale[i], scales.real(row, "s" + number))) << "row " << row;
      ASSERT_TRUE(same_value(1.0f / scale[i], scales.real(row, "inv" + number))) << "row " << row;
      ASSERT_EQ(amax[i], 0.0f);
    }
    ASSERT_NO_FATAL_FAILURE(expect_history(run, step, scale.size(), history));
  }
}

}  // namespace
}  // namespace octavo::test
