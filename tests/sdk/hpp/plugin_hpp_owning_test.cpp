// octavo/plugin.hpp: the verbs of octavo.optimizer/2 and octavo.gradients/1 around a backend's
// stages: what is checked before a kernel runs, groups, sizes, and which stage runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin_hpp_backends.h"
#include "plugin_hpp_owning.h"
#include "tests/plugins/counting_new.h"
#include "tests/support/recording_host.h"

namespace octavo::test {
namespace {

using plugin::Tables;
using testing::ElementsAre;

std::vector<uint64_t> steps;  // items of each adam_step
uint64_t scaled = 0;          // calls of scale_values

constexpr uint32_t kMany = 40;

// Parameters 0 .. 39: a linear's weight [3, 5], 38 of the host, and a frozen one.
class PluginHppOwning : public testing::Test {
 protected:
  void SetUp() override {
    steps.clear();
    scaled = 0;
    device.kernels.get_extension = [](void *, octavo_str id) -> const void * {
      static constexpr octavo_adam_kernels kAdam = {
          sizeof kAdam, OCTAVO_KIND_ADAM_KERNELS,
          [](void *, const octavo_adam_step *c) {
            steps.push_back(c->count);
            return octavo_status{OCTAVO_OK};
          },
          [](void *, const octavo_gradient_scale *) { return octavo_status{OCTAVO_OK}; },
          [](void *, const octavo_sum *) { return octavo_status{OCTAVO_OK}; }};
      static constexpr octavo_msamp_kernels kMsamp = {sizeof kMsamp, OCTAVO_KIND_MSAMP_KERNELS,
                                                      nullptr,
                                                      [](void *, const octavo_scale_values *) {
                                                        ++scaled;
                                                        return octavo_status{OCTAVO_OK};
                                                      },
                                                      nullptr};
      const std::string name(id.data, id.size);
      if (name == OCTAVO_ADAM_KERNELS_ID) return &kAdam;
      return name == OCTAVO_MSAMP_KERNELS_ID ? &kMsamp : nullptr;
    };
    device.kernels.dequantize = [](void *, const octavo_dequantize *) {
      return octavo_status{OCTAVO_OK};
    };
    ASSERT_EQ(b.open_session(&device.desc, &s), OCTAVO_OK) << host.error();
    for (uint32_t i = 0; i < kMany; ++i) {
      const std::string name = "p" + std::to_string(i);
      auto d = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
      d.name = borrow(name);
      d.rows = 3, d.cols = 5, d.dtype = OCTAVO_F32, d.gradient_dtype = OCTAVO_F32;
      d.flags = i == 0           ? OCTAVO_PARAMETER_LINEAR_WEIGHT
                : i == kMany - 1 ? OCTAVO_PARAMETER_FROZEN
                                 : 0;
      uint32_t id = 0;
      ASSERT_EQ(b.add_parameter(s, &d, nullptr, &id), OCTAVO_OK) << host.error();
    }
    auto d = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    d.name = borrow("l");
    uint32_t id = 0;
    ASSERT_EQ(b.add_linear(s, &d, nullptr, &id), OCTAVO_OK) << host.error();
    const octavo_slot_sink sink = {
        sizeof sink, OCTAVO_KIND_SLOT_SINK, nullptr,
        [](void *, const octavo_slot *) { return octavo_status{OCTAVO_OK}; },
        [](void *, const octavo_slot_use *) { return octavo_status{OCTAVO_OK}; }};
    ASSERT_EQ(b.seal(s, &sink), OCTAVO_OK) << host.error();
    for (void *&slot : full) slot = memory;
    for (uint32_t i = 0; i + 1 < kMany; ++i) items.push_back({i, 0, full, memory});
  }
  void TearDown() override { b.close_session(s); }

  octavo_status step() {
    auto c = make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
    c.items = items.data();
    c.count = items.size();
    c.workspace = memory;
    return o.optimizer_step(s, &c);
  }
  octavo_status copy(bool reads, uint32_t role, int64_t rows = 3) {
    octavo_tensor plain{memory, rows, 5, 5, OCTAVO_F32, 0};
    auto c = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    c.role = role;
    c.plain = &plain;
    c.slots = full;
    c.workspace = memory;
    return (reads ? o.read_parameter : o.write_parameter)(s, &c);
  }

  RecordingHost host;
  FakeDevice device{host.get()};
  const octavo_backend &b = *Tables<Owning>::backend();
  const octavo_optimizer &o = *Tables<Owning>::optimizer();
  const octavo_gradients &g = *Tables<Owning>::gradients();
  octavo_session *s = nullptr;
  alignas(64) float memory[256] = {};
  void *full[16];  // every slot at the same address
  std::vector<octavo_parameter_item> items;
};

TEST_F(PluginHppOwning, a_step_crosses_to_the_kernels_in_groups_and_allocates_nothing) {
  steps.reserve(2);
  const uint64_t before = allocations;
  const octavo_status status = step();
  EXPECT_EQ(allocations - before, 0u);
  ASSERT_EQ(status, OCTAVO_OK) << host.error();
  EXPECT_THAT(steps, ElementsAre(32, 7));
}

TEST_F(PluginHppOwning, all_of_a_step_is_checked_before_its_first_kernel) {
  const auto refused = [&](const char *text) {
    EXPECT_EQ(step(), OCTAVO_INVALID);
    EXPECT_EQ(host.error(), text);
    EXPECT_TRUE(steps.empty());
  };
  const octavo_parameter_item good = items.back();
  items.back().parameter = kMany;
  refused("optimizer_step: expected a sealed parameter below 40, found 40");
  items.back().parameter = kMany - 1;
  refused("optimizer_step \"p39\": expected a parameter that is trained, found a frozen one");
  items.back() = good;
  items.back().slots = nullptr;
  refused("optimizer_step \"p38\": expected its list, found null");
  items.back() = good;
  items.back().hyper = nullptr;
  refused("optimizer_step \"p38\": expected hyperparameters f32[8], found null");
  // Lists are in the order of declare(): weight, scale_inv, gradient, exp_avg, exp_avg_sq, step.
  items = {items.front()};
  std::vector<void *> list(full, full + 16);
  items[0].slots = list.data();
  list[2] = nullptr;
  refused(
      "optimizer_step \"p0\": expected the address of its gradient, found null: hand in the native "
      "tensor, or leave the parameter out of the step");
  list[2] = memory, list[4] = nullptr;
  refused(
      "optimizer_step \"p0\": expected the address of its exp_avg_sq, found null: only the rank "
      "that owns a parameter steps it");
  list[4] = memory, list[5] = nullptr;
  refused(
      "optimizer_step \"p0\": expected the address of its step count, found null: only the rank "
      "that owns a parameter steps it");
  list[5] = memory, list[1] = reinterpret_cast<char *>(memory) + 2;  // the scale_inv
  refused(
      "optimizer_step \"p0\": expected its weight at an address that is a multiple of its "
      "element's size, and its scale_inv likewise; found another or null");
}

TEST_F(PluginHppOwning, workspaces_add_up_over_the_parameters_of_a_step) {
  // FakeDevice asks for 64 bytes a kernel, which take 256; a frozen parameter is not stepped.
  const uint32_t ids[] = {0, 1, kMany - 1};
  uint64_t bytes = 0;
  ASSERT_EQ(o.workspace_bytes(s, ids, 2, &bytes), OCTAVO_OK) << host.error();
  EXPECT_EQ(bytes, 512u);
  ASSERT_EQ(o.workspace_bytes(s, ids + 2, 1, &bytes), OCTAVO_OK);
  EXPECT_EQ(bytes, 0u);
  const uint32_t unknown = kMany;
  EXPECT_EQ(o.workspace_bytes(s, &unknown, 1, &bytes), OCTAVO_INVALID);
  EXPECT_EQ(host.error(), "workspace_bytes: expected a sealed parameter below 40, found 40");
}

TEST_F(PluginHppOwning, values_are_read_and_written_by_role) {
  for (const bool reads : {true, false}) {
    for (const uint32_t role : {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_MASTER_WEIGHT, OCTAVO_ROLE_GRADIENT,
                                OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ})
      EXPECT_EQ(copy(reads, role), OCTAVO_OK) << role << host.error();
    const std::string verb = reads ? "read_parameter" : "write_parameter";
    EXPECT_EQ(copy(reads, OCTAVO_ROLE_SCALE_INV), OCTAVO_INVALID);
    EXPECT_EQ(host.error(), verb +
                                " \"p0\": expected a role that this parameter has and whose slots "
                                "are on this rank, found role 7");
    EXPECT_EQ(copy(reads, OCTAVO_ROLE_WEIGHT, 4), OCTAVO_INVALID);
    EXPECT_EQ(host.error(),
              verb + " \"p0\": expected the shape [3, 5] that it was added with, found [4, 5]");
  }
}

TEST_F(PluginHppOwning, norms_and_their_groups_are_checked) {
  auto n = make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
  n.items = items.data();
  n.count = items.size();
  n.sum = memory;
  EXPECT_EQ(o.sum_of_squares(s, &n), OCTAVO_OK) << host.error();
  items[3].slots = nullptr;
  EXPECT_EQ(o.sum_of_squares(s, &n), OCTAVO_INVALID);
  EXPECT_EQ(host.error(), "sum_of_squares \"p3\": expected its list, found null");
  auto c = make<octavo_prepare_call>(OCTAVO_KIND_PREPARE_CALL);
  EXPECT_EQ(o.prepare_step(s, &c), OCTAVO_OK) << host.error();
  float *groups[65] = {};
  c.hyper = groups;
  c.count = 65;
  EXPECT_EQ(o.prepare_step(s, &c), OCTAVO_INVALID);
  EXPECT_EQ(host.error(),
            "prepare_step: expected the addresses of at most 64 arrays of hyperparameters");
  c.count = 1;
  EXPECT_EQ(o.prepare_step(s, &c), OCTAVO_INVALID);
  EXPECT_EQ(host.error(),
            "prepare_step: expected hyperparameters f32[8] of every group, found null");
}

TEST_F(PluginHppOwning, a_plan_of_a_reduction_states_every_stage_and_a_call_runs_one) {
  std::vector<octavo_gradient_stage> stages;
  uint32_t id = 0;
  auto plan = make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  plan.parameters = &id;
  plan.count = 1;
  plan.ctx = &stages;
  plan.stage = [](void *ctx, const octavo_gradient_stage *stage) {
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*stage);
    return octavo_status{OCTAVO_OK};
  };
  plan.world = 1;
  ASSERT_EQ(g.plan_reduction(s, &plan), OCTAVO_OK) << host.error();
  EXPECT_TRUE(stages.empty());
  plan.world = 2;
  ASSERT_EQ(g.plan_reduction(s, &plan), OCTAVO_OK) << host.error();
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].collective, uint32_t{OCTAVO_COLLECTIVE_ALL_REDUCE_SUM});
  EXPECT_EQ(stages[0].send_count, 15u);
  EXPECT_EQ(stages[1].collective, uint32_t{OCTAVO_COLLECTIVE_NONE});
  EXPECT_EQ(scaled, 0u) << "a plan runs no kernel";

  auto c = make<octavo_gradient_call>(OCTAVO_KIND_GRADIENT_CALL);
  c.items = items.data();
  c.count = 1;
  c.world = 2;
  c.send = c.state = memory;
  c.recv = memory;
  const uint64_t before = allocations;
  const octavo_status status = g.run_stage(s, &c);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(status, OCTAVO_OK) << host.error();
  EXPECT_EQ(scaled, 1u);
  c.stage = 2;
  EXPECT_EQ(g.run_stage(s, &c), OCTAVO_INVALID);
  EXPECT_EQ(host.error(),
            "run_stage: expected a stage below 2, which plan_reduction stated for this bucket, "
            "found 2");
}

TEST_F(PluginHppOwning, a_reduction_of_anything_but_gradient_slots_is_refused) {
  auto plan = make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  uint32_t id = 1;
  plan.parameters = &id;
  plan.count = 1;
  plan.world = 0;
  EXPECT_EQ(g.plan_reduction(s, &plan), OCTAVO_INVALID);
  EXPECT_EQ(host.error(), "plan_reduction: expected 1 to 65536 ranks, found 0");
  plan.world = 2;
  EXPECT_EQ(g.plan_reduction(s, &plan), OCTAVO_INVALID);
  EXPECT_EQ(host.error(),
            "plan_reduction \"p1\": expected a parameter with a gradient slot, found one whose "
            "gradient is the host's: reduce it there");
  id = kMany - 1;
  EXPECT_EQ(g.plan_reduction(s, &plan), OCTAVO_INVALID);
  EXPECT_EQ(host.error(),
            "plan_reduction \"p39\": expected a parameter with a gradient slot, found a frozen "
            "one");
  items[0].slots = nullptr;
  auto c = make<octavo_gradient_call>(OCTAVO_KIND_GRADIENT_CALL);
  c.items = items.data();
  c.count = 1;
  c.world = 2;
  EXPECT_EQ(g.run_stage(s, &c), OCTAVO_INVALID);
  EXPECT_EQ(host.error(), "run_stage \"p0\": expected its gradient slot, found null");
}

}  // namespace
}  // namespace octavo::test
