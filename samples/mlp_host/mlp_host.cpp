// mlp_host: a complete host of Octavo. Two linears, a training loop, backward, an optimizer step.
//
//   mlp_host [octavo.toml] [key=value ...]      mlp_host fp8.backend=msamp fp8.msamp.opt_level=O3
//
// A backend that owns the weights steps them; otherwise this program does. What must not go wrong
// is the order: add, seal, lend, build calls; in each step forward, backward, optimizer, end_step.
#include <octavo/octavo.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace {

using Floats = octavo::Array<float>;
constexpr int64_t kRows = 64, kInputs = 32, kHidden = 64, kOutputs = 16;
constexpr int kSteps = 300;

// Uniform in [-width, width), equal on every machine.
void fill(Floats &values, uint64_t seed, float width) {
  for (size_t i = 0; i < values.size(); ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    values[i] = width * (static_cast<float>(seed >> 40U) * 0x1p-23F - 1);
  }
}

// y = x w^T: by the backend, or by loops of this program where the layer stays here.
class Linear {
 public:
  Linear(octavo::Run *run, const std::string &name, int64_t n, int64_t k, uint64_t seed)
      : weight(static_cast<size_t>(n * k)), n_(n), k_(k) {
    fill(weight, seed, std::sqrt(3 / static_cast<float>(k)));
    if (run != nullptr) parameter = run->add_parameter({name + ".weight", n, k}).id;
    if (parameter != OCTAVO_NONE) linear_ = run->add_linear(name, parameter).id;
  }
  // After the seal and what was lent: the calls with their memory. A weight that the backend owns
  // moves there.
  void bind(const octavo::Run &run, const octavo::Store &store) {
    if (linear_ == OCTAVO_NONE) return;
    calls_.emplace(run, store, parameter, linear_, kRows);
    if (run.owns(parameter, OCTAVO_ROLE_GRADIENT)) grad.release();
    if (!run.owns(parameter)) return;
    octavo::write_parameter(run, store, parameter, octavo::view(weight, n_, k_));
    weight.release();
  }
  void forward(const Floats &x, Floats &y) {
    if (calls_) {
      calls_->quantize_weight();  // it has changed since the last forward
      calls_->forward.x(octavo::view(x, kRows, k_)).y(octavo::view(y, kRows, n_))();
    } else {
      y.clear();
      each([&](size_t in, size_t out, size_t w) { y[out] += x[in] * weight[w]; });
    }
  }
  void backward(const Floats &x, const Floats &dy, Floats &dx) {
    dx.clear();
    grad.clear();  // of no size where the backend owns it
    if (calls_) {
      octavo::Backward &call = calls_->backward;
      call.x(octavo::view(x, kRows, k_)).dy(octavo::view(dy, kRows, n_));
      if (calls_->gives_dw()) call.dw(octavo::view(grad, n_, k_));
      call.dx(octavo::view(dx, kRows, k_))();
    } else {
      each([&](size_t in, size_t out, size_t w) {
        grad[w] += dy[out] * x[in];
        dx[in] += dy[out] * weight[w];
      });
    }
  }

  uint32_t parameter = OCTAVO_NONE;
  Floats weight, grad{weight.size()}, momentum{weight.size()};

 private:
  // body(element of x, of y, of w) for every product
  template <typename Body>
  void each(Body body) const {
    const auto n = static_cast<size_t>(n_), k = static_cast<size_t>(k_);
    for (size_t r = 0; r < kRows; ++r)
      for (size_t j = 0; j < n; ++j)
        for (size_t i = 0; i < k; ++i) body(r * k + i, r * n + j, j * k + i);
  }

  int64_t n_, k_;
  uint32_t linear_ = OCTAVO_NONE;
  std::optional<octavo::LinearCalls> calls_;
};

// Adam of the backend, on weights, gradients and moments in its own formats.
class BackendAdam {
 public:
  BackendAdam(const octavo::Run &run, octavo::Store &store, const std::vector<uint32_t> &weights)
      : store_(store), norm_(run, store, weights), prepare_(run), step_(run, store, weights) {
    hyper_[OCTAVO_HYPER_LR] = 3e-3F, hyper_[OCTAVO_HYPER_EPS] = 1e-8F;
    hyper_[OCTAVO_HYPER_BETA1] = 0.9F, hyper_[OCTAVO_HYPER_BETA2] = 0.99F;
    norm_.sum(sum_.data()).workspace(workspace_.data());
    prepare_.sums(sum_.data(), 1).skip(skip_.data()).hyper({hyper_.data()});
    step_.hyper(hyper_.data()).skip(skip_.data()).workspace(workspace_.data());
  }
  void step(const float *nonfinite) {
    sum_.clear();
    norm_();
    prepare_.nonfinite(nonfinite)();  // an infinite gradient sets `skip`
    step_();
    store_.clear(OCTAVO_ROLE_GRADIENT);
  }

 private:
  octavo::Store &store_;
  octavo::SumOfSquares norm_;
  octavo::PrepareStep prepare_;
  octavo::OptimizerStep step_;
  octavo::Buffer workspace_{step_.workspace_bytes()};
  Floats hyper_{OCTAVO_HYPER_COUNT}, sum_{1}, skip_{1};
};

// Gradient descent with momentum in float32, for weights of this program.
void descend(Linear &layer) {
  for (size_t i = 0; i < layer.weight.size(); ++i) {
    layer.momentum[i] = 0.9F * layer.momentum[i] + layer.grad[i];
    layer.weight[i] -= 0.05F * layer.momentum[i];
  }
}

void relu(const Floats &gate, Floats &values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = gate[i] > 0 ? values[i] : 0;
}

void train(const octavo::Settings &settings) {
  octavo::Run run(settings);
  Linear fc1(&run, "fc1", kHidden, kInputs, 1), fc2(&run, "fc2", kOutputs, kHidden, 2);
  run.seal();
  std::fputs(run.report().c_str(), stdout);
  octavo::Store store(run);
  for (Linear *layer : {&fc1, &fc2}) {  // tensors of this program, where the backend looks at them
    store.lend(run, layer->parameter, layer->weight.data());
    store.lend(run, layer->parameter, layer->grad.data(), OCTAVO_ROLE_GRADIENT);
  }
  for (Linear *layer : {&fc1, &fc2}) layer->bind(run, store);
  std::optional<octavo::EndStep> end_step;
  if (run.backend() != nullptr) end_step.emplace(run, store);
  const float *nonfinite = store.nonfinite(run);
  std::optional<BackendAdam> adam;  // refuses a backend that owns weights and does not step them
  if (run.optimizer() != nullptr || run.owns(fc1.parameter))
    adam.emplace(run, store, std::vector<uint32_t>{fc1.parameter, fc2.parameter});

  // A task that is made up: what one random linear gives for random x.
  Linear teacher(nullptr, "teacher", kOutputs, kInputs, 3);
  Floats x(kRows * kInputs), h(kRows * kHidden), dh(h.size()), dx(x.size());
  Floats y(kRows * kOutputs), wanted(y.size()), dy(y.size());
  for (int step = 1; step <= kSteps; ++step) {
    fill(x, 1000 + static_cast<uint64_t>(step), 1);
    teacher.forward(x, wanted);
    fc1.forward(x, h);
    relu(h, h);
    fc2.forward(h, y);
    double loss = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      dy[i] = 2 * (y[i] - wanted[i]) / kRows;
      loss += 0.5 * kRows * dy[i] * (y[i] - wanted[i]) / static_cast<double>(y.size());
    }
    fc2.backward(h, dy, dh);
    relu(h, dh);
    fc1.backward(x, dh, dx);
    if (adam) adam->step(nonfinite);
    if (!adam && (nonfinite == nullptr || *nonfinite == 0)) descend(fc1), descend(fc2);
    if (end_step) (*end_step)();
    if (step == 1 || step % 50 == 0) std::printf("step %3d  loss %.6f\n", step, loss);
  }
}

}  // namespace

int main(int argc, char **argv) {
  octavo::Settings settings;
  settings.device({OCTAVO_DEVICE_CPU, 0});  // where the tensors of this program are
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    equals == std::string::npos
        ? settings.path(argument)
        : settings.parse(argument.substr(0, equals), argument.substr(equals + 1));
  }
  try {
    train(settings);
  } catch (const octavo::Error &error) {
    std::fprintf(stderr, "mlp_host: %s\n", error.what());
    return 1;
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fputs("mlp_host: writing to standard output failed\n", stderr);
  return 1;
}
