/* copy, scale_values and pack: what backends need because they may not touch memory. The panel
 * order of pack is that of dot_loops.h.
 *
 * `out` may be `in` for scale_values only.
 */
#include <cstring>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

octavo_status copy(const Context &context, const octavo_copy &c) {
  if (c.bytes == 0) return OCTAVO_OK;
  constexpr int64_t kGrainBytes = 1 << 18;
  return context.for_ranges(static_cast<int64_t>(c.bytes), kGrainBytes,
                            [&](int64_t begin, int64_t end) {
                              char *out = static_cast<char *>(c.out) + begin;
                              const size_t bytes = static_cast<size_t>(end - begin);
                              if (c.in == nullptr) {
                                std::memset(out, 0, bytes);
                              } else {
                                std::memcpy(out, static_cast<const char *>(c.in) + begin, bytes);
                              }
                            });
}

octavo_status scale_values(const Context &context, const octavo_scale_values &c) {
  return context.for_ranges(static_cast<int64_t>(c.n), kGrainElements,
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i) c.out[i] = c.in[i] * c.factor;
                            });
}

octavo_status pack(const Context &context, const octavo_pack &c) {
  const octavo_tensor &in = *c.in;
  if (in.cols == 0) return OCTAVO_OK;
  const int64_t panels = divide_up(in.rows, kDotCols);
  const int64_t grain = divide_up(kGrainElements, in.cols * kDotCols);
  return context.for_ranges(panels, grain, [&](int64_t first, int64_t end) {
    for (int64_t panel = first; panel < end; ++panel) {
      const int64_t row = panel * kDotCols;
      const int64_t rest = in.rows - row;
      context.level->dot->pack_codes(element(in, row, 0), in.stride,
                                     rest < kDotCols ? static_cast<int>(rest) : kDotCols, in.cols,
                                     element(*c.out, row, 0));
    }
  });
}

}  // namespace octavo
