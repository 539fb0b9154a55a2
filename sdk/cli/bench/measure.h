// How long the linears of a model take on this machine: in bf16, and by backends.
#pragma once

#include <string>
#include <vector>

#include "octavo/octavo.hpp"
#include "sdk/cli/estimate/ledger.h"

namespace octavo::cli::bench {

// Linears with weights [n, k], by name.
struct Shape {
  int64_t n = 0, k = 0;
  std::vector<std::string> linears;
};
// In the order of their first linears.
std::vector<Shape> shapes_of(const estimate::Shapes &model);

// What a backend needs, or why it does not run the layer.
struct Timed {
  std::string backend, refused;
  std::vector<double> seconds;  // by round
};
// Seconds of one linear in a step, by round: all rounds run bf16 and each backend once, so that
// what disturbs a round disturbs all of them.
struct Measured {
  Shape shape;
  std::vector<double> bf16;
  std::vector<Timed> backends;
};

class Meter {
 public:
  // rows: of x. seconds: of measuring for each shape, at least kFewest rounds.
  Meter(octavo::Settings settings, std::vector<estimate::Named> backends, int64_t rows,
        double seconds);
  // Throws octavo::Error where kernels fail, and Failure for what the configuration has wrong.
  Measured measure(const Shape &shape);
  // The kernels that ran, as "cpu.avx2"; empty before the first measurement.
  const std::string &kernels() const { return kernels_; }
  // Without units for FP8.
  bool is_emulated() const { return is_emulated_; }

 private:
  octavo::Settings settings_;
  std::vector<estimate::Named> backends_;
  int64_t rows_;
  double seconds_;
  octavo::Threads threads_;
  octavo::Host host_;
  std::string kernels_;
  bool is_emulated_ = false;
};

inline constexpr size_t kFewest = 5, kMost = 100;

}  // namespace octavo::cli::bench
