// A step captured as a CUDA graph and replayed: every replay computes what the calls themselves do.
#include <cuda_runtime.h>

#include <algorithm>

#include "tests/kernels/cuda/twins.h"

namespace octavo::test {
namespace {

constexpr int64_t kRows = 192, kInner = 256, kColumns = 128;
constexpr int kSteps = 4;

// Amax and cast of x, a product with the weight's codes, and the update of the scales.
class Step {
 public:
  Step(Devices &devices, Twins &twins)
      : devices_(devices),
        twins_(twins),
        x_(twins.tensor(kRows, kInner, OCTAVO_BF16, Values::kNormal)),
        codes_(twins.tensor(kRows, kInner, OCTAVO_E4M3FN, Values::kZero)),
        weight_(twins.tensor(kColumns, kInner, OCTAVO_E4M3FN, Values::kNormal)),
        y_(twins.tensor(kRows, kColumns, OCTAVO_F32, Values::kZero)),
        scale_(twins.floats({1.0f})),
        scale_inv_(twins.floats({1.0f})),
        weight_scale_inv_(twins.floats({0.5f})),
        amax_(twins.floats({0.0f})),
        history_(twins.floats({0.0f, 0.0f, 0.0f})) {
    for (int side = 0; side < 2; ++side) {
      const Call call(*this, side, nullptr);
      uint64_t bytes = 0;
      EXPECT_EQ(side == 0 ? devices.table().workspace_bytes(devices.cpu(), &call.gemm, &bytes)
                          : cuda::workspace_bytes(devices.cuda(), &call.gemm, &bytes),
                OCTAVO_OK);
      workspaces_.emplace_back(side, bytes);
    }
  }

  void run(int side, void *stream) {
    const Call call(*this, side, stream);
    const octavo_kernels &cpu = devices_.table();
    void *const ctx = side == 0 ? devices_.cpu() : devices_.cuda();
    EXPECT_EQ((side == 0 ? cpu.quantize : cuda::quantize)(ctx, &call.quantize), OCTAVO_OK);
    EXPECT_EQ((side == 0 ? cpu.gemm : cuda::gemm)(ctx, &call.gemm), OCTAVO_OK);
    EXPECT_EQ(
        (side == 0 ? cpu.delayed_scale_update : cuda::delayed_scale_update)(ctx, &call.update),
        OCTAVO_OK)
        << devices_.last_text();
  }

  // Products and codes of the device.
  std::vector<float> on_device() {
    std::vector<float> all = twins_.values(1, y_);
    const std::vector<float> codes = twins_.values(1, codes_);
    all.insert(all.end(), codes.begin(), codes.end());
    return all;
  }

 private:
  // The structs of one side; nothing of them is looked at once a call has returned.
  struct Call {
    Call(Step &s, int side, void *stream) {
      x = s.twins_.at(side, s.x_);
      codes = s.twins_.at(side, s.codes_);
      weight = s.twins_.at(side, s.weight_);
      y = s.twins_.at(side, s.y_);
      scale_inv.granularity = weight_scale_inv.granularity = OCTAVO_PER_TENSOR;
      scale_inv.dtype = weight_scale_inv.dtype = OCTAVO_F32;
      scale_inv.stride = weight_scale_inv.stride = 1;
      scale_inv.data = s.twins_.data(side, s.scale_inv_);
      weight_scale_inv.data = s.twins_.data(side, s.weight_scale_inv_);
      quantize.size = sizeof(quantize);
      quantize.kind = OCTAVO_KIND_QUANTIZE;
      quantize.stream = gemm.stream = update.stream = stream;
      quantize.in = &x;
      quantize.out = &codes;
      quantize.out_scale_inv = &scale_inv;
      quantize.scale = s.twins_.floats_at(side, s.scale_);
      quantize.amax = s.twins_.floats_at(side, s.amax_);
      quantize.format_max = 448;
      quantize.rule = OCTAVO_RULE_GIVEN;
      gemm.size = sizeof(gemm);
      gemm.kind = OCTAVO_KIND_GEMM;
      gemm.a = &codes;
      gemm.b = &weight;
      gemm.d = &y;
      gemm.a_scale_inv = &scale_inv;
      gemm.b_scale_inv = &weight_scale_inv;
      gemm.workspace =
          s.workspaces_.size() > static_cast<size_t>(side) ? s.workspaces_[side].data() : nullptr;
      update.size = sizeof(update);
      update.kind = OCTAVO_KIND_DELAYED_SCALE_UPDATE;
      update.amax = s.twins_.floats_at(side, s.amax_);
      update.history = s.twins_.floats_at(side, s.history_);
      update.scale = s.twins_.floats_at(side, s.scale_);
      update.n = 1;
      update.length = 3;
      update.format_max = 448;
      update.use_max = 1;
      update.rule = OCTAVO_RULE_QUOTIENT;
      update.history_flags = OCTAVO_HISTORY_TE;
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    octavo_tensor x, codes, weight, y;
    octavo_scale scale_inv = {}, weight_scale_inv = {};
    octavo_quantize quantize = {};
    octavo_gemm gemm = {};
    octavo_delayed_scale_update update = {};
  };

  Devices &devices_;
  Twins &twins_;
  Twins::Tensor x_, codes_, weight_, y_;
  size_t scale_, scale_inv_, weight_scale_inv_, amax_, history_;
  std::deque<Workspace> workspaces_;
};

// Work that is captured on a stream, as a graph that can be launched.
template <typename Body>
void capture(cudaStream_t stream, cudaStreamCaptureMode mode, cudaGraphExec_t *replay,
             const Body &body) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  body();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(replay, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST(GpuGraph, replays_compute_what_calls_do) {
  setenv("OCTAVO_CUDA_GEMM", "reference", 1);  // so that the CPU's bits are expected of y, too
  {
    Devices devices;
    Twins twins(5);
    Step step(devices, twins);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    cudaGraphExec_t replay = nullptr;
    ASSERT_NO_FATAL_FAILURE(
        capture(stream, cudaStreamCaptureModeThreadLocal, &replay, [&] { step.run(1, stream); }));
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
      step.run(0, nullptr);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    twins.expect_equal("after " + std::to_string(kSteps) + " replays");
    cudaGraphExecDestroy(replay);
    cudaStreamDestroy(stream);
  }
  unsetenv("OCTAVO_CUDA_GEMM");
}

// The first product of the process is captured, in the mode in which any call of any thread that
// could wait for the device ends a capture: torch's default. So nothing may be opened by then.
TEST(GpuGraph, the_first_product_of_cublaslt_is_captured_in_global_mode) {
  Devices devices;
  Twins replayed(5);
  Twins called(5);
  Step captured(devices, replayed);
  Step eager(devices, called);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraphExec_t replay = nullptr;
  ASSERT_NO_FATAL_FAILURE(capture(stream, cudaStreamCaptureModeGlobal, &replay, [&] {
    captured.run(1, stream);
  })) << devices.last_text();
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    eager.run(1, stream);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const std::vector<float> found = captured.on_device();
  EXPECT_EQ(found, eager.on_device()) << "after " << kSteps << " replays";
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](float v) { return v != 0.0f; }));
  cudaGraphExecDestroy(replay);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace octavo::test
