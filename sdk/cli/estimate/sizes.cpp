// In floating point first, where nothing overflows.
#include "sdk/cli/estimate/sizes.h"

#include "sdk/src/base/failure.h"

namespace octavo::cli::estimate {

Sizes sizes_of(const std::string &path, const Shapes &shapes, uint64_t rows) {
  constexpr double kMost = 0x1p56;
  double all = 0, widths = 0;  // of what linears read and write
  for (const Tensor &t : shapes.tensors) {
    all += static_cast<double>(t.rows) * static_cast<double>(t.cols);
    if (t.linear.empty()) continue;
    widths += static_cast<double>(t.rows) + static_cast<double>(t.cols);
  }
  if (all > kMost || widths * static_cast<double>(rows) > kMost)
    throw Failure(
        OCTAVO_INVALID, kEstimateDomain, path,
        ": expected fewer than 2^56 elements in tensors and in the rows of linears, found "
        "more");
  Sizes s;
  for (const Tensor &t : shapes.tensors) {
    s.parameters += t.count();
    if (t.linear.empty()) continue;
    ++s.linears;
    s.in_linears += t.count();
  }
  return s;
}

std::vector<std::string> usual_backends() {
  return {"te", "msamp:opt_level=O1", "msamp:opt_level=O2", "msamp:opt_level=O3"};
}

}  // namespace octavo::cli::estimate
