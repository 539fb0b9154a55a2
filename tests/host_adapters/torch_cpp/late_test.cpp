// Kernels that run late (tests/support/late_kernels.h): what a model computes on them has the bits
// of kernels that run at once, whatever the order. tests/host_adapters/python/late_test.py has
// more.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <octavo/torch/checkpoint.h>

#include <functional>
#include <limits>

#include "device_model.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Prepared;
using testing_torch::inputs;
using testing_torch::MovableLinear;
using Values = std::vector<at::Tensor>;

at::Device npu() {
  return {testing_torch::fake_device("npu").type(), 0};
}

// Two of the linears run twice in a forward.
struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(5);
    const auto added = [this](const char *name, int64_t in, int64_t out) {
      auto made = register_module(name, std::make_shared<MovableLinear>(in, out));
      made->move(npu());
      return made;
    };
    first = added("first", 48, 80);
    twice = added("twice", 80, 80);
    last = added("last", 80, 16);
  }
  at::Tensor block(const at::Tensor &h) { return twice->forward(torch::tanh(twice->forward(h))); }
  at::Tensor forward(const at::Tensor &x, bool recomputes = false) {
    const at::Tensor h = torch::tanh(first->forward(x)) + first->forward(-x);
    const auto run = [this](const at::Tensor &in) { return block(in); };
    return last->forward(recomputes ? octavo::torch::checkpoint(run, h) : block(h));
  }
  std::shared_ptr<MovableLinear> first, twice, last;
};

class OnLateKernels : public testing::TestWithParam<std::pair<const char *, const char *>> {
 protected:
  struct Run {
    Net net;
    torch::optim::AdamW optimizer = testing_torch::adamw(net);
    Prepared prepared;
    Values values;

    explicit Run(const Config &config) : prepared(octavo::torch::prepare(net, optimizer, config)) {}
    at::Tensor forward(int64_t step, bool recomputes = false) {
      values.push_back(net.forward(inputs(step).to(npu()), recomputes));
      return values.back();
    }
    void step(int64_t number, bool recomputes = false) {
      forward(number, recomputes).square().mean().backward();
      prepared.step();
      prepared.zero_grad();
    }
    // Closes while work is queued.
    Values finish() {
      prepared.close();
      for (const at::Tensor &p : net.parameters()) values.push_back(p);
      for (at::Tensor &v : values) v = v.detach().cpu();
      return values;
    }
  };
  static Config config_of(const std::string &backend, const std::string &recipe) {
    Config config = testing_torch::config_of(backend, recipe);
    config.set("plugins.trust", "dev").set("layers.min_gain", "off");
    config.set("device.kernels", "kernels-late");
    config.plugin_dirs.push_back(OCTAVO_LATE_KERNELS_DIR);
    return config;
  }
  static Run open() { return Run(config_of(GetParam().first, GetParam().second)); }
  // One more stream; once the kernels are loaded.
  static c10::Stream new_stream() {
    return c10::impl::VirtualGuardImpl(npu().type()).getNewStream(npu());
  }
  static void wait(const c10::Stream &stream, const c10::Stream &other) {
    c10::Event event(npu().type());
    event.record(other);
    event.block(stream);
  }
  static void expect_alike(const std::function<Values()> &run) {
    open().finish();  // the kernels are loaded
    testing_torch::be_lazy(0);
    const Values expected = run();
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      testing_torch::be_lazy(seed);
      const Values found = run();
      testing_torch::be_lazy(0);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(torch::equal(found[i], expected[i])) << "seed " << seed << ", number " << i;
    }
  }
};

TEST_P(OnLateKernels, steps_recomputations_and_an_evaluation) {
  expect_alike([] {
    Run run = open();
    run.step(0);
    run.step(1, true);
    {
      const torch::NoGradGuard no_grad;
      run.forward(7);
    }
    run.step(2, true);
    return run.finish();
  });
}

TEST_P(OnLateKernels, gradients_without_a_step_and_a_step_left_out) {
  expect_alike([] {
    Run run = open();
    for (int64_t step = 0; step < 3; ++step) run.forward(step).square().mean().backward();
    for (const at::Tensor &p : run.net.parameters()) run.values.push_back(p.grad().cpu());
    run.prepared.step();
    run.prepared.zero_grad();
    (run.forward(3) * std::numeric_limits<float>::infinity()).sum().backward();
    run.prepared.step();
    run.prepared.zero_grad();
    run.values.pop_back();
    run.step(4);
    return run.finish();
  });
}

TEST_P(OnLateKernels, a_stream_of_the_program_and_two_at_once) {
  expect_alike([] {
    Run run = open();
    const c10::Stream first = new_stream(), second = new_stream();
    const c10::Stream usual = c10::impl::VirtualGuardImpl(npu().type()).getStream(npu());
    for (int64_t step = 0; step < 3; ++step) {
      Values ys;
      for (const c10::Stream &stream : {first, second}) {
        const at::Tensor x = inputs(10 * step + static_cast<int64_t>(ys.size())).to(npu());
        wait(stream, usual);
        const c10::StreamGuard scope(stream);
        ys.push_back(run.net.forward(x));
      }
      for (const c10::Stream &stream : {first, second}) wait(usual, stream);
      (ys[0].square().mean() + ys[1].square().mean()).backward();
      run.prepared.step();
      run.prepared.zero_grad();
      run.values.insert(run.values.end(), ys.begin(), ys.end());
    }
    return run.finish();
  });
}

TEST_P(OnLateKernels, closing_with_work_in_flight) {
  expect_alike([] {
    Run run = open();
    run.forward(0);
    return run.finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, OnLateKernels,
                         testing::Values(std::pair{"te", "delayed"}, std::pair{"te", "current"},
                                         std::pair{"msamp", "O2"}),
                         [](const auto &given) {
                           return std::string(given.param.first) + "_" + given.param.second;
                         });

}  // namespace
