// A whole training step as a CUDA graph: captured once, each replay computes what the calls do.
//
// The executor records a captured stream and answers with an error what a capture forbids:
// allocation, synchronization, queries of events, opening cuBLASLt.
#include <octavo/octavo.hpp>

#include <deque>
#include <optional>

#include "tests/kernels/cuda/plugin_fixture.h"
#include "tests/support/cuda_on_cpu/graph.h"

namespace octavo::test {
namespace {

constexpr int64_t kRows = 48, kN = 80, kK = 112;
constexpr int kReplays = 50;

struct Case {
  const char *name, *backend, *option, *value;
};

class StepGraph : public CudaPlugin, public testing::WithParamInterface<Case> {
 protected:
  Settings settings() const {
    Settings s;
    s.set("plugins.trust", "dev").set("device.kind", "cuda").set("layers.min_gain", "off");
    s.set("fp8.backend", GetParam().backend).set(GetParam().option, GetParam().value);
    s.plugin_dir(OCTAVO_FAKE_KERNELS_DIR).plugin_dir(OCTAVO_PLUGINS_DIR);
    return s;
  }
  static const cuda_on_cpu::Graphs &graphs() {
    return *function<const cuda_on_cpu::Graphs *()>("cuda_on_cpu_graphs")();
  }
};

// One linear and what a step needs; x grows from step to step, so that scales move.
class Model {
 public:
  explicit Model(const Settings &settings) : run_(settings) {
    const Added weight = run_.add_parameter({"w", kN, kK});
    run_.add_linear("l", weight.id);
    run_.seal();
    store_.emplace(run_);
    memory_.emplace(run_);
    x_ = filled(kRows * kK, 0.5f), dy_ = filled(kRows * kN, 0.125f);
    y_ = filled(kRows * kN, 0), dx_ = filled(kRows * kK, 0), dw_ = filled(kN * kK, 0);
    weight_ = filled(kN * kK, 0.25f);
    store_->lend(run_, 0, weight_);
    owns_ = run_.owns(0);
    if (owns_) write_parameter(run_, *store_, 0, matrix(weight_, kN, kK));
    linear_.emplace(run_, *store_, 0, 0, kRows);
    linear_->forward.x(matrix(x_, kRows, kK)).y(matrix(y_, kRows, kN));
    linear_->backward.dy(matrix(dy_, kRows, kN))
        .x(matrix(x_, kRows, kK))
        .dx(matrix(dx_, kRows, kK));
    linear_->backward.overwrite();
    if (linear_->gives_dw()) linear_->backward.dw(matrix(dw_, kN, kK));
    end_.emplace(run_, *store_);
    if (!owns_) return;
    step_.emplace(run_, *store_, std::vector<uint32_t>{0});
    workspace_ = filled(static_cast<int64_t>(step_->workspace_bytes() / sizeof(float)) + 1, 0);
    const float hyper[OCTAVO_HYPER_COUNT] = {0.01f, 0.9f, 0.999f, 1e-8f, 0.01f, 1.0f};
    hyper_ = filled(OCTAVO_HYPER_COUNT, 0);
    memory_->copy(hyper_, hyper, sizeof hyper);
    step_->hyper(hyper_).workspace(workspace_);
    step_->skip(store_->nonfinite(run_));
  }

  void give(int step) {
    std::vector<float> x(kRows * kK);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>((i * 37 + static_cast<size_t>(step) * 11) % 97) -
                                48) *
             0.01f * static_cast<float>(1 + step);
    memory_->copy(x_, x.data(), x.size() * sizeof(float));
  }
  void step(void *stream) {
    linear_->quantize_weight.stream(stream)();
    linear_->forward.stream(stream)();
    linear_->backward.stream(stream)();
    if (step_) step_->stream(stream)();
    end_->stream(stream)();
  }
  // y, dx, dw and every slot.
  std::vector<std::vector<unsigned char>> state() {
    std::vector<std::vector<unsigned char>> all;
    const auto read = [&](const void *at, uint64_t bytes) {
      memory_->copy(all.emplace_back(bytes).data(), at, bytes);
    };
    read(y_, kRows * kN * sizeof(float));
    read(dx_, kRows * kK * sizeof(float));
    read(dw_, kN * kK * sizeof(float));
    for (const octavo_slot &s : run_.slots())
      if ((s.flags & OCTAVO_SLOT_NATIVE) == 0)
        read(store_->address(s.id),
             static_cast<uint64_t>(s.rows * s.cols) * OCTAVO_DTYPE_BITS(s.dtype) / 8);
    return all;
  }

 private:
  static octavo_tensor matrix(float *data, int64_t rows, int64_t cols) {
    return {data, rows, cols, cols, OCTAVO_F32, 0};
  }
  float *filled(int64_t count, float value) {
    const std::vector<float> values(static_cast<size_t>(count), value);
    buffers_.emplace_back(*memory_, values.size() * sizeof(float));
    memory_->copy(buffers_.back().data(), values.data(), values.size() * sizeof(float));
    return static_cast<float *>(buffers_.back().data());
  }

  Run run_;
  std::optional<Store> store_;
  std::optional<Memory> memory_;
  std::deque<DeviceBuffer> buffers_;
  float *x_ = nullptr, *dy_ = nullptr, *y_ = nullptr, *dx_ = nullptr, *dw_ = nullptr;
  float *weight_ = nullptr, *workspace_ = nullptr, *hyper_ = nullptr;
  bool owns_ = false;
  std::optional<LinearCalls> linear_;
  std::optional<OptimizerStep> step_;
  std::optional<EndStep> end_;
};

TEST_P(StepGraph, replays_are_steps) {
  Model eager(settings()), captured(settings());
  const cuda_on_cpu::Graphs &g = graphs();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(g.create_stream(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (Model *model : {&eager, &captured}) {
    model->give(0);
    model->step(stream);
  }
  ASSERT_EQ(eager.state(), captured.state());

  counters() = {};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(g.begin(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  captured.step(stream);
  ASSERT_EQ(g.end(stream, &graph), cudaSuccess);
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(counters().synchronisations, 0);
  ASSERT_EQ(eager.state(), captured.state()) << "captured work ran";
  ASSERT_EQ(g.instantiate(&replay, graph, 0), cudaSuccess);
  for (int i = 1; i <= kReplays; ++i) {
    eager.give(i);
    captured.give(i);
    eager.step(stream);
    ASSERT_EQ(g.launch(replay, stream), cudaSuccess);
    ASSERT_EQ(eager.state(), captured.state()) << "replay " << i;
  }
  g.destroy_replay(replay);
  g.destroy(graph);
  g.destroy_stream(stream);
}

INSTANTIATE_TEST_SUITE_P(All, StepGraph,
                         testing::Values(Case{"te_delayed", "te", "fp8.te.recipe", "delayed"},
                                         Case{"te_current", "te", "fp8.te.recipe", "current"},
                                         Case{"te_block", "te", "fp8.te.recipe", "block"},
                                         Case{"msamp_o2", "msamp", "fp8.msamp.opt_level", "O2"},
                                         Case{"msamp_o3", "msamp", "fp8.msamp.opt_level", "O3"}),
                         [](const auto &each) { return std::string(each.param.name); });

}  // namespace
}  // namespace octavo::test
