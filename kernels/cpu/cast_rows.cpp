/* What cast_rows.h leaves to a source file: the size of the last-level cache, as the operating
 * system states it, codes that must not be 0, and the pass that only measures.
 */
#include "kernels/cpu/cast_rows.h"

#include <unistd.h>

#include "kernels/cpu/state_blocks.h"

namespace octavo {
namespace {

/* Half of the last-level cache; of an unknown one, half of 32 MiB. */
int64_t half_of_cache() {
  int64_t bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  return (bytes > 0 ? bytes : int64_t{32} << 20) / 2;
}

}  // namespace

void keep_positive_part(const Context &context, const Source &source, int64_t row, int64_t col,
                        int64_t count, uint32_t dtype, void *codes) {
  float buffer[kSegment];
  for (int64_t first = 0; first < count; first += kSegment) {
    const int64_t length = count - first < kSegment ? count - first : kSegment;
    const float *values =
        row_values(context, source.in, row, col + first, length, source.factor, buffer);
    keep_positive(dtype, values, length, static_cast<char *>(codes) + first * dtype_bytes(dtype));
  }
}

octavo_status measure_all(const Context &context, const Source &source, SharedStats *shared) {
  const octavo_tensor in = is_dense(source.in) ? as_row(source.in) : source.in;
  const Source runs = {in, source.factor};
  return for_runs(context, in.rows, in.cols, [&](auto &&for_each_run) {
    ValueStats stats;
    for_each_run([&](int64_t row, int64_t col, int64_t count) {
      merge(&stats, measure_part(context, runs, row, col, count));
    });
    shared->add(stats);
  });
}

bool goes_past_caches(int64_t bytes) {
  static const int64_t limit = half_of_cache();
  return bytes > limit;
}

}  // namespace octavo
