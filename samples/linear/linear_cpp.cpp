// One FP8 linear layer from C++: linear.c with octavo.hpp, forward and backward.
//
// What must not go wrong: calls are built after the last seal and native, quantize_weight comes
// after every change of the weight, end_step once per training step.
#include "octavo/octavo.hpp"

#include <cstdio>
#include <vector>

int main(int argc, char **argv) {
  constexpr int64_t M = 4, N = 8, K = 16;
  std::vector<float> x(M * K), y(M * N), dy(M * N, 1.0F), dx(M * K), dw(N * K);
  const octavo::Buffer weights(N * K * sizeof(float));  // a weight starts at a multiple of 64 bytes
  auto *w = static_cast<float *>(weights.data());
  for (int i = 0; i < M * K; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 7 - 3);
  for (int i = 0; i < N * K; ++i) w[i] = static_cast<float>(i % 5 - 2) / 4;
  try {
    octavo::Settings settings;
    if (argc > 1) settings.path(argv[1]);
    octavo::Run run(settings);
    const octavo::Added weight = run.add_parameter({"fc.weight", N, K});
    const octavo::Added fc = run.add_linear("fc", weight.id);
    run.seal();
    octavo::Store store(run);
    store.native(weight.id, w);
    if (!fc) {  // stays with the host; the reason is in the report
      std::fputs(run.report().c_str(), stdout);
      return 0;
    }
    octavo::QuantizeWeight quantize(run, store, weight.id);
    octavo::Forward forward(run, store, fc.id);
    octavo::Backward backward(run, store, fc.id);
    octavo::EndStep end_step(run, store);

    const octavo::Buffer saved(forward.saved_bytes(M)), scratch(forward.workspace_bytes(M));
    const octavo::Buffer back(backward.workspace_bytes(M)), cast(run.plan(fc.id).weight_workspace);
    quantize.workspace(cast.data())();
    forward.x(octavo::view(x.data(), M, K)).y(octavo::view(y.data(), M, N));
    forward.saved(saved.data()).workspace(scratch.data())();
    backward.dy(octavo::view(dy.data(), M, N)).x(octavo::view(x.data(), M, K));
    backward.dx(octavo::view(dx.data(), M, K)).dw(octavo::view(dw.data(), N, K));
    backward.saved(saved.data()).workspace(back.data())();
    end_step();
    std::fputs(run.report().c_str(), stdout);
  } catch (const octavo::Error &error) {
    for (const octavo::Diagnostic &d : error.diagnostics())
      std::fprintf(stderr, "%s: %s\n", d.domain.c_str(), d.text.c_str());
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("y[0, :] =");
  for (int i = 0; i < N; ++i) std::printf(" %g", static_cast<double>(y[static_cast<size_t>(i)]));
  std::printf("\ndw[0, 0] = %g\n", static_cast<double>(dw[0]));
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fputs("linear_cpp: writing to standard output failed\n", stderr);
  return 1;
}
