// XXH3 of pieces of a fixed size, each with its number as the seed; their sum has no order.
#include "hash.h"

#define XXH_INLINE_ALL
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/shim_utils.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>

namespace octavo::core {
namespace {

constexpr int64_t kPiece = int64_t{64} << 10;    // bytes
constexpr int64_t kAtOnce = int64_t{512} << 10;  // bytes that are worth a thread

// Lines of memory without gaps.
struct Lines {
  const char *data;
  int64_t count, bytes, pitch;  // pitch: from one line to the next
};

Lines lines_of(View t) {
  const auto element = static_cast<int64_t>(t.element_size());
  const auto *data = static_cast<const char *>(t.data());
  const bool is_matrix = t.dim() == 2;
  const int64_t rows = is_matrix ? t.sizes()[0] : 0, cols = is_matrix ? t.sizes()[1] : 0;
  if (t.is_contiguous() || (is_matrix && t.strides()[0] == 1 && t.strides()[1] == rows))
    return {data, 1, t.numel() * element, 0};
  if (is_matrix && t.strides()[1] == 1)
    return {data, rows, cols * element, t.strides()[0] * element};
  if (is_matrix && t.strides()[0] == 1)
    return {data, cols, rows * element, t.strides()[1] * element};
  return {data, 0, 0, 0};
}

}  // namespace

uint64_t checksum(View weight) {
  const Lines lines = lines_of(weight);
  if (lines.count == 0) return 0;
  struct Call {
    Lines lines;
    int64_t pieces;  // of a line
    std::atomic<uint64_t> sum = 0;
  } call = {lines, std::max<int64_t>((lines.bytes + kPiece - 1) / kPiece, 1)};
  const auto add = [](int64_t begin, int64_t end, void *ctx) {
    auto *c = static_cast<Call *>(ctx);
    uint64_t own = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % c->pieces * kPiece;
      own += XXH3_64bits_withSeed(c->lines.data + i / c->pieces * c->lines.pitch + first,
                                  static_cast<size_t>(std::min(kPiece, c->lines.bytes - first)),
                                  static_cast<uint64_t>(i));
    }
    c->sum.fetch_add(own, std::memory_order_relaxed);
  };
  const int64_t piece = std::clamp<int64_t>(lines.bytes, 1, kPiece);
  TORCH_ERROR_CODE_CHECK(
      torch_parallel_for(0, lines.count * call.pieces, kAtOnce / piece, add, &call));
  const uint64_t found = call.sum.load(std::memory_order_relaxed);
  return found == 0 ? 1 : found;
}

}  // namespace octavo::core
