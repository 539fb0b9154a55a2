/* pack, and gemm on packed codes, in hostile memory. Panel order is a level's own, so what is
 * compared is the product; a level without that order multiplies the codes as they are.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"
#include "tests/kernels/packed.h"

namespace octavo::test {
namespace {

void expect_packed_gemm(uint32_t a_dtype, uint32_t b_dtype, int64_t m, int64_t n, int64_t k,
                        unsigned turn) {
  const Matrix a = Matrix(a_dtype, m, k, turn % 3).fill(turn + 1, 2.0f);
  const Matrix b = Matrix(b_dtype, n, k).fill(turn + 2, 2.0f);
  const Matrix d = Matrix(OCTAVO_F32, m, n, turn % 2).fill(turn + 3);
  const std::string name = "packed gemm " + dtype_text(a_dtype) + " x " + dtype_text(b_dtype) +
                           ", M " + std::to_string(m) + ", N " + std::to_string(n) + ", K " +
                           std::to_string(k);
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
    std::optional<Packed> packed;
    if (pack_rows(kernels) > 0) {
      packed.emplace(kernels, b);
      c.layout = OCTAVO_GEMM_B_PACKED;
    }
    const octavo_tensor left = memory.input(a);
    octavo_tensor right = memory.input(packed ? packed->codes() : b);
    right.rows = n;
    octavo_tensor to = memory.output(d);
    const octavo_scale a_inv = per_tensor(memory.input(std::vector<float>{0.37f}));
    const octavo_scale b_inv = per_tensor(memory.input(std::vector<float>{1.9f}));
    c.a = &left;
    c.b = &right;
    c.d = &to;
    c.a_scale_inv = a_dtype == OCTAVO_BF16 ? nullptr : &a_inv;
    c.b_scale_inv = &b_inv;
    uint64_t bytes = 0;
    const octavo_status status = kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes);
    if (status != OCTAVO_OK) return status;
    c.workspace = memory.workspace(bytes);
    memory.seal();
    return kernels.table->gemm(kernels.ctx(), &c);
  });
}

TEST(GuardPack, gemm_of_every_size) {
  unsigned turn = 0;
  for (const int64_t m : kGuardSizes) {
    for (const int64_t n : kGuardSizes) {
      for (const int64_t k : kGuardSizes) {
        const uint32_t b = turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
        const uint32_t a = turn % 3 == 0 ? OCTAVO_BF16 : OCTAVO_E4M3FN;
        ASSERT_NO_FATAL_FAILURE(expect_packed_gemm(a, b, m, n, k, turn++));
      }
    }
  }
}

TEST(GuardPack, gemm_of_few_rows_and_every_length_of_k) {
  for (int64_t k = 1; k <= 130; ++k) {
    const int64_t m = 1 + k % 9;
    ASSERT_NO_FATAL_FAILURE(
        expect_packed_gemm(OCTAVO_E4M3FN, OCTAVO_E4M3FN, m, 33, k, static_cast<unsigned>(k)));
  }
}

/* Guards around what pack itself reads and writes; its result is that in plain memory. */
void expect_guarded_pack(const Kernels &kernels, Place place, int64_t n, int64_t k, int64_t gap) {
  const Matrix codes = Matrix(OCTAVO_E4M3FN, n, k, gap).fill(static_cast<unsigned>(n + k), 3.0f);
  const Packed expected(kernels, codes);
  const FaultReport report("pack " + shape_text(n, k));
  CallMemory memory(place);
  const octavo_tensor in = memory.input(codes);
  octavo_tensor out = memory.output(Matrix(OCTAVO_E4M3FN, packed_rows(kernels, n), k));
  memory.seal();
  const octavo_pack c = pack_call(&in, &out);
  ASSERT_EQ(kernels.table->pack(kernels.ctx(), &c), OCTAVO_OK) << kernels.host().last_text();
  ASSERT_NO_FATAL_FAILURE(memory.expect_clean());
  ASSERT_EQ(memory.results().front(), expected.codes().data()) << shape_text(n, k);
}

TEST(GuardPack, pack_of_every_size) {
  bool packs = false;
  for (const GuardLevel &level : guard_levels()) {
    if (pack_rows(*level.kernels) == 0) continue;
    packs = true;
    for (const Place place : {Place::kEnd, Place::kBegin}) {
      for (const int64_t n : kGuardSizes) {
        for (int64_t k = 1; k <= 130; ++k) {
          ASSERT_NO_FATAL_FAILURE(expect_guarded_pack(*level.kernels, place, n, k, k % 3));
        }
      }
    }
  }
  if (!packs) GTEST_SKIP() << "no level of this CPU has a panel order: AVX-512 BF16 is needed";
}

}  // namespace
}  // namespace octavo::test
