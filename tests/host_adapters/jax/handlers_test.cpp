// The handlers for CUDA and for the platform of a plugin, called as XLA calls them: on the plugin
// of CUDA kernels whose device code the CPU executes, and on kernels of a fake device. Each verb
// leaves what the C++ calls of octavo.hpp leave, bit-identical.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frame.h"
#include "host_adapters/jax/entry.h"
#include "tests/support/environment.h"

extern "C" {
XLA_FFI_Handler octavo_jax_quantize_cuda, octavo_jax_forward_cuda, octavo_jax_backward_cuda,
    octavo_jax_end_step_cuda, octavo_jax_quantize_other, octavo_jax_forward_other,
    octavo_jax_backward_other, octavo_jax_end_step_other, octavo_jax_forward_cpu;
int64_t octavo_jax_register(const octavo::jax::Registration *given);
void octavo_jax_release(int64_t number);
}

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kM = 48, kN = 80, kK = 112;
constexpr int64_t kSave = 512, kDx = 1024, kDw = 2048, kRecords = 8192;

std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float &v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return out;
}

// The kind of a run's kernels, the first index that they accept, and the handlers of XLA's
// platform.
struct Where {
  const char *kind;
  int32_t index;
  XLA_FFI_Handler *quantize, *forward, *backward, *end_step;
};
constexpr Where kCuda = {"cuda",
                         0,
                         octavo_jax_quantize_cuda,
                         octavo_jax_forward_cuda,
                         octavo_jax_backward_cuda,
                         octavo_jax_end_step_cuda};
constexpr Where kNpu = {"npu",
                        1,
                        octavo_jax_quantize_other,
                        octavo_jax_forward_other,
                        octavo_jax_backward_other,
                        octavo_jax_end_step_other};

// A run on the device with one linear, its slots, and buffers with the same numbers in each.
class OnDevice {
 public:
  OnDevice(const Where &where, const std::string &recipe)
      : where_(where),
        run_(Settings()
                 .set("plugins.trust", "dev")
                 .set("device.kind", where.kind)
                 .set("layers.min_gain", "off")
                 .set("fp8.backend", "te")
                 .set("fp8.te.recipe", recipe)
                 .plugin_dir(OCTAVO_FAKE_KERNELS_DIR)
                 .plugin_dir(OCTAVO_DEVICES_DIR)
                 .plugin_dir(OCTAVO_PLUGINS_DIR)),
        weight_id_(run_.add_parameter({"w", kN, kK}).id),
        linear_id_(run_.add_linear("l", weight_id_).id),
        store_(sealed()),
        memory_(run_) {
    weight = buffer(numbers(kN * kK, 1));
    x = buffer(numbers(kM * kK, 2));
    dy = buffer(numbers(kM * kN, 3));
    y = space(kM * kN * 4), dx = space(kM * kK * 4), dw = space(kN * kK * 4);
    store_.native(weight_id_, weight);
  }

  void *space(uint64_t bytes) {
    buffers_.emplace_back(memory_, std::max<uint64_t>(bytes, 1));
    return buffers_.back().data();
  }
  void *buffer(const std::vector<float> &values) {
    void *data = space(values.size() * 4);
    memory_.copy(data, values.data(), values.size() * 4);
    return data;
  }
  std::string bytes(const void *data, uint64_t count) const {
    std::string out(count, '\0');
    memory_.copy(out.data(), data, count);
    return out;
  }
  // y, dx, dw and all slots.
  std::vector<std::string> everything() const {
    std::vector<std::string> out = {bytes(y, kM * kN * 4), bytes(dx, kM * kK * 4),
                                    bytes(dw, kN * kK * 4)};
    for (const octavo_slot &s : run_.slots())
      if ((s.flags & OCTAVO_SLOT_NATIVE) == 0)
        out.push_back(bytes(store_.address(s.id), s.rows * OCTAVO_DTYPE_BYTES(s.dtype, s.cols)));
    return out;
  }
  const octavo_linear_plan &plan() const { return run_.plan(linear_id_); }

  // The verbs by octavo.hpp.
  void by_calls() {
    const auto view = [](void *data, int64_t rows, int64_t cols) {
      return octavo_tensor{data, rows, cols, cols, OCTAVO_F32, 0};
    };
    LinearCalls calls(run_, store_, weight_id_, linear_id_, kM);
    calls.quantize_weight();
    calls.forward.x(view(x, kM, kK)).y(view(y, kM, kN))();
    calls.backward.dy(view(dy, kM, kN))
        .x(view(x, kM, kK))
        .dx(view(dx, kM, kK))
        .dw(view(dw, kN, kK))
        .overwrite()();
    EndStep(run_, store_)();
  }

  // The verbs by the handlers. Returns the first error.
  std::string by_handlers() { return by_handlers(where_, where_.index); }
  std::string by_handlers(const Where &caller, int32_t device) {
    const int64_t shapes[] = {kN, kK};
    const jax::Registration given = {run_.get(), shapes, &weight_id_, 1, 1, ""};
    number_ = octavo_jax_register(&given);
    const std::string error = verbs(caller, device);
    octavo_jax_release(number_);
    return error;
  }

  void *weight, *x, *y, *dy, *dx, *dw;

 private:
  Store sealed() {
    run_.seal();
    return Store(run_);
  }
  Frame frame(int32_t device) {
    Frame f;
    f.device = device;
    return f;
  }
  static std::vector<int64_t> size(uint64_t count) { return {static_cast<int64_t>(count)}; }

  // The slots of a list as XLA passes them; what accumulates goes through a record of its own.
  std::string call(Frame f, XLA_FFI_Handler *handler, uint32_t verb, uint32_t owner_kind,
                   int64_t flags, uint64_t workspace) {
    void *const *list = store_.list(verb, owner_kind, 0);
    std::vector<std::pair<void *, uint64_t>> accumulators;
    size_t i = 0;
    for (const octavo_slot_use &use : run_.uses(owner_kind, 0)) {
      const octavo_slot &s = *octavo_run_slot(run_.get(), use.slot);
      void *data = list[i++];
      const uint64_t bytes = s.labels != nullptr && use.count > 0
                                 ? use.count * 4
                                 : s.rows * OCTAVO_DTYPE_BYTES(s.dtype, s.cols);
      const uint8_t access = s.access[verb];
      if (access == OCTAVO_ACCESS_ACCUMULATE) accumulators.emplace_back(data, bytes);
      if (access == OCTAVO_ACCESS_READ || access == OCTAVO_ACCESS_UPDATE)
        f.operand(data, size(bytes));
      if (access == OCTAVO_ACCESS_WRITE || access == OCTAVO_ACCESS_UPDATE)
        f.result(data, size(bytes));
    }
    uint64_t recorded = 0;
    for (const auto &[data, bytes] : accumulators) recorded += bytes;
    void *record = buffer(std::vector<float>(recorded / 4));
    if (recorded > 0) {
      f.operand(record, size(recorded)).result(record, size(recorded));
      flags |= kRecords;
    }
    if (verb != OCTAVO_VERB_END_STEP) f.result(space(workspace), size(workspace));
    f.attribute(1).attribute(flags).attribute(0).attribute(number_);
    const std::string error = f.call(handler);
    const std::string values = bytes(record, recorded);
    uint64_t at = 0;
    for (const auto &[data, bytes] : accumulators) {
      memory_.copy(data, values.data() + at, bytes);
      at += bytes;
    }
    return error;
  }

  std::string verbs(const Where &caller, int32_t device) {
    const octavo_linear_plan &p = plan();
    const uint64_t saved_bytes = octavo_extent_bytes(&p.saved, kM);
    void *saved = space(saved_bytes);
    std::string error = call(frame(device), caller.quantize, OCTAVO_VERB_QUANTIZE_WEIGHT,
                             OCTAVO_OWNER_PARAMETER, 0, p.weight_workspace);
    if (!error.empty()) return error;
    Frame f = frame(device);
    f.operand(x, {kM, kK}, OCTAVO_F32).result(y, {kM, kN}, OCTAVO_F32);
    f.result(saved, size(saved_bytes));
    error = call(f, caller.forward, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, kSave,
                 octavo_extent_bytes(&p.forward_workspace, kM));
    if (!error.empty()) return error;
    Frame b = frame(device);
    b.operand(dy, {kM, kN}, OCTAVO_F32);
    if (p.flags & OCTAVO_LINEAR_NEEDS_X) b.operand(x, {kM, kK}, OCTAVO_F32);
    b.operand(saved, size(saved_bytes));
    b.result(dx, {kM, kK}, OCTAVO_F32).result(dw, {kN, kK}, OCTAVO_F32);
    error =
        call(b, caller.backward, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR,
             kDx | kDw | OCTAVO_BACKWARD_OVERWRITE, octavo_extent_bytes(&p.backward_workspace, kM));
    if (!error.empty()) return error;
    return call(frame(device), caller.end_step, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0, 0);
  }

  Where where_;
  Run run_;
  uint32_t weight_id_, linear_id_;
  Store store_;
  Memory memory_;
  std::deque<DeviceBuffer> buffers_;
  int64_t number_ = 0;
};

// A fake GPU (tests/misconfigurations/fake_gpu.c).
struct FakeGpu {
  FakeGpu() {
    environment.set("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06");
    environment.set("OCTAVO_CUBLASLT", OCTAVO_FAKE_BLAS);
  }
  Environment environment;
};

class JaxHandlers : public testing::TestWithParam<const char *> {
  FakeGpu gpu_;
};

TEST_P(JaxHandlers, leave_what_the_calls_of_cpp_leave) {
  for (const Where &where : {kCuda, kNpu}) {
    OnDevice expected(where, GetParam()), found(where, GetParam());
    expected.by_calls();
    ASSERT_EQ(found.by_handlers(), "") << where.kind;
    const auto a = expected.everything(), b = found.everything();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] == b[i]) << where.kind << ", part " << i;
    EXPECT_NE(a[0], std::string(a[0].size(), '\0'));
  }
}

INSTANTIATE_TEST_SUITE_P(All, JaxHandlers, testing::Values("delayed", "current", "block"));

TEST(JaxHandlersRefuse, another_device_and_a_run_that_is_gone) {
  const FakeGpu gpu;
  OnDevice there(kCuda, "current"), other(kNpu, "current");
  EXPECT_THAT(there.by_handlers(kCuda, 3),
              HasSubstr("[octavo status 2] expected a call on GPU 0, where octavo.jax.init opened "
                        "the run, found one on GPU 3"));
  EXPECT_THAT(there.by_handlers(kNpu, 0), HasSubstr("call on GPU 0, where octavo.jax.init opened "
                                                    "the run, found one on device 0"));
  EXPECT_THAT(other.by_handlers(kNpu, 0), HasSubstr("call on device 1, where octavo.jax.init "
                                                    "opened the run, found one on device 0"));
  EXPECT_THAT(other.by_handlers(kCuda, 1), HasSubstr("call on device 1, where octavo.jax.init "
                                                     "opened the run, found one on GPU 1"));
  EXPECT_THAT(
      Frame().attribute(1).attribute(0).attribute(0).attribute(77).call(octavo_jax_forward_cpu),
      HasSubstr("[octavo status 3] run 77: expected the number of an open run"));
}

}  // namespace
}  // namespace octavo::test
