// Trains one linear with octavo::torch from an installed package; prints what ran and the losses.
#include <octavo/torch/prepare.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  torch::manual_seed(1);
  torch::nn::Linear linear(32, 32);
  torch::optim::AdamW adamw(linear->parameters(), torch::optim::AdamWOptions(1e-2));
  octavo::torch::Config config;
  octavo::torch::Prepared optimizer =
      octavo::torch::prepare(*linear, adamw, config.set("fp8.backend", argv[1]));
  const at::Tensor x = torch::randn({64, 32});
  double first = 0.0;
  double last = 0.0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = (linear(x) - x).pow(2).mean();
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  const octavo::torch::Layer layer = optimizer.layers().at(0);
  std::printf("%s fp8=%d calls=%d loss %.4f to %.4f\n", optimizer.session().backend().c_str(),
              layer.fp8, static_cast<int>(layer.forward_calls), first, last);
  return layer.fp8 && layer.forward_calls == 20 && last < 0.8 * first ? 0 : 1;
}
