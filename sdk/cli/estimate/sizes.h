// Sums over the tensors of a model, and which backends are shown where none is named.
#pragma once

#include "sdk/cli/estimate/shapes.h"

namespace octavo::cli::estimate {

struct Sizes {
  uint64_t parameters = 0, linears = 0, in_linears = 0;
};

// Throws Failure(OCTAVO_INVALID) for what 64 bits could not add up: 16 bytes an element, and some
// more for a cast. rows: of x.
Sizes sizes_of(const std::string &path, const Shapes &shapes, uint64_t rows);

// te, and the levels of msamp.
std::vector<std::string> usual_backends();

}  // namespace octavo::cli::estimate
