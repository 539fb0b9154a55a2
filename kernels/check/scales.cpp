/* The requirements of scales.h. */
#include "kernels/check/scales.h"

namespace octavo {

void check_row_scale(Check *check, const octavo_scale *s, const char *name, int64_t rows) {
  if (!check->ok()) return;
  check->plain_scale(s, name);
  if (s->dtype != OCTAVO_F32) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "%s.dtype = 0x%x; expected 0x%x (f32), as %s.granularity = 1 has", name,
                       s->dtype, OCTAVO_F32, name);
  }
  if (s->stride < 1) {
    return check->fail(OCTAVO_INVALID,
                       "%s.stride = %lld; expected at least 1, the scale of one row", name,
                       static_cast<long long>(s->stride));
  }
  check->scale_rows(s, name, rows);
  if (!check->ok()) return;
  if ((s->data == nullptr && rows > 0) ||
      reinterpret_cast<uintptr_t>(s->data) % sizeof(float) != 0) {
    check->fail(OCTAVO_INVALID, "%s.data = %p; expected the aligned address of %lld scales", name,
                s->data, static_cast<long long>(rows));
  }
}

void check_block_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &t) {
  if (!check->ok()) return;
  check->plain_scale(s, name);
  const bool is_mx = is_mx_granularity(s->granularity);
  const bool is_fp4 = is_fp4_granularity(s->granularity);
  const uint32_t dtype = is_fp4 ? OCTAVO_E4M3FN : is_mx ? OCTAVO_E8M0FNU : OCTAVO_F32;
  if (s->dtype != dtype) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "%s.dtype = 0x%x; expected 0x%x (%s), as %s.granularity = %u has", name,
                       s->dtype, dtype,
                       is_fp4  ? "float8_e4m3fn"
                       : is_mx ? "float8_e8m0fnu"
                               : "f32",
                       name, s->granularity);
  }
  const int64_t rows = divide_up(t.rows, block_rows(s->granularity));
  const int64_t cols = divide_up(t.cols, block_cols(s->granularity));
  if (s->stride < cols) {
    return check->fail(OCTAVO_INVALID,
                       "%s.stride = %lld; expected at least %lld, the scales of one row of %lld "
                       "elements in blocks of %lld",
                       name, static_cast<long long>(s->stride), static_cast<long long>(cols),
                       static_cast<long long>(t.cols),
                       static_cast<long long>(block_cols(s->granularity)));
  }
  check->scale_rows(s, name, rows);
  if (!check->ok()) return;
  const bool is_empty = rows == 0 || cols == 0;
  const auto address = reinterpret_cast<uintptr_t>(s->data);
  if ((s->data == nullptr && !is_empty) ||
      address % static_cast<uintptr_t>(dtype_bytes(dtype)) != 0) {
    check->fail(OCTAVO_INVALID, "%s.data = %p; expected the aligned address of [%lld, %lld] scales",
                name, s->data, static_cast<long long>(rows), static_cast<long long>(cols));
  }
}

void check_state_dense(Check *check, const octavo_tensor *t, const char *name) {
  if (!check->ok() || t->rows <= 1 || t->stride == t->cols) return;
  check->fail(OCTAVO_INVALID,
              "%s.stride = %lld; expected %s.cols = %lld, since blocks of a state run across rows",
              name, static_cast<long long>(t->stride), name, static_cast<long long>(t->cols));
}

void check_state_codes(Check *check, const octavo_tensor *t, const char *name) {
  if (!check->ok() || is_dtype(t->dtype, Dtypes::kState)) return;
  check->fail(OCTAVO_UNSUPPORTED,
              "%s.dtype = 0x%x; expected 0x%x (float8_e4m3fn), the codes of blocks of a state",
              name, t->dtype, OCTAVO_E4M3FN);
}

void check_state_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &codes) {
  if (!check->ok()) return;
  check->plain_scale(s, name);
  const int64_t floats = s->granularity == OCTAVO_EXPANDED_128 ? kExpandedScales : 1;
  if (s->dtype != OCTAVO_F32) {
    check->fail(OCTAVO_UNSUPPORTED, "%s.dtype = 0x%x; expected 0x%x (f32)", name, s->dtype,
                OCTAVO_F32);
  }
  if (s->stride != 0 && s->stride != floats) {
    check->fail(OCTAVO_UNSUPPORTED,
                "%s.stride = %lld; expected %lld (the floats of one block, dense) or 0", name,
                static_cast<long long>(s->stride), static_cast<long long>(floats));
  }
  const bool is_missing = s->data == nullptr && codes.rows > 0 && codes.cols > 0;
  if (is_missing || reinterpret_cast<uintptr_t>(s->data) % sizeof(float) != 0) {
    check->fail(OCTAVO_INVALID, "%s.data = %p; expected the address of floats", name, s->data);
  }
}

}  // namespace octavo
