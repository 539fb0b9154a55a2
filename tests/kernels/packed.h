/* tests/kernels/packed.h: codes in the panel order of the kernels under test. */
#ifndef OCTAVO_TESTS_KERNELS_PACKED_H
#define OCTAVO_TESTS_KERNELS_PACKED_H

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

/* 0 where the kernels have no panel order. */
inline int64_t pack_rows(const Kernels &kernels) {
  octavo_kernels_caps caps = {};
  caps.size = sizeof(caps);
  EXPECT_EQ(kernels.table->describe(kernels.ctx(), &caps), OCTAVO_OK);
  return static_cast<int64_t>(caps.pack_rows);
}

inline int64_t packed_rows(const Kernels &kernels, int64_t n) {
  const int64_t step = pack_rows(kernels);
  return step == 0 ? n : (n + step - 1) / step * step;
}

/* Levels with a panel order; where this CPU has none, the tests say so. */
inline std::vector<std::string> packing_levels() {
  std::vector<std::string> levels;
  for (const std::string &level : supported_levels()) {
    if (pack_rows(Kernels(0, level)) > 0) levels.push_back(level);
  }
  return levels;
}

#define OCTAVO_NEEDS_PACKING_LEVEL()                                                  \
  if (packing_levels().empty()) {                                                     \
    GTEST_SKIP() << "no level of this CPU has a panel order: AVX-512 BF16 is needed"; \
  }

inline octavo_pack pack_call(const octavo_tensor *in, octavo_tensor *out) {
  auto c = make_call<octavo_pack>(OCTAVO_KIND_PACK);
  c.in = in;
  c.out = out;
  return c;
}

/* What pack makes of `codes`; its tensor has the shape that a gemm wants, N instead of the rows
 * that the memory holds. */
class Packed {
 public:
  Packed(const Kernels &kernels, const Matrix &codes)
      : codes_(codes.dtype(), packed_rows(kernels, codes.rows()), codes.cols()),
        tensor_(*codes_.tensor()) {
    const octavo_pack c = pack_call(codes.tensor(), codes_.tensor());
    EXPECT_EQ(kernels.table->pack(kernels.ctx(), &c), OCTAVO_OK) << kernels.host().last_text();
    tensor_.rows = codes.rows();
  }
  Packed(const Packed &) = delete;
  Packed &operator=(const Packed &) = delete;

  const octavo_tensor *tensor() const { return &tensor_; }
  const Matrix &codes() const { return codes_; }

 private:
  Matrix codes_;
  octavo_tensor tensor_;
};

}  // namespace octavo::test

#endif
