// Where the pieces of `saved` and of a workspace lie. One function a verb computes the offsets for
// any M; the plan asks it for sizes, the verb for addresses, so the two cannot disagree.
#pragma once

#include "te.h"

namespace octavo::te {

// Hands out aligned pieces of one buffer; with base null it only measures.
class Carver {
 public:
  explicit Carver(void *base) : base_(static_cast<char *>(base)) {}

  void *take(int64_t bytes) {
    used_ = (used_ + 255) / 256 * 256;
    char *at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<uint64_t>(bytes);
    return at;
  }
  octavo_tensor tensor(int64_t rows, int64_t cols, uint32_t dtype) {
    const auto width = static_cast<int64_t>(OCTAVO_DTYPE_BITS(dtype) / 8);
    return {take(rows * cols * width), rows, cols, cols, dtype, 0};
  }
  octavo_scale scale_inv() { return {take(sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR}; }
  uint64_t used() const { return used_; }

 private:
  char *base_;
  uint64_t used_ = 0;
};

// Rows of `saved` come in multiples of this, or of the kernels' alignment where that is larger. It
// keeps the scale_inv behind the codes aligned for every K.
constexpr int64_t kSavedRows = 16;

// Sizes of one linear as the kernels see them.
struct Shape {
  int64_t m, n, k;     // of the call
  int64_t mp, np, kp;  // padded to the kernels' alignment
  int64_t saved_m;     // rows that `saved` holds
  bool padded() const { return m != mp || n != np || k != kp; }
};
Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m);

struct Saved {
  octavo_tensor x_t;  // codes [kp, saved_m]
  octavo_scale x_scale_inv;
};
Saved saved_of(const Shape &shape, void *saved);

struct ForwardPieces {
  octavo_tensor x;           // codes [mp, kp]
  octavo_scale x_scale_inv;  // when nothing is saved
  octavo_tensor y;           // f32 [mp, np], when the kernels' shape is padded
  octavo_tensor bias;        // f32 [1, np], likewise
  void *kernel = nullptr;    // workspace of one kernel at a time
};
ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver);

struct BackwardPieces {
  octavo_tensor dy;    // codes [mp, np]
  octavo_tensor dy_t;  // codes [np, mp]
  octavo_scale dy_scale_inv;
  octavo_tensor dx;           // f32 [mp, kp], when padded
  octavo_tensor dw;           // f32 [np, kp], when padded
  octavo_tensor column_sums;  // f32 [1, n]
  void *kernel = nullptr;
};
BackwardPieces backward_pieces(const octavo_session &s, const Shape &shape, Carver &carver);

// A kernel call struct with its head filled in.
template <typename Call>
Call make_call(uint32_t kind, void *stream) {
  Call c{};
  c.size = sizeof(c);
  c.kind = kind;
  c.stream = stream;
  return c;
}

}  // namespace octavo::te
