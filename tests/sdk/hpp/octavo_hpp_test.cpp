// octavo/octavo.hpp: exceptions with diagnostics, ownership, ranges, and calls that allocate
// nothing.
#include "octavo/octavo.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "tests/plugins/counting_new.h"
#include "tests/support/environment.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

static_assert(!std::is_copy_constructible_v<Run> && std::is_nothrow_move_constructible_v<Run>);
static_assert(!std::is_copy_constructible_v<Store> && std::is_move_constructible_v<Store>);
static_assert(!std::is_copy_constructible_v<Buffer> && std::is_move_constructible_v<Buffer>);
static_assert(!std::is_copy_constructible_v<Host> && !std::is_move_constructible_v<Host>);

constexpr int64_t kRows = 4, kN = 8, kK = 16;

Settings reference() {
  return Settings().set("fp8.backend", "reference").set("mixed_precision", "fp8");
}

class OctavoHpp : public testing::Test {
 protected:
  using Run = octavo::Run;  // and not GoogleTest's own
  Environment environment;
};

TEST_F(OctavoHpp, a_failure_is_an_exception_with_status_and_diagnostics) {
  try {
    Run run(Settings().path("some/octavo.toml").text("mixed_precision = 3\n"));
    FAIL() << "expected an exception";
  } catch (const Error &error) {
    EXPECT_EQ(error.status(), OCTAVO_INVALID);
    ASSERT_FALSE(error.diagnostics().empty());
    EXPECT_EQ(error.diagnostics().back().severity, uint32_t{OCTAVO_SEVERITY_ERROR});
    EXPECT_THAT(error.what(), HasSubstr("octavo_open: OCTAVO_INVALID: "));
    EXPECT_THAT(error.what(), HasSubstr("octavo.toml"));
    EXPECT_THAT(error.what(), HasSubstr(error.diagnostics().back().text));
  }
}

TEST_F(OctavoHpp, diagnostics_go_to_the_callers_host_and_its_listener) {
  Host host;
  std::vector<std::string> heard;
  host.on_diagnostic([&](const Diagnostic &d) {
    heard.push_back(d.text);
    throw 1;  // dropped
  });
  EXPECT_THROW(Run(Settings().set("fp8.backend", "no.such.backend"), &host), Error);
  EXPECT_FALSE(heard.empty());
  EXPECT_TRUE(host.take().empty()) << "the exception took them";
}

TEST_F(OctavoHpp, a_host_that_nobody_reads_keeps_the_newest_diagnostics) {
  Host host;
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  for (int i = 0; i < 5000; ++i) {
    const std::string said = std::to_string(i);
    d.text = borrow(said);
    host.get()->diagnose(host.get()->ctx, &d);
  }
  EXPECT_LE(host.diagnostics().size(), 1024u);
  EXPECT_EQ(host.diagnostics().back().text, "4999");
}

TEST_F(OctavoHpp, questions_answer_in_text_whatever_the_status) {
  const Answer good = explain(reference(), "json");
  EXPECT_EQ(good.status, OCTAVO_OK);
  EXPECT_THAT(good.text, HasSubstr("\"reference\""));
  const Answer bad = explain(Settings().set("fp8.backend", "no.such.backend"));
  EXPECT_EQ(bad.status, OCTAVO_UNSUPPORTED);
  EXPECT_THAT(bad.text, HasSubstr("no.such.backend"));
  EXPECT_THAT(list(Settings()).text, HasSubstr("reference"));
  EXPECT_THAT(probe(Settings()).text, HasSubstr("cpu"));
  EXPECT_THAT(check_config(reference()).text, HasSubstr("fp8.backend"));
  EXPECT_EQ(version(), text(octavo_version()));
}

TEST_F(OctavoHpp, settings_keep_the_type_of_a_value) {
  const auto status = [](const char *key, auto value) {
    return check_config(Settings().set("fp8.backend", "te").set(key, value)).status;
  };
  EXPECT_EQ(status("fp8.te.reduce_amax", false), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.reduce_amax", 0), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.amax_history_len", 16), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_history_len", uint64_t{16}), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_history_len", true), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.amax_epsilon", 0.5F), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.recipe", std::string("current")), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.recipe", "no such recipe"), OCTAVO_INVALID);
}

TEST_F(OctavoHpp, settings_of_a_command_line_get_the_type_that_they_look_like) {
  const auto status = [](const char *key, const char *value) {
    return check_config(Settings().set("fp8.backend", "te").parse(key, value)).status;
  };
  EXPECT_EQ(status("fp8.te.reduce_amax", "false"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.reduce_amax", "0"), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.amax_history_len", "16"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_history_len", "16.5"), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.margin", "2"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_epsilon", "0.5"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_epsilon", "1"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.recipe", "current"), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.recipe", "current2"), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.recipe", "\"current\""), OCTAVO_OK);
  EXPECT_EQ(status("fp8.te.amax_history_len", "\"16\""), OCTAVO_INVALID);
  // Never a 0 in the place of a number that does not fit.
  EXPECT_EQ(status("fp8.te.margin", "99999999999999999999"), OCTAVO_INVALID);
  EXPECT_EQ(status("fp8.te.amax_epsilon", "1e999"), OCTAVO_INVALID);
}

TEST_F(OctavoHpp, slots_and_uses_are_ranges_and_verdicts_values) {
  Run run(reference());
  const Added weight = run.add_parameter({"w", kN, kK});
  const Added fc = run.add_linear("fc", weight.id);
  ASSERT_TRUE(fc);
  EXPECT_THAT(fc.verdict.text, HasSubstr("float8_e4m3fn"));
  EXPECT_TRUE(run.slots().empty());
  EXPECT_THROW(run.plan(fc.id), Error);
  run.seal();
  std::vector<std::string> names;
  for (const octavo_slot &slot : run.slots()) names.push_back(text(slot.name));
  EXPECT_THAT(names, testing::ElementsAre("nonfinite", "weight"));
  std::vector<uint32_t> used;
  for (const octavo_slot_use &use : run.uses(OCTAVO_OWNER_LINEAR, fc.id)) used.push_back(use.slot);
  EXPECT_THAT(used, testing::ElementsAre(1, 0));
  EXPECT_EQ(run.uses(OCTAVO_OWNER_LINEAR, 9).size(), 0u);
  EXPECT_EQ(run.precision(), "fp8");
  EXPECT_EQ(run.backend_id(), "reference");
  EXPECT_THAT(run.report("json"), HasSubstr("\"fc\""));
  EXPECT_THROW(run.report("poem"), Error);
  EXPECT_THROW(run.add_linear("of no weight", 99), Error);
}

TEST_F(OctavoHpp, a_layer_that_stays_with_the_host_has_no_id) {
  Run run(reference().text("[layers]\nskip = [\"head\"]\n"));
  const Added weight = run.add_parameter({"w", kN, kK});
  const Added head = run.add_linear("head", weight.id);
  EXPECT_FALSE(head);
  EXPECT_EQ(head.id, OCTAVO_NONE);
  EXPECT_EQ(head.verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
}

TEST_F(OctavoHpp, without_fp8_there_is_no_backend_to_call) {
  Run run(Settings().set("mixed_precision", "no"));
  run.seal();
  Store store(run);
  EXPECT_EQ(run.backend(), nullptr);
  EXPECT_THROW(EndStep(run, store), Error);
}

struct Layer {
  explicit Layer(Host *host = nullptr)
      : run(reference(), host), weight(run.add_parameter({"w", kN, kK})) {
    fc = run.add_linear("fc", weight.id);
    run.seal();
    store = std::make_unique<Store>(run);
    for (int64_t i = 0; i < kN * kK; ++i) w()[i] = static_cast<float>(i % 5 - 2) / 4;
    store->native(weight.id, w());
  }
  float *w() const { return static_cast<float *>(memory.data()); }

  Run run;
  Added weight, fc;
  Buffer memory{kN * kK * sizeof(float)};
  std::unique_ptr<Store> store;
};

TEST_F(OctavoHpp, calls_compute_and_allocate_nothing) {
  Threads threads(2);
  Host host;
  host.set_parallel(threads.parallel());
  Layer layer(&host);
  // Small whole numbers, of which E4M3 and E5M2 hold every one under any scale that is exact here.
  std::vector<float> x(kRows * kK, 1), y(kRows * kN), dy(kRows * kN, 1), dx(kRows * kK);
  std::vector<float> dw(kN * kK, 5), db(kN), bias(kN, 2);
  QuantizeWeight quantize(layer.run, *layer.store, layer.weight.id);
  Forward forward(layer.run, *layer.store, layer.fc.id);
  Backward backward(layer.run, *layer.store, layer.fc.id);
  EndStep end_step(layer.run, *layer.store);
  const Buffer saved(forward.saved_bytes(kRows)), there(forward.workspace_bytes(kRows));
  const Buffer back(backward.workspace_bytes(kRows));
  const auto step = [&] {
    quantize.workspace(back.data());
    forward.x(view(x.data(), kRows, kK))
        .y(view(y.data(), kRows, kN))
        .bias(view(bias.data(), 1, kN));
    forward.saved(saved.data()).workspace(there.data());
    backward.dy(view(dy.data(), kRows, kN)).x(view(x.data(), kRows, kK));
    backward.dx(view(dx.data(), kRows, kK)).dw(view(dw.data(), kN, kK)).db(view(db.data(), 1, kN));
    backward.saved(saved.data()).workspace(back.data());
    return quantize.run() | forward.run() | backward.run() | end_step.run();
  };
  ASSERT_EQ(step(), OCTAVO_OK);
  const uint64_t before = allocations;
  ASSERT_EQ(step(), OCTAVO_OK);
  EXPECT_EQ(allocations - before, 0u);
  // Exact up to the roundings of two scale_inv and their product: six of 2^-24.
  constexpr float tolerance = 6 * 0x1p-24F;
  float row = 0;
  for (int64_t i = 0; i < kK; ++i) row += layer.w()[i];
  EXPECT_NEAR(y[0], row + 2, 16 * tolerance);
  EXPECT_NEAR(dw[0], 5 + 2 * kRows, 13 * tolerance) << "both steps added to it";
  EXPECT_NEAR(db[0], 2 * kRows, 8 * tolerance);
  backward.overwrite();
  backward();
  EXPECT_NEAR(dw[0], kRows, 4 * tolerance);
  backward.skip_weight();
  dw[0] = 77;
  backward();
  EXPECT_EQ(dw[0], 77);
}

TEST_F(OctavoHpp, a_call_that_fails_throws_with_what_the_backend_said) {
  Layer layer;
  Forward forward(layer.run, *layer.store, layer.fc.id);
  std::vector<float> x(kRows * kK, 1), y(kRows * kN);
  const Buffer there(forward.workspace_bytes(kRows));
  forward.x(view(x.data(), 0x0611u, kRows, kK)).y(view(y.data(), kRows, kN));
  forward.workspace(there.data());
  EXPECT_NE(forward.run(), OCTAVO_OK);
  try {
    forward();
    FAIL() << "expected an exception";
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("linear_forward: OCTAVO_"));
  }
}

TEST_F(OctavoHpp, moved_objects_keep_working) {
  Layer layer;
  Run moved = std::move(layer.run);
  Store store = std::move(*layer.store);
  EXPECT_EQ(moved.backend_id(), "reference");
  EXPECT_NE(store.list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0), nullptr);
  EndStep step(moved, store);
  EXPECT_EQ(step.run(), OCTAVO_OK);
  layer.store.reset();
  moved = Run(reference());  // closes the first run while its store is gone
  EXPECT_EQ(moved.slots().size(), 0u);
}

TEST_F(OctavoHpp, stores_count_clear_and_extend) {
  Run run(Settings().set("fp8.backend", "te"));
  const Added weight = run.add_parameter({"w", kN, kK});
  run.add_linear("fc", weight.id);
  run.seal();
  Store store(run);
  EXPECT_GT(store.bytes(OCTAVO_ROLE_WEIGHT_CACHE), 0u);
  EXPECT_GE(store.bytes(), store.bytes(OCTAVO_ROLE_WEIGHT_CACHE));
  EXPECT_EQ(store.owner(weight.id), 0u);
  uint32_t amax = OCTAVO_NONE;
  for (const octavo_slot &slot : run.slots())
    if (slot.role == OCTAVO_ROLE_AMAX) amax = slot.id;
  auto *value = static_cast<float *>(store.address(amax));
  *value = 3;
  store.clear(OCTAVO_ROLE_AMAX);
  EXPECT_EQ(*value, 0);
  run.add_linear("second", weight.id);
  run.seal();
  store.extend();
  EXPECT_EQ(store.address(amax), value);
  EXPECT_THROW(store.native(weight.id, value, 4711), Error);
  EXPECT_THROW(store.load("no/such/directory"), Error);
}

TEST_F(OctavoHpp, slots_are_found_by_role_and_options_by_name) {
  Run run(Settings().set("fp8.backend", "msamp").set("fp8.msamp.opt_level", "O3"));
  const uint32_t weight = run.add_parameter({"w", 16, kK}).id;
  const uint32_t fc = run.add_linear("fc", weight).id;
  run.seal();
  EXPECT_EQ(run.option("opt_level"), "O3");
  EXPECT_EQ(run.option("no such option"), "");
  const octavo_slot *slot = run.slot(OCTAVO_OWNER_PARAMETER, weight, OCTAVO_ROLE_WEIGHT);
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->dtype, uint32_t{OCTAVO_E4M3FN});
  EXPECT_EQ(run.slot(OCTAVO_OWNER_PARAMETER, weight, 4711), nullptr);
  EXPECT_TRUE(run.owns(weight));
  EXPECT_FALSE(run.owns(weight, 4711));

  Store store(run);
  const Memory memory(run);
  EXPECT_TRUE(memory.is_host());
  ASSERT_NE(store.nonfinite(run), nullptr);
  EXPECT_EQ(memory.read(store.nonfinite(run)), 0.0F);
  Array<float> plain(16 * kK), back(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = i % 2 == 0 ? 1.0F : -0.5F;
  store.lend(run, weight, plain.data());  // not native, so nothing is handed in
  write_parameter(run, store, weight, view(plain, 16, kK));
  ParameterCall read(run, store, weight, ParameterCall::kRead);
  DeviceBuffer workspace(memory, read.workspace_bytes());
  read.plain(view(back, 16, kK)).workspace(workspace.data())();
  // Both numbers are whole multiples of a power of two, under any scale that is one.
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(back[i], plain[i]) << i;
  const LinearCalls calls(run, store, weight, fc, kRows);
  EXPECT_FALSE(calls.gives_dw()) << "gradients are in a slot";
  EXPECT_FALSE(calls.takes_prologue()) << "the backend has no octavo.fused/1";
  const Forward forward(run, store, fc);
  DeviceBuffer shared(memory);
  const LinearCalls sharing(run, store, weight, fc, kRows, &shared);
  ASSERT_GT(forward.workspace_bytes(kRows), 0u);
  EXPECT_NE(shared.data(), nullptr) << "the workspace has grown";
}

TEST_F(OctavoHpp, roles_have_names) {
  EXPECT_STREQ(role_name(OCTAVO_ROLE_WEIGHT_CACHE), "weight_cache");
  EXPECT_STREQ(role_name(OCTAVO_ROLE_NOISE), "noise");
  EXPECT_STREQ(role_name(OCTAVO_ROLE_OTHER), "other");
  EXPECT_STREQ(role_name(4711), "other");
}

TEST_F(OctavoHpp, a_backend_without_an_optimizer_has_no_calls_of_one) {
  Layer layer;
  EXPECT_FALSE(layer.run.owns(layer.weight.id));
  EXPECT_TRUE(LinearCalls(layer.run, *layer.store, layer.weight.id, layer.fc.id, 1).gives_dw());
  try {
    OptimizerStep step(layer.run, *layer.store, {layer.weight.id});
    FAIL() << "expected an exception";
  } catch (const Error &error) {
    EXPECT_EQ(error.status(), OCTAVO_WRONG_STATE);
    EXPECT_THAT(error.what(), HasSubstr("backend reference has no octavo.optimizer/2"));
  }
}

}  // namespace
}  // namespace octavo::test
