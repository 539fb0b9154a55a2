// Three steps of a model on octavo::torch with one backend: what it prints is a digest of the
// weights.
//
//   octavo_train_torch <plugin directory> <backend> [recipe]
#include <octavo/torch/prepare.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cinttypes>
#include <cstdio>
#include <exception>

namespace {

uint64_t digest_of(const std::vector<at::Tensor> &tensors) {
  uint64_t digest = 14695981039346656037u;  // FNV-1a
  for (const at::Tensor &t : tensors) {
    const auto *bytes = static_cast<const uint8_t *>(t.const_data_ptr());
    for (size_t i = 0; i < t.nbytes(); ++i) digest = (digest ^ bytes[i]) * 1099511628211u;
  }
  return digest;
}

int train(const char *directory, const std::string &backend, const std::string &recipe) {
  octavo::torch::Config config;
  config.set("mixed_precision", "fp8").set("layers.min_gain", "off").set("fp8.backend", backend);
  config.set("plugins.trust", "dev").set("plugins.probe", "never");
  if (!recipe.empty()) config.set("fp8.te.recipe", recipe);
  config.plugin_dirs.push_back(directory);
  torch::manual_seed(1);
  torch::nn::Linear up(32, 64), down(torch::nn::LinearOptions(64, 32).bias(false));
  torch::nn::Sequential model(up, torch::nn::Functional(torch::relu), down);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  octavo::torch::Prepared prepared = octavo::torch::prepare(*model, optimizer, config);
  const at::Tensor x = torch::randn({16, 32});
  for (int step = 0; step < 3; ++step) {
    prepared.zero_grad();
    (model->forward(x) - x).square().mean().backward();
    prepared.step();
  }
  for (const octavo::torch::Layer &layer : prepared.layers()) {
    if (layer.fp8 && layer.forward_calls == 3) continue;
    std::fprintf(stderr, "%s: %s\n", layer.name.c_str(), layer.reason.c_str());
    return 1;
  }
  prepared.close();
  std::printf("%016" PRIx64 "\n", digest_of(model->parameters()));
  return 0;
}

}  // namespace

int main(int argc, char **argv) try {
  if (argc < 3) return std::fprintf(stderr, "expected a folder and a backend\n"), 2;
  return train(argv[1], argv[2], argc > 3 ? argv[3] : "");
} catch (const std::exception &e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
