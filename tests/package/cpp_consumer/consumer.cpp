// consumer.cpp: a linear layer through the backend "current" and no other, with octavo/octavo.hpp.
//
// Inputs are powers of two below an amax of 1, which FP8 holds exactly under current scaling, so
// the only error is that of the float32 scale_inv: the expected numbers are exact.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "octavo/octavo.hpp"

namespace {

// fl32(M / amax), its reciprocal, their product for two operands, and the product with the sum: at
// most six roundings of 2^-24 each, relative to results of at most 2.
constexpr float kTolerance = 2.0F * 6.0F * 0x1p-24F;

int wrong(const char *what, const std::vector<float> &expected, const float *found) {
  int count = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::fabs(expected[i] - found[i]) <= kTolerance) continue;
    std::fprintf(stderr, "%s[%zu]: expected %.9g, found %.9g\n", what, i,
                 static_cast<double>(expected[i]), static_cast<double>(found[i]));
    ++count;
  }
  return count;
}

int check_layer(bool weight_cache) {
  alignas(256) float x[4] = {1, 0.5F, -0.25F, 1}, w[4] = {1, -0.5F, 0.25F, 1};
  alignas(256) float dy[4] = {1, 0, 0.5F, -1}, y[4] = {}, dx[4] = {}, dw[4] = {};
  octavo::Run run(octavo::Settings()
                      .set("mixed_precision", "fp8")
                      .set("fp8.backend", "current")
                      .set("fp8.current.weight_cache", weight_cache));
  const octavo::Added weight = run.add_parameter({"layer.weight", 2, 2});
  const octavo::Added layer = run.add_linear("layer", weight.id);
  run.seal();
  octavo::Store store(run);
  store.native(weight.id, w);

  octavo::QuantizeWeight quantize(run, store, weight.id);
  octavo::Forward forward(run, store, layer.id);
  octavo::Backward backward(run, store, layer.id);
  const octavo::Buffer saved(forward.saved_bytes(2)), there(forward.workspace_bytes(2));
  const octavo::Buffer back(backward.workspace_bytes(2));
  const octavo::Buffer cast(run.plan(layer.id).weight_workspace);
  quantize.workspace(cast.data())();
  forward.x(octavo::view(x, 2, 2)).y(octavo::view(y, 2, 2)).saved(saved.data());
  forward.workspace(there.data())();
  backward.dy(octavo::view(dy, 2, 2)).dx(octavo::view(dx, 2, 2)).dw(octavo::view(dw, 2, 2));
  backward.saved(saved.data()).workspace(back.data());
  backward();
  backward();
  octavo::EndStep(run, store)();
  return wrong("y = x w^T", {0.75F, 0.75F, -0.75F, 0.9375F}, y) +
         wrong("dx = dy w", {1, -0.5F, 0.25F, -1.25F}, dx) +
         wrong("dw += dy^T x, twice", {1.75F, 2, 0.5F, -2}, dw);
}

int check_refusal() {
  try {
    octavo::Run run(octavo::Settings().set("mixed_precision", "fp8").set("fp8.backend", "tiny"));
  } catch (const octavo::Error &error) {
    const std::string text = error.what();
    if (error.status() == OCTAVO_UNSUPPORTED &&
        text.find("tiny refuses everything") != std::string::npos)
      return 0;
    std::fprintf(stderr, "backend tiny: expected its refusal, found %s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "backend tiny: expected a refusal, found a run\n");
  return 1;
}

}  // namespace

int main() {
  try {
    const int faults = check_layer(true) + check_layer(false) + check_refusal();
    if (faults == 0) std::puts("current: forward and backward agree with the exact numbers");
    return faults == 0 ? 0 : 1;
  } catch (const octavo::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
