/* What verbs refuse of codes of four bits, see octavo/draft/fp4.h. */
#include "kernels/check/calls.h"
#include "kernels/check/scales.h"
#include "kernels/check/verbs.h"

namespace octavo {
namespace {

void check_output(Check *check, const octavo_tensor *codes, const octavo_scale *s, const char *name,
                  const char *scale_name, int64_t rows, int64_t cols) {
  if (codes == nullptr) return;
  check_fp4_tensor(check, codes, name);
  check->holds(codes, name, rows, cols);
  if (!check->ok()) return;
  if (s == nullptr) {
    return check->fail(OCTAVO_INVALID,
                       "%s is null, but %s is given; expected the scales of its own blocks",
                       scale_name, name);
  }
  check_fp4_scale(check, s, scale_name, *codes);
}

}  // namespace

void check_fp4_tensor(Check *check, const octavo_tensor *t, const char *name) {
  check->tensor(t, name, Dtypes::kFp4);
  if (!check->ok()) return;
  if (t->cols % kFp4Block != 0) {
    check->fail(OCTAVO_INVALID, "%s.cols = %lld; expected a multiple of %lld, whole blocks", name,
                static_cast<long long>(t->cols), static_cast<long long>(kFp4Block));
  }
  if (t->stride % 2 != 0) {
    check->fail(OCTAVO_INVALID, "%s.stride = %lld; expected an even number, rows start at a byte",
                name, static_cast<long long>(t->stride));
  }
}

void check_fp4_scale(Check *check, const octavo_scale *s, const char *name,
                     const octavo_tensor &t) {
  if (!check->ok()) return;
  if (!has_fp4_blocks(s)) {
    return check->fail(
        OCTAVO_INVALID, "%s.granularity = %u; expected %u (1x16) or %u (16x16), as of dtype 0x%x",
        name, s == nullptr ? 0u : s->granularity, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16, t.dtype);
  }
  if (s->second == nullptr || reinterpret_cast<uintptr_t>(s->second) % sizeof(float) != 0) {
    return check->fail(OCTAVO_INVALID,
                       "%s.second = %p; expected the address of a float, the amax of the tensor",
                       name, static_cast<const void *>(s->second));
  }
  octavo_scale blocks = *s;
  blocks.second = nullptr;
  check_block_scale(check, &blocks, name, t);
}

void check_fp4_quantize(Check *check, const octavo_quantize &c) {
  if (c.scale != nullptr || c.counter != nullptr) {
    check->fail(OCTAVO_INVALID,
                "%s is not null; expected null with blocks of 16, whose scales follow from them",
                c.scale != nullptr ? "scale" : "counter");
  }
  if (c.out == nullptr && c.out_t == nullptr)
    check->fail(OCTAVO_INVALID, "out and out_t are null; expected one of them with blocks of 16");
  if (c.rule != OCTAVO_RULE_NVFP4) {
    check->fail(OCTAVO_UNSUPPORTED, "rule = %u with blocks of 16; expected %u (nvfp4)", c.rule,
                OCTAVO_RULE_NVFP4);
  }
  if (c.flags != 0)
    check->fail(OCTAVO_UNSUPPORTED, "flags = 0x%x with blocks of 16; expected 0", c.flags);
  check_output(check, c.out, c.out_scale_inv, "out", "out_scale_inv", c.in->rows, c.in->cols);
  check_output(check, c.out_t, c.out_t_scale_inv, "out_t", "out_t_scale_inv", c.in->cols,
               c.in->rows);
  check->accumulators(
      {{c.in_scale_inv, "in_scale_inv"}, {c.amax, "amax"}, {c.nonfinite, "nonfinite"}});
}

void check_fp4_gemm(Check *check, const octavo_gemm &c) {
  check_fp4_tensor(check, c.a, "a");
  check_fp4_tensor(check, c.b, "b");
  if (!check->ok()) return;
  check_fp4_scale(check, c.a_scale_inv, "a_scale_inv", *c.a);
  check_fp4_scale(check, c.b_scale_inv, "b_scale_inv", *c.b);
}

octavo_status check_quantize_fp4(const Caller &caller, const octavo_quantize_fp4 *c,
                                 const DeviceLimits &limits) {
  Check check(caller, "quantize_fp4");
  if (!check.call(c)) return check.status();
  check.not_null(c->quantize, "quantize");
  check.flags(c->flags, flags_of(OCTAVO_KIND_QUANTIZE_FP4), "flags");
  check.reserved(c->reserved, "the call struct");
  check.accumulators({{c->count, "count"}});
  if (!check.ok()) return check.status();
  const octavo_status status = check_quantize(caller, c->quantize, limits);
  if (status == OCTAVO_OK && !is_fp4_scaled(*c->quantize)) {
    check.fail(OCTAVO_INVALID, "no scales of quantize have blocks of 16; expected %u or %u",
               OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16);
  }
  return status == OCTAVO_OK ? check.status() : status;
}

}  // namespace octavo
