// What octavo::torch adds to one forward call: its time beyond at::empty for y and the backend's
// own call, on layers so small that nothing else counts. Prints medians and the difference.
//
// bench_torch_linear [--benchmark_...]; without options 15 repetitions in random order.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "octavo/torch/linear.h"
#include "octavo/torch/prepare.h"
#include "plain_host.h"

namespace {

using testing_torch::PlainHost;

constexpr const char *kConfig =
    "schema = 1\nmixed_precision = \"fp8\"\n[fp8]\nbackend = \"te\"\n"
    "[fp8.te]\nrecipe = \"delayed\"\nuse_autocast_during_eval = true\n";

struct Model : torch::nn::Module {
  explicit Model(int64_t n) { layer = register_module("layer", octavo::torch::Linear(n, n)); }
  octavo::torch::Linear layer{nullptr};
};

// One prepared layer [n, n] and a batch of n rows.
struct Prepared {
  explicit Prepared(int64_t n)
      : model(std::make_shared<Model>(n)),
        optimizer(model->parameters(), 0.1),
        x(at::randn({n, n})),
        prepared(
            octavo::torch::prepare(*model, optimizer, octavo::torch::Config::from_text(kConfig))) {}

  std::shared_ptr<Model> model;
  torch::optim::SGD optimizer;
  at::Tensor x;
  octavo::torch::Prepared prepared;
};

void empty(benchmark::State &state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(at::empty({state.range(0), state.range(0)}).data_ptr());
}
BENCHMARK(empty)->Arg(4)->Arg(64);

void backend(benchmark::State &state) {
  const auto n = static_cast<size_t>(state.range(0));
  PlainHost host(kConfig, state.range(0), state.range(0), OCTAVO_F32,
                 std::vector<float>(n * n, 0.5f), std::vector<float>(n));
  const std::vector<float> x(n * n, 0.25f);
  std::vector<float> y(n * n);
  for (auto _ : state) host.evaluate(x.data(), state.range(0), y.data());
}
BENCHMARK(backend)->Arg(4)->Arg(64);

void adapter(benchmark::State &state) {
  Prepared p(state.range(0));
  p.model->eval();
  const at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(p.model->layer->forward(p.x));
}
BENCHMARK(adapter)->Arg(4)->Arg(64);

void adapter_recorded(benchmark::State &state) {
  Prepared p(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(p.model->layer->forward(p.x));
}
BENCHMARK(adapter_recorded)->Arg(4)->Arg(64);

// What a call pays for asking torch where its slots are: a verb of te current reads six or fewer.
void slot_addresses(benchmark::State &state) {
  std::vector<AtenTensorHandle> slots(static_cast<size_t>(state.range(0)));
  const int64_t size = 64, stride = 1;
  for (AtenTensorHandle &slot : slots)
    aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(),
                             aoti_torch_device_type_cpu(), 0, &slot);
  for (auto _ : state)
    for (AtenTensorHandle slot : slots) {
      void *address = nullptr;
      torch_get_mutable_data_ptr(slot, &address);
      benchmark::DoNotOptimize(address);
    }
  for (AtenTensorHandle slot : slots) aoti_torch_delete_tensor_object(slot);
}
BENCHMARK(slot_addresses)->Arg(1)->Arg(6);

void torch_linear(benchmark::State &state) {
  torch::nn::Linear layer(state.range(0), state.range(0));
  const at::Tensor x = at::randn({state.range(0), state.range(0)});
  const at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(layer->forward(x));
}
BENCHMARK(torch_linear)->Arg(4)->Arg(64);

void torch_linear_recorded(benchmark::State &state) {
  torch::nn::Linear layer(state.range(0), state.range(0));
  const at::Tensor x = at::randn({state.range(0), state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(layer->forward(x));
}
BENCHMARK(torch_linear_recorded)->Arg(4)->Arg(64);

// Keeps the medians, or with one repetition the only time.
class Medians : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run> &runs) override {
    for (const Run &run : runs)
      if (run.aggregate_name.empty() || run.aggregate_name == "median")
        ns_[run.run_name.function_name + "/" + run.run_name.args] = run.GetAdjustedRealTime();
    benchmark::ConsoleReporter::ReportRuns(runs);
  }

  void print() const {
    for (const char *n : {"4", "64"}) {
      const std::string size = std::string("/") + n;
      if (ns_.count("adapter" + size) == 0 || ns_.count("empty" + size) == 0) continue;
      std::printf(
          "n = %s: octavo::torch adds %.0f ns to at::empty and the backend's forward (goal: "
          "1000)\n",
          n, ns_.at("adapter" + size) - ns_.at("empty" + size) - ns_.at("backend" + size));
    }
  }

 private:
  std::map<std::string, double> ns_;
};

}  // namespace

int main(int argc, char **argv) {
  std::vector<char *> arguments(argv, argv + argc);
  std::string defaults[] = {"--benchmark_repetitions=15",
                            "--benchmark_enable_random_interleaving=true",
                            "--benchmark_report_aggregates_only=true"};
  if (argc == 1)
    for (std::string &option : defaults) arguments.push_back(option.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  Medians reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  reporter.print();
  return 0;
}
