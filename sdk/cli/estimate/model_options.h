// What `octavo estimate` and `octavo bench` ask for: a model, a batch and backends.
#pragma once

#include <string>
#include <vector>

#include "sdk/cli/common.h"
#include "sdk/cli/estimate/shapes.h"

namespace octavo::cli::estimate {

struct ModelOptions {
  Request request;
  std::string model;
  std::vector<std::string> backends;
  uint64_t batch = 0, sequence = 0;
  bool json = false;

  // usual: the backends where none is named.
  void add(CLI::App &command, const std::string &usual, bool needs_batch);
  uint64_t rows() const { return batch * sequence; }
  // "8 sequences of 128: 1024 rows"
  std::string batch_text() const;
};

// What both commands print first.
Json json_of_model(const ModelOptions &options, const Shapes &shapes);

// Sums over the tensors of a model.
struct Sizes {
  uint64_t parameters = 0, linears = 0, in_linears = 0;
};

// Throws Failure(OCTAVO_INVALID) for what 64 bits could not add up: 16 bytes an element, and some
// more for a cast. rows: of x.
Sizes sizes_of(const std::string &path, const Shapes &shapes, uint64_t rows);

// te, and the levels of msamp.
std::vector<std::string> usual_backends();

}  // namespace octavo::cli::estimate
