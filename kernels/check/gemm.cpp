/* What gemm and pack refuse. */
#include "kernels/check/verbs.h"

#include "kernels/check/calls.h"
#include "kernels/check/scales.h"

namespace octavo {
namespace {

/* Codes of another layout are refused, and scales of the rows that it turns. */
void check_layout(Check *check, const octavo_gemm &c, uint32_t bit, const octavo_tensor &t,
                  const octavo_scale *s, const char *name) {
  if (!check->ok() || !is_k_major(c, bit)) return;
  const bool has_one_scale = s == nullptr || s->granularity == OCTAVO_PER_TENSOR;
  if (has_one_scale && is_dtype(t.dtype, Dtypes::kPlain)) return;
  check->fail(
      OCTAVO_UNSUPPORTED,
      "layout = %u turns %s of dtype 0x%x%s; expected a plain f32, bf16 or f16 there, these "
      "kernels read codes with K contiguous only",
      c.layout, name, t.dtype, has_one_scale ? "" : " with scales of rows or blocks");
}

/* Codes in panel order have one reader, a product with codes or bf16 in a. */
void check_packed(Check *check, const octavo_gemm &c, const DeviceLimits &limits) {
  if (!check->ok() || !is_packed(c)) return;
  if (limits.pack_rows == 0) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "layout = %u: b is packed, but %s has no panel order, see pack_rows of its "
                       "caps",
                       c.layout, limits.id);
  }
  if (is_k_major(c, OCTAVO_GEMM_B_KN)) {
    return check->fail(
        OCTAVO_INVALID,
        "layout = %u: b is packed and [K, N]; expected one of both, pack takes codes "
        "[N, K]",
        c.layout);
  }
  if (c.a->dtype != OCTAVO_BF16 && !is_dtype(c.a->dtype, Dtypes::kFloat8)) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "a.dtype = 0x%x with a packed b; expected float8_e4m3fn, float8_e5m2 or "
                       "bf16",
                       c.a->dtype);
  }
  check->tensor(c.b, "packed b", Dtypes::kFloat8);
  check->equal(c.b->stride, c.b->cols, "stride of the packed b", "b.cols");
}

/* What can be said without d; the bytes of the workspace. */
octavo_status check_operands(Check *check, const octavo_gemm *c, const DeviceLimits &limits,
                             uint64_t *workspace) {
  if (!check->call(c)) return check->status();
  const bool is_fp4 = limits.takes_fp4 && has_fp4_blocks(c->a_scale_inv);
  check->tensor(c->a, "a", is_fp4 ? Dtypes::kFp4 : Dtypes::kAny);
  check->tensor(c->b, "b", is_fp4 ? Dtypes::kFp4 : Dtypes::kAny);
  check->flags(c->layout, flags_of(OCTAVO_KIND_GEMM), "layout");
  check->flags(c->accumulate, 1, "accumulate");
  check->flags(c->fast_accumulation, 1, "fast_accumulation");
  check->flags(c->bias_after, 1, "bias_after");
  if (!check->ok()) return check->status();
  check_layout(check, *c, OCTAVO_GEMM_A_KM, *c->a, c->a_scale_inv, "a");
  check_layout(check, *c, OCTAVO_GEMM_B_KN, *c->b, c->b_scale_inv, "b");
  check_packed(check, *c, limits);
  const GemmShape shape = gemm_shape(*c);
  const bool b_kn = is_k_major(*c, OCTAVO_GEMM_B_KN);
  check->equal(b_kn ? c->b->rows : c->b->cols, shape.k, b_kn ? "b.rows" : "b.cols",
               is_k_major(*c, OCTAVO_GEMM_A_KM) ? "a.rows" : "a.cols");
  if (check->ok() && !limits.gemm_workspace(limits.device, *c, workspace)) {
    check->fail(OCTAVO_INVALID, "the workspace for M = %lld, N = %lld, K = %lld exceeds 2^63 bytes",
                static_cast<long long>(shape.m), static_cast<long long>(shape.n),
                static_cast<long long>(shape.k));
  }
  return check->status();
}

/* For sizes only the shapes count, so an operand without data is legal there. */
octavo_tensor shape_of(const octavo_tensor *t) {
  octavo_tensor shape = *t;
  shape.data = const_cast<octavo_tensor *>(t); /* not null, aligned, never read */
  return shape;
}

/* One scale for the tensor or one for each of its rows. */
void check_plain_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &t) {
  constexpr char kOthers[] =
      ", 1 (one per row), or a block granularity (2, 3, 4, 6) on both operands";
  if (is_row_scaled(s)) return check_row_scale(check, s, name, t.rows);
  check->scale(s, name, true, kOthers);
}

/* At least one operand has block scales. */
void check_blocks(Check *check, const octavo_gemm &c) {
  const octavo_scale *a = c.a_scale_inv;
  const octavo_scale *b = c.b_scale_inv;
  if (a == nullptr || b == nullptr) {
    return check->fail(OCTAVO_INVALID,
                       "%s_scale_inv is null with %s_scale_inv.granularity = %u; expected blocks "
                       "on both operands",
                       a == nullptr ? "a" : "b", a == nullptr ? "b" : "a",
                       a == nullptr ? b->granularity : a->granularity);
  }
  if (!has_blocks(a) || !has_blocks(b) ||
      block_cols(a->granularity) != block_cols(b->granularity)) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "a_scale_inv.granularity = %u, b_scale_inv.granularity = %u; expected two "
                       "of %d (1x128) and %d (128x128), or two of %d (1x32) and %d (32x32)",
                       a->granularity, b->granularity, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128,
                       OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32);
  }
  check->tensor(c.a, "a", Dtypes::kFloat8);
  check->tensor(c.b, "b", Dtypes::kFloat8);
  if (!check->ok()) return;
  check_block_scale(check, a, "a_scale_inv", *c.a);
  check_block_scale(check, b, "b_scale_inv", *c.b);
}

}  // namespace

octavo_status check_gemm(const Caller &caller, const octavo_gemm *c, const DeviceLimits &limits) {
  Check check(caller, "gemm");
  uint64_t workspace = 0;
  if (check_operands(&check, c, limits, &workspace) != OCTAVO_OK) return check.status();
  const GemmShape shape = gemm_shape(*c);
  check.tensor(c->d, "d", Dtypes::kPlain);
  if (check.ok()) {
    check.equal(c->d->rows, shape.m, "d.rows",
                is_k_major(*c, OCTAVO_GEMM_A_KM) ? "a.cols" : "a.rows");
    check.equal(c->d->cols, shape.n, "d.cols",
                is_k_major(*c, OCTAVO_GEMM_B_KN) ? "b.cols" : "b.rows");
  }
  if (c->bias != nullptr) {
    check.tensor(c->bias, "bias", Dtypes::kPlain);
    if (check.ok()) {
      check.equal(c->bias->rows, 1, "bias.rows", "the row count of a vector");
      check.equal(c->bias->cols, shape.n, "bias.cols", "d.cols");
    }
  }
  if (limits.takes_fp4 && (has_fp4_blocks(c->a_scale_inv) || has_fp4_blocks(c->b_scale_inv))) {
    check_fp4_gemm(&check, *c);
  } else if (has_blocks(c->a_scale_inv) || has_blocks(c->b_scale_inv)) {
    check_blocks(&check, *c);
  } else {
    check_plain_scale(&check, c->a_scale_inv, "a_scale_inv", *c->a);
    check_plain_scale(&check, c->b_scale_inv, "b_scale_inv", *c->b);
  }
  if (check.ok() && workspace > 0 && c->workspace == nullptr) {
    check.fail(OCTAVO_INVALID, "workspace is null; expected %llu bytes, see workspace_bytes",
               static_cast<unsigned long long>(workspace));
  }
  return check.status();
}

octavo_status check_gemm_workspace(const Caller &caller, const octavo_gemm *c,
                                   const DeviceLimits &limits, uint64_t *bytes) {
  Check check(caller, "workspace_bytes of gemm");
  if (!check.call(c)) return check.status();
  check.not_null(c->a, "a");
  check.not_null(c->b, "b");
  if (!check.ok()) return check.status();
  const octavo_tensor a = shape_of(c->a);
  const octavo_tensor b = shape_of(c->b);
  octavo_gemm shapes;
  OCTAVO_TAKE(shapes, c);
  shapes.a = &a;
  shapes.b = &b;
  return check_operands(&check, &shapes, limits, bytes);
}

octavo_status check_pack(const Caller &caller, const octavo_pack *c, const DeviceLimits &limits) {
  Check check(caller, "pack");
  if (!check.call(c)) return check.status();
  if (limits.pack_rows == 0) {
    check.fail(OCTAVO_UNSUPPORTED,
               "%s has no panel order, see pack_rows of its caps; multiply the codes as they are",
               limits.id);
  }
  check.tensor(c->in, "in", Dtypes::kFloat8);
  check.tensor(c->out, "out", Dtypes::kFloat8);
  if (!check.ok()) return check.status();
  if (c->out->dtype != c->in->dtype) {
    check.fail(OCTAVO_INVALID, "out.dtype = 0x%x; expected in.dtype = 0x%x", c->out->dtype,
               c->in->dtype);
  }
  check.equal(c->out->rows, divide_up(c->in->rows, limits.pack_rows) * limits.pack_rows, "out.rows",
              "in.rows rounded up to pack_rows");
  check.equal(c->out->cols, c->in->cols, "out.cols", "in.cols");
  check.equal(c->out->stride, c->out->cols, "out.stride", "out.cols");
  return check.status();
}

}  // namespace octavo
