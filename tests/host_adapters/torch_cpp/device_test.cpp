// A model whose tensors are not on the CPU: on a fake device, whose kernels are those of
// kernels/cuda on a fake GPU. Memory of the device is out of reach for whatever is no kernel and
// no operator of torch, and kernels do not reach the CPU's.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <octavo/torch/accelerator.h>
#include <octavo/torch/checkpoint.h>

#include "device_model.h"
#include "tests/support/param_name.h"

namespace {

using octavo::torch::Config;
using octavo::torch::Prepared;
using testing_torch::config_on;
using testing_torch::fake_device;
using testing_torch::inputs;
using testing_torch::Model;
using testing_torch::status_of;
using testing_torch::use_capability;

const auto *const fake_gpu = testing::AddGlobalTestEnvironment(new testing_torch::FakeGpu);

// The losses of some steps, then what the model computes without gradients and in inference mode,
// its weights, and the norm of a clipped gradient.
std::vector<at::Tensor> trained(const at::Device &device, const std::string &backend,
                                const std::string &recipe, at::IntArrayRef shape) {
  std::vector<at::Tensor> all;
  Model model(device);
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared = octavo::torch::prepare(model, optimizer, config_on(device, backend, recipe));
  for (int64_t step = 0; step < 4; ++step) {
    const at::Tensor x = inputs(step).reshape(shape).to(device);
    const at::Tensor loss = (model.forward(x) - 0.5).square().mean();
    loss.backward();
    all.push_back(loss.detach().cpu());
    if (step == 2) all.push_back(torch::tensor(prepared.clip_grad_norm_(0.5)));
    prepared.step();
    prepared.zero_grad();
  }
  const at::Tensor x = inputs(9).reshape(shape).to(device);
  {
    const torch::NoGradGuard no_grad;
    all.push_back(model.forward(x).cpu());
  }
  {
    const torch::InferenceMode inference;
    all.push_back(model.forward(x).cpu());
  }
  for (const octavo::torch::Layer &layer : prepared.layers()) {
    EXPECT_TRUE(layer.fp8) << layer.name << ": " << layer.reason;
    EXPECT_EQ(layer.forward_calls, 6u) << layer.name;
    EXPECT_EQ(layer.wgrad_calls, 4u) << layer.name;
  }
  prepared.close();
  for (const at::Tensor &p : model.parameters()) all.push_back(p.detach().cpu());
  return all;
}

struct Case {
  const char *backend;
  const char *recipe;

  friend std::ostream &operator<<(std::ostream &out, const Case &c) {
    return out << c.backend << " " << c.recipe;
  }
};

class OnDevice : public testing::TestWithParam<Case> {};

TEST_P(OnDevice, trains_as_on_the_cpu) {
  use_capability(std::string_view(GetParam().recipe) == "mx" ? 100 : 90);
  for (const std::vector<int64_t> &shape : {std::vector<int64_t>{24, 48}, {2, 12, 48}}) {
    const std::vector<at::Tensor> cpu =
        trained(at::kCPU, GetParam().backend, GetParam().recipe, shape);
    const std::vector<at::Tensor> device =
        trained(fake_device(), GetParam().backend, GetParam().recipe, shape);
    ASSERT_EQ(device.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_TRUE(torch::equal(device[i], cpu[i])) << "number " << i << " of " << shape.size();
      EXPECT_FALSE(device[i].isnan().any().item<bool>()) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OnDevice,
                         testing::Values(Case{"te", "delayed"}, Case{"te", "mx"},
                                         Case{"msamp", "O2"}, Case{"msamp", "O3"}),
                         octavo::test::kNameOfValue);

TEST(OnDevice, checkpoint_crosses_to_the_cpu_and_back) {
  const std::string directory = testing::TempDir() + "octavo_device_checkpoint";
  std::vector<at::Tensor> seen;
  for (const bool saves : {true, false}) {
    const at::Device device = saves ? fake_device() : at::Device(at::kCPU);
    Model model(device);
    torch::optim::AdamW optimizer = testing_torch::adamw(model);
    Prepared prepared = octavo::torch::prepare(model, optimizer, config_on(device, "msamp", "O2"));
    if (saves) {
      (model.forward(inputs(1).to(device))).square().mean().backward();
      prepared.step();
      prepared.zero_grad();
      prepared.save_state(directory);
    } else {
      prepared.load_state(directory);
    }
    const torch::NoGradGuard no_grad;
    seen.push_back(model.forward(inputs(2).to(device)).cpu());
  }
  EXPECT_TRUE(torch::equal(seen[0], seen[1]));
}

TEST(OnDevice, model_and_configuration_must_agree) {
  Model model(at::kCPU);
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  EXPECT_EQ(status_of(
                [&] {
                  static_cast<void>(octavo::torch::prepare(
                      model, optimizer, config_on(fake_device(), "te", "delayed")));
                },
                "expected its tensors on cuda:0, where the configuration runs, found them on cpu"),
            OCTAVO_UNSUPPORTED);
  Model there(fake_device());
  torch::optim::AdamW other = testing_torch::adamw(there);
  EXPECT_EQ(status_of(
                [&] {
                  static_cast<void>(
                      octavo::torch::prepare(there, other, config_on(at::kCPU, "te", "mx")));
                },
                "expected its tensors on cpu"),
            OCTAVO_UNSUPPORTED);
  there.narrow->move(at::kCPU);
  torch::optim::AdamW both = testing_torch::adamw(there);
  EXPECT_EQ(status_of(
                [&] {
                  static_cast<void>(octavo::torch::prepare(
                      there, both, config_on(fake_device(), "te", "delayed")));
                },
                "as the ones before it"),
            OCTAVO_UNSUPPORTED);
}

TEST(OnDevice, other_products_stay_torchs) {
  Model model(fake_device());
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared =
      octavo::torch::prepare(model, optimizer, config_on(fake_device(), "msamp", "O2"));
  const at::Tensor x = inputs(3), w = torch::randn({16, 48}), b = torch::randn({16});
  const at::Device device = fake_device();
  const auto same = [&](const at::Tensor &expected, const at::Tensor &found) {
    EXPECT_TRUE(torch::equal(found.cpu(), expected));
  };
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    same(torch::addmm(b, x, w.t()), torch::addmm(b.to(device), x.to(device), w.to(device).t()));
    same(torch::linear(x, w), torch::linear(x.to(device), w.to(device)));
    same(torch::matmul(x, w.t()), torch::matmul(x.to(device), w.to(device).t()));
  }
}

TEST(OnDevice, autocast_and_checkpointing_follow_the_device) {
  octavo::torch::Accelerator accelerator(config_on(fake_device(), "te", "delayed"));
  Model model(fake_device());
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  accelerator.prepare(model, optimizer);
  const at::Tensor x = inputs(1).to(fake_device());
  at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kBFloat16);
  {
    const auto scope = accelerator.autocast();
    EXPECT_EQ(model.wide->forward(x).scalar_type(), at::kBFloat16);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  EXPECT_EQ(model.wide->forward(x).scalar_type(), at::kFloat);

  const auto gradient = [&](bool checkpointed) {
    model.zero_grad();
    const auto whole = [&](const at::Tensor &in) { return model.forward(in); };
    const at::Tensor y = checkpointed ? octavo::torch::checkpoint(whole, x) : whole(x);
    y.square().sum().backward();
    return model.wide->weight.grad().cpu();
  };
  const at::Tensor plain = gradient(false);
  EXPECT_TRUE(torch::equal(gradient(true), plain));
}

TEST(OnDevice, operand_of_another_device_is_refused) {
  Model model(fake_device());
  torch::optim::AdamW optimizer = testing_torch::adamw(model);
  Prepared prepared =
      octavo::torch::prepare(model, optimizer, config_on(fake_device(), "te", "delayed"));
  EXPECT_EQ(status_of([&] { model.wide->forward(inputs(0)); }, "where the model was prepared"),
            OCTAVO_INVALID);
}

}  // namespace
