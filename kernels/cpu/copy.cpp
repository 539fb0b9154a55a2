/* copy and scale_values: the two verbs that backends need because they may not touch memory.
 *
 * `out` may be `in` for scale_values only.
 */
#include <cstring>

#include "kernels/check/verbs.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

octavo_status copy(void *ctx, const octavo_copy *c) {
  const Context &context = context_of(ctx);
  const octavo_status status = check_copy(context.caller(), c);
  if (status != OCTAVO_OK || c->bytes == 0) return status;

  constexpr int64_t kGrainBytes = 1 << 18;
  return context.for_ranges(static_cast<int64_t>(c->bytes), kGrainBytes,
                            [&](int64_t begin, int64_t end) {
                              char *out = static_cast<char *>(c->out) + begin;
                              const size_t bytes = static_cast<size_t>(end - begin);
                              if (c->in == nullptr) {
                                std::memset(out, 0, bytes);
                              } else {
                                std::memcpy(out, static_cast<const char *>(c->in) + begin, bytes);
                              }
                            });
}

octavo_status scale_values(void *ctx, const octavo_scale_values *c) {
  const Context &context = context_of(ctx);
  const octavo_status status = check_scale_values(context.caller(), c);
  if (status != OCTAVO_OK) return status;

  return context.for_ranges(static_cast<int64_t>(c->n), kGrainElements,
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i)
                                c->out[i] = c->in[i] * c->factor;
                            });
}

}  // namespace octavo
