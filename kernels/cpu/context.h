/* kernels/cpu/context.h: what open_device keeps: the host, its thread pool and the chosen level.
 *
 * A Context never changes after open, so any number of calls may use it at once.
 */
#pragma once

#include <type_traits>

#include "kernels/check/verbs.h"
#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/level.h"
#include "octavo/kernels.h"

namespace octavo {

constexpr char kDomain[] = "octavo.kernels.cpu"; /* of diagnostics */

struct Context {
  const octavo_host *host;
  const octavo_parallel *parallel; /* null: everything runs on the calling thread */
  const Level *level;

  Caller caller() const { return {host, kDomain}; }

  /* Calls body(begin, end) for disjoint ranges that cover [0, count), each of at least `grain`
   * indices where possible. Bodies must not depend on how the ranges are cut. */
  template <typename Body>
  octavo_status for_ranges(int64_t count, int64_t grain, Body &&body) const {
    if (count <= 0) return OCTAVO_OK;
    if (parallel == nullptr || count <= grain) {
      body(int64_t{0}, count);
      return OCTAVO_OK;
    }
    using Plain = std::remove_reference_t<Body>;
    return parallel->parallel_for(
        parallel->ctx, 0, count, grain,
        [](void *arg, int64_t begin, int64_t end) {
          const DefaultArithmetic scope; /* of the host's thread */
          (*static_cast<Plain *>(arg))(begin, end);
        },
        &body);
  }
};

inline const Context &context_of(void *ctx) {
  return *static_cast<const Context *>(ctx);
}

/* What the checks of kernels/check have to know of these kernels. */
DeviceLimits limits_of(const Context &context);

/* Table entries; see octavo/kernels.h. */
octavo_status probe_device(octavo_device device, const octavo_verdict_sink *sink);
octavo_status open_device(octavo_device device, const octavo_host *host, void **ctx);
void close_device(void *ctx);
octavo_status describe(void *ctx, octavo_kernels_caps *out);
octavo_status ability(void *ctx, octavo_ability *question);

}  // namespace octavo
