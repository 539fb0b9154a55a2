// Backends that train on the plugin of CUDA kernels.
#include "octavo/draft/gradients.h"
#include "tests/kernels/cuda/plugin_fixture.h"

namespace octavo::test {
namespace {

// A backend with one weight and one layer on the device.
class CudaLayer : public CudaPlugin, public testing::WithParamInterface<const char *> {
 protected:
  static constexpr int64_t kRows = 48, kN = 80, kK = 112;

  void open() {
    const std::string all = GetParam(), backend = all.substr(0, all.find(':'));
    request.set("fp8.backend", backend);
    if (const size_t at = all.find(':'); at != std::string::npos) {
      const size_t equals = all.find('=');
      request.set(all.substr(at + 1, equals - at - 1), all.substr(equals + 1));
    }
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    ASSERT_EQ(add_weight(run.get(), "w", kN, kK).status, OCTAVO_OK);
    ASSERT_EQ(add_linear(run.get(), "l", 0).id, 0u);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
    octavo_store *opened = nullptr;
    ASSERT_EQ(octavo_store_open(run.get(), &opened), OCTAVO_OK) << request.host.error();
    store.reset(opened);
    memory = static_cast<const octavo_memory *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_MEMORY_ID)));
    ctx = octavo_run_session_desc(run.get())->kernels_ctx;
    plan = octavo_run_plan(run.get(), 0);
    void *weight = on_device(std::vector<float>(kN * kK, 0.25f));
    // A backend that keeps the weight itself takes its values.
    if (octavo_store_native(store.get(), 0, OCTAVO_ROLE_WEIGHT, weight) != OCTAVO_OK) {
      ASSERT_EQ(write_weight(weight), OCTAVO_OK);
    }
    workspace = on_device(std::vector<float>(
        (std::max(plan->weight_workspace, octavo_extent_bytes(&plan->forward_workspace, kRows)) +
         sizeof(float)) /
        sizeof(float)));
    saved =
        on_device(std::vector<float>(octavo_extent_bytes(&plan->saved, kRows) / sizeof(float) + 1));
    in = on_device(std::vector<float>(kRows * kK, 0.5f));
    out = on_device(std::vector<float>(kRows * kN));
  }
  void *on_device(const std::vector<float> &values) {
    void *data = nullptr;
    const uint64_t bytes = values.size() * sizeof(float);
    EXPECT_EQ(memory->allocate(ctx, bytes, &data), OCTAVO_OK);
    EXPECT_EQ(memory->copy(ctx, data, values.data(), bytes), OCTAVO_OK);
    allocated.push_back(data);
    return data;
  }
  octavo_status write_weight(void *values) {
    const octavo_optimizer *optimizer = static_cast<const octavo_optimizer *>(
        octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
    octavo_session *session = octavo_run_session(run.get());
    const uint32_t all[] = {0};
    uint64_t bytes = 0;
    EXPECT_EQ(optimizer->workspace_bytes(session, all, 1, &bytes), OCTAVO_OK);
    octavo_tensor plain{values, kN, kK, kK, OCTAVO_F32, 0};
    octavo_parameter_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_PARAMETER_CALL;
    c.role = OCTAVO_ROLE_WEIGHT;
    c.plain = &plain;
    c.slots =
        octavo_store_slots(store.get(), OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
    c.workspace = on_device(std::vector<float>(bytes / sizeof(float) + 1));
    return optimizer->write_parameter(session, &c);
  }
  octavo_status quantize_weight() {
    octavo_weight_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_WEIGHT_CALL;
    c.slots =
        octavo_store_slots(store.get(), OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, 0);
    c.workspace = workspace;
    return octavo_run_backend(run.get())->quantize_weight(octavo_run_session(run.get()), &c);
  }
  octavo_status forward() {
    const octavo_tensor x{in, kRows, kK, kK, OCTAVO_F32, 0};
    octavo_tensor y{out, kRows, kN, kN, OCTAVO_F32, 0};
    octavo_forward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.x = &x;
    c.y = &y;
    c.saved = saved;
    c.slots = octavo_store_slots(store.get(), OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
    c.workspace = workspace;
    return octavo_run_backend(run.get())->linear_forward(octavo_run_session(run.get()), &c);
  }
  std::vector<float> result() {
    std::vector<float> y(kRows * kN);
    EXPECT_EQ(memory->copy(ctx, y.data(), out, y.size() * sizeof(float)), OCTAVO_OK);
    return y;
  }
  void TearDown() override {
    for (void *data : allocated) memory->release(ctx, data);
  }

  RunPtr run;
  StorePtr store;
  const octavo_memory *memory = nullptr;
  void *ctx = nullptr;
  const octavo_linear_plan *plan = nullptr;
  std::vector<void *> allocated;
  void *workspace = nullptr, *saved = nullptr, *in = nullptr, *out = nullptr;
};

// A measure and a cast of x, and what a product needs besides; plans and weights are made before.
TEST_P(CudaLayer, forward_is_three_launches_at_most) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK) << request.host.error();
  ASSERT_EQ(forward(), OCTAVO_OK) << request.host.error();  // plans are made
  counters() = {};
  ASSERT_EQ(forward(), OCTAVO_OK);
  EXPECT_LE(counters().launches, 3);
  EXPECT_GE(counters().launches, 1);
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(counters().synchronisations, 0);
  for (const float y : result()) EXPECT_NEAR(y, kK * 0.125f, kK * 0.125f / 16);
}

TEST_P(CudaLayer, checkpoint_comes_back_from_the_device) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK);
  ASSERT_EQ(forward(), OCTAVO_OK);
  const std::string path = dir / "checkpoint";
  ASSERT_EQ(octavo_store_save(store.get(), borrow(path), 7), OCTAVO_OK) << request.host.error();
  const auto bytes_of = [](const octavo_slot &s) {
    const uint64_t bytes = s.dtype == OCTAVO_F32 || s.dtype == OCTAVO_I32    ? 4
                           : s.dtype == OCTAVO_F16 || s.dtype == OCTAVO_BF16 ? 2
                                                                             : 1;
    return static_cast<uint64_t>(s.rows * s.cols) * bytes;
  };
  const auto read_all = [&] {
    std::vector<std::vector<unsigned char>> all;
    for (uint32_t id = 0; id < octavo_run_slot_count(run.get()); ++id) {
      const octavo_slot &s = *octavo_run_slot(run.get(), id);
      all.emplace_back();
      if ((s.flags & OCTAVO_SLOT_CHECKPOINT) == 0 || (s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
      all.back().resize(bytes_of(s));
      EXPECT_EQ(memory->copy(ctx, all.back().data(), octavo_store_address(store.get(), id),
                             all.back().size()),
                OCTAVO_OK);
    }
    return all;
  };
  const auto before = read_all();
  for (uint32_t role = 1; role < 32; ++role) octavo_store_clear(store.get(), role);
  uint64_t step = 0;
  ASSERT_EQ(octavo_store_load(store.get(), borrow(path), &step), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(step, 7u);
  EXPECT_EQ(read_all(), before);
}

TEST_P(CudaLayer, device_that_was_lost_answers_at_once) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK);
  script().launches_before_failure = 0;
  // A kernel fails while the host goes on: whoever asks next learns of it.
  octavo_status status = forward();
  if (status == OCTAVO_OK) status = forward();
  EXPECT_EQ(status, OCTAVO_FAILED_DEVICE);
  EXPECT_THAT(request.host.error(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_THAT(request.host.error(), HasSubstr("restart it from a checkpoint"));
  counters() = {};
  EXPECT_EQ(forward(), OCTAVO_FAILED_DEVICE);
  EXPECT_EQ(memory->synchronize(ctx), OCTAVO_FAILED_DEVICE);
  EXPECT_EQ(counters().launches, 0);
  EXPECT_EQ(counters().synchronisations, 0);
  EXPECT_THAT(request.host.error(), HasSubstr("failed before with cudaErrorIllegalAddress"));
  function<void()>("cuda_on_cpu_reset")();
}

INSTANTIATE_TEST_SUITE_P(All, CudaLayer,
                         testing::Values("te", "te:fp8.te.recipe=current", "te:fp8.te.recipe=block",
                                         "msamp"),
                         [](const auto &each) {
                           std::string name = each.param;
                           for (char &c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace octavo::test
