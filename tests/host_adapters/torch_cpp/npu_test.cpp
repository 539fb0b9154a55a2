// A model on a device of PrivateUse1 that torch calls "npu", with kernels of this kind: no GPU and
// no driver is near. tests/host_adapters/python/npu_test.py has more of it.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <octavo/torch/checkpoint.h>

#include "device_model.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Prepared;
using testing::HasSubstr;
using testing_torch::inputs;
using testing_torch::Model;
using testing_torch::status_of;

at::Device npu(c10::DeviceIndex index) {
  return {testing_torch::fake_device("npu").type(), index};
}
// The indices that kernels-npu and kernels_plugin serve.
at::Device whole() {
  return npu(1);
}
at::Device least() {
  return npu(0);
}

Config config_of(const std::string &backend, const std::string &recipe) {
  Config config = testing_torch::config_of(backend, recipe);
  config.set("plugins.trust", "dev").set("layers.min_gain", "off");
  return config;
}

std::vector<at::Tensor> trained(const at::Device &device, const std::string &backend,
                                const std::string &recipe) {
  std::vector<at::Tensor> all;
  Model model(device);
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared = octavo::torch::prepare(model, optimizer, config_of(backend, recipe));
  for (int64_t step = 0; step < 4; ++step) {
    const at::Tensor loss = (model.forward(inputs(step).to(device)) - 0.5).square().mean();
    loss.backward();
    all.push_back(loss.detach().cpu());
    prepared.step();
    prepared.zero_grad();
  }
  for (const octavo::torch::Layer &layer : prepared.layers())
    EXPECT_TRUE(layer.fp8) << layer.name << ": " << layer.reason;
  prepared.close();
  for (const at::Tensor &p : model.parameters()) all.push_back(p.detach().cpu());
  return all;
}

TEST(OnNpu, trains_as_on_the_cpu) {
  const std::tuple<at::Device, const char *, const char *> cases[] = {{whole(), "te", "delayed"},
                                                                      {whole(), "te", "current"},
                                                                      {whole(), "msamp", "O1"},
                                                                      {whole(), "msamp", "O2"},
                                                                      {least(), "te", "current"}};
  for (const auto &[device, backend, recipe] : cases) {
    const auto cpu = trained(at::kCPU, backend, recipe), found = trained(device, backend, recipe);
    ASSERT_EQ(found.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i)
      EXPECT_TRUE(torch::equal(found[i], cpu[i])) << backend << " " << recipe << ", number " << i;
  }
}

TEST(OnNpu, refusals_name_kernels_and_what_they_lack) {
  const auto refusal = [](const at::Device &device, const Config &config, const char *part) {
    Model model(device);
    torch::optim::AdamW optimizer = testing_torch::adamw(model);
    return status_of([&] { static_cast<void>(octavo::torch::prepare(model, optimizer, config)); },
                     part);
  };
  EXPECT_EQ(refusal(least(), config_of("te", "delayed"),
                    "delayed_scale_update: kernels_plugin does not have it"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(refusal(least(), config_of("msamp", "O2"), "adam_step: kernels_plugin does not have"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(refusal(whole(), config_of("te", "delayed").set("device.kernels", "kernels-broken"),
                    "kernels kernels-broken: it is broken"),
            OCTAVO_UNSUPPORTED);
  EXPECT_EQ(refusal(whole(), config_of("te", "delayed").set("device.kind", "cpu"),
                    "expected its tensors on cpu, where the configuration runs, found them on npu"),
            OCTAVO_UNSUPPORTED);
}

TEST(OnNpu, a_checkpoint_goes_to_the_cpu) {
  const std::string directory = testing::TempDir() + "octavo_npu_checkpoint";
  std::vector<at::Tensor> seen;
  for (const at::Device &device : {whole(), at::Device(at::kCPU)}) {
    Model model(device);
    torch::optim::AdamW optimizer = testing_torch::adamw(model);
    Prepared prepared = octavo::torch::prepare(model, optimizer, config_of("msamp", "O2"));
    if (device.is_cpu()) {
      prepared.load_state(directory);
    } else {
      model.forward(inputs(1).to(device)).square().mean().backward();
      prepared.step();
      prepared.zero_grad();
      prepared.save_state(directory);
    }
    const torch::NoGradGuard no_grad;
    seen.push_back(model.forward(inputs(2).to(device)).cpu());
  }
  EXPECT_TRUE(torch::equal(seen[0], seen[1]));
}

TEST(OnNpu, kernels_run_on_the_current_stream) {
  Model model(whole());
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared = octavo::torch::prepare(model, optimizer, config_of("te", "delayed"));
  const c10::impl::VirtualGuardImpl guard(whole().type());
  const c10::Stream stream = guard.getNewStream(whole());
  setenv("OCTAVO_NPU_STREAM", std::to_string(stream.id()).c_str(), 1);
  const at::Tensor x = inputs(1).to(whole());
  EXPECT_EQ(status_of([&] { model.forward(x); }, ""), OCTAVO_INVALID);
  {
    const c10::StreamGuard scope(stream);
    model.forward(x).sum().backward();
  }
  unsetenv("OCTAVO_NPU_STREAM");
}

// What a recomputed forward draws is what the first one drew.
TEST(OnNpu, checkpointing_replays_the_random_numbers_of_the_device) {
  Model model(whole());
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared = octavo::torch::prepare(model, optimizer, config_of("te", "current"));
  at::Generator own = at::globalContext().defaultGenerator(whole());
  const auto gradient = [&](bool checkpointed, uint64_t seed = 7) {
    own.set_current_seed(seed);
    model.zero_grad();
    const auto noisy = [&](const at::Tensor &in) {
      return model.forward(in * torch::rand(in.sizes(), own, in.options()));
    };
    const at::Tensor x = inputs(1).to(whole());
    (checkpointed ? octavo::torch::checkpoint(noisy, x) : noisy(x)).square().sum().backward();
    return model.wide->weight.grad().cpu();
  };
  const at::Tensor plain = gradient(false);
  EXPECT_TRUE(torch::equal(gradient(true), plain));
  EXPECT_FALSE(torch::equal(gradient(false, 8), plain)) << "they are not the device's";
}

}  // namespace
