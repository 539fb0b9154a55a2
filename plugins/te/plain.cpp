// Products in the host's precision.
#include <algorithm>

#include "te.h"

namespace octavo::te {

using namespace plugin;

namespace {

// Room for the converted part of a weight: a product of one part keeps a device busy, and the
// workspace of a training step hardly grows.
constexpr int64_t kPartBytes = int64_t{8} << 20;
// Parts begin at multiples of 16 rows of w, so that y and the bias are aligned there, too.
constexpr int64_t kPartRows = 16;

octavo_tensor columns_of(octavo_tensor t, int64_t first, int64_t count) {
  t.data = static_cast<char *>(t.data) + first * (OCTAVO_DTYPE_BITS(t.dtype) / 8);
  t.cols = count;
  return t;
}

}  // namespace

void multiply_plain(Pass &p, const octavo_tensor &a, Operand w, octavo_tensor &d,
                    const octavo_tensor *bias) {
  const bool is_narrow = a.dtype != OCTAVO_F32;
  if (w.codes.dtype != OCTAVO_F32 || !p.measures_or_takes(is_narrow))
    return p.multiply(plain(a), w, d, bias);

  const bool by_columns = w.layout == Layout::kTransposed;
  const auto part_of = [&](int64_t first, int64_t count) {
    return by_columns ? columns_of(w.codes, first, count) : rows_of(&w.codes, first, count);
  };
  const int64_t fitting = kPartBytes / 2 / std::max<int64_t>(w.summed(), 1);
  const int64_t count = std::min(w.kept(), std::max(kPartRows, fitting / kPartRows * kPartRows));
  const octavo_tensor shape = part_of(0, count);
  const octavo_tensor room = p.workspace().tensor(shape.rows, shape.cols, OCTAVO_BF16);
  // A plan knows no dtype of a: it measures the product with w as it is, and that of a part.
  if (p.measuring()) p.multiply(plain(a), w, d, bias);
  for (int64_t first = 0; first < w.kept(); first += count) {
    const octavo_tensor part = part_of(first, std::min(count, w.kept() - first));
    octavo_tensor narrow = room;
    narrow.dtype = is_narrow ? a.dtype : uint32_t{OCTAVO_BF16};
    narrow.rows = part.rows;
    narrow.cols = narrow.stride = part.cols;
    p.add(part, narrow, false);
    octavo_tensor into = columns_of(d, first, by_columns ? part.cols : part.rows);
    const octavo_tensor added = bias != nullptr ? columns_of(*bias, first, into.cols) : into;
    p.multiply(plain(a), {narrow, {}, w.layout}, into, bias != nullptr ? &added : nullptr);
    if (p.measuring()) return;
  }
}

}  // namespace octavo::te
