/* pack: codes in panel order, for products that read them as b; see dot_loops.h. */
#include "kernels/check/verbs.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

octavo_status pack(void *ctx, const octavo_pack *c) {
  const Context &context = context_of(ctx);
  const octavo_status status = check_pack(context.caller(), c, limits_of(context));
  if (status != OCTAVO_OK) return status;
  const octavo_tensor &in = *c->in;
  if (in.cols == 0) return OCTAVO_OK;
  const int64_t panels = divide_up(in.rows, kDotCols);
  const int64_t grain = divide_up(kGrainElements, in.cols * kDotCols);
  return context.for_ranges(panels, grain, [&](int64_t first, int64_t end) {
    for (int64_t panel = first; panel < end; ++panel) {
      const int64_t row = panel * kDotCols;
      const int64_t rest = in.rows - row;
      context.level->dot->pack_codes(element(in, row, 0), in.stride,
                                     rest < kDotCols ? static_cast<int>(rest) : kDotCols, in.cols,
                                     element(*c->out, row, 0));
    }
  });
}

}  // namespace octavo
