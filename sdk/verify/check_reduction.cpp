// reduction: ranks that reduce through octavo.gradients/1 all end with the mean of their gradients.
//
// One rank, two and three; the stages themselves are watched in reduction.cpp.
#include <algorithm>
#include <cmath>

#include "all_checks.h"
#include "reduction.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// A cast to the coarsest FP8 format, E5M2, is off by at most 2^-3 of a value. So is the mean of the
// ranks' casts; then the sum, up to 1 + 2^-3 of the largest, is cast once more.
constexpr double kRoundings = 0x1p-3 + 0x1p-3 * (1 + 0x1p-3);
// Values that the format rounds to a fixed step or to 0 are off by half of the least step, twice.
// In E4M3 that is 2 * 2^-10 in codes, where a pre-scaled amax stands at 1/2 or above.
constexpr double kLeastStep = 0x1p-8;

}  // namespace

void need_gradients(const Context &context) {
  if (context.target.gradients == nullptr) {
    throw Skip(text("the backend has no ", OCTAVO_GRADIENTS_ID));
  }
}

void check_reduction(const Context &context) {
  need_gradients(context);
  for (const uint32_t world : {1U, 2U, 3U}) {
    Reduction reduction(context, world);
    reduction.plan();
    reduction.compute_gradients();
    const auto before = reduction.gradients();
    reduction.run();
    reduction.check_ranks_agree();
    const auto after = reduction.gradients();
    for (size_t p = 0; p < after[0].size(); ++p) {
      double amax = 0;
      for (const auto &rank : before) {
        for (const double v : rank[p]) amax = std::max(amax, std::fabs(v));
      }
      expect(amax > 0, "the gradient of '", reduction.name(p), "' is 0 on every rank");
      for (size_t i = 0; i < after[0][p].size(); ++i) {
        double mean = 0, largest = 0;
        for (const auto &rank : before) {
          mean += rank[p][i] / world;
          largest = std::max(largest, std::fabs(rank[p][i]));
        }
        const double bound = world == 1 ? 0 : kRoundings * largest + kLeastStep * amax;
        if (std::fabs(after[0][p][i] - mean) <= bound) continue;
        expect(false, "element ", i, " of the gradient of '", reduction.name(p), "' is ",
               after[0][p][i], " after the reduction over ", world, " ranks; their mean is ", mean,
               " and the bound is ", bound);
      }
    }
  }
}

}  // namespace octavo::conformance
