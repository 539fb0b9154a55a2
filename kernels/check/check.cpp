/* The requirements of check.h.
 *
 * Malformed input is OCTAVO_INVALID, a value that is well formed but not implemented here is
 * OCTAVO_UNSUPPORTED; hosts react differently to the two.
 */
#include "kernels/check/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "kernels/check/granularity.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

const char *allowed_text(Dtypes allowed) {
  switch (allowed) {
    case Dtypes::kAny: return "f32, bf16, f16, float8_e4m3fn or float8_e5m2";
    case Dtypes::kPlain: return "f32, bf16 or f16";
    case Dtypes::kQuantized: return "float8_e4m3fn, float8_e5m2 or f16";
    case Dtypes::kFloat8: return "float8_e4m3fn or float8_e5m2";
    case Dtypes::kState: return "float8_e4m3fn";
    case Dtypes::kFp4: return "0x411 (float4_e2m1fn)";
    case Dtypes::kNone: return "none";
  }
  return "";
}

bool is_aligned(const void *pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace

octavo_status report_error(const Caller &caller, octavo_status status, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  octavo_diagnostic d = {};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.code = status;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = {caller.domain, std::strlen(caller.domain)};
  d.text.data = text;
  const uint64_t whole = length < 0 ? 0 : static_cast<uint64_t>(length);
  d.text.size = whole < sizeof(text) ? whole : sizeof(text) - 1;
  caller.host->diagnose(caller.host->ctx, &d);
  return status;
}

bool is_dtype(uint32_t dtype, Dtypes allowed) {
  const bool is_float8 = dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
  const bool is_wide = dtype == OCTAVO_F32 || dtype == OCTAVO_BF16;
  switch (allowed) {
    case Dtypes::kAny: return is_float8 || is_wide || dtype == OCTAVO_F16;
    case Dtypes::kPlain: return is_wide || dtype == OCTAVO_F16;
    case Dtypes::kQuantized: return is_float8 || dtype == OCTAVO_F16;
    case Dtypes::kFloat8: return is_float8;
    case Dtypes::kState: return dtype == OCTAVO_E4M3FN;
    case Dtypes::kFp4: return dtype == OCTAVO_E2M1;
    case Dtypes::kNone: return false;
  }
  return false;
}

void Check::fail(octavo_status status, const char *format, ...) {
  if (!ok()) return;
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  status_ = report_error(caller_, status, "%s: %s", verb_, text);
}

void Check::not_null(const void *pointer, const char *name) {
  if (pointer == nullptr) fail(OCTAVO_INVALID, "%s is null; expected an address", name);
}

void Check::tensor(const octavo_tensor *t, const char *name, Dtypes allowed) {
  if (!ok()) return;
  if (t == nullptr) return fail(OCTAVO_INVALID, "%s is null; expected a tensor", name);
  const long long rows = t->rows;
  const long long cols = t->cols;
  const long long stride = t->stride;
  if (rows < 0 || cols < 0) {
    return fail(OCTAVO_INVALID, "%s has shape [%lld, %lld]; expected no negative size", name, rows,
                cols);
  }
  if (stride < cols) {
    return fail(OCTAVO_INVALID, "%s.stride = %lld elements; expected at least %s.cols = %lld", name,
                stride, name, cols);
  }
  if (!is_dtype(t->dtype, allowed)) {
    return fail(OCTAVO_UNSUPPORTED, "%s.dtype = 0x%x; expected %s", name, t->dtype,
                allowed_text(allowed));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, stride, &bytes) ||
      __builtin_mul_overflow(bytes, dtype_bytes(t->dtype), &bytes)) {
    return fail(OCTAVO_INVALID, "%s has %lld rows of %lld elements, more than memory can hold",
                name, rows, stride);
  }
  if (rows > 0 && cols > 0 && t->data == nullptr) {
    return fail(OCTAVO_INVALID, "%s.data is null, but its shape is [%lld, %lld]", name, rows, cols);
  }
  if (!is_aligned(t->data, dtype_bytes(t->dtype))) {
    return fail(OCTAVO_INVALID, "%s.data = %p is not aligned to its element of %lld bytes", name,
                t->data, static_cast<long long>(dtype_bytes(t->dtype)));
  }
  reserved(t->reserved, name);
}

void Check::same_shape(const octavo_tensor *t, const char *name, const octavo_tensor *like,
                       const char *like_name) {
  if (!ok() || (t->rows == like->rows && t->cols == like->cols)) return;
  fail(OCTAVO_INVALID, "%s has shape [%lld, %lld]; expected the shape of %s, [%lld, %lld]", name,
       static_cast<long long>(t->rows), static_cast<long long>(t->cols), like_name,
       static_cast<long long>(like->rows), static_cast<long long>(like->cols));
}

void Check::holds(const octavo_tensor *t, const char *name, int64_t rows, int64_t cols) {
  if (!ok() || (t->rows >= rows && t->cols >= cols)) return;
  fail(OCTAVO_INVALID, "%s has shape [%lld, %lld]; expected at least [%lld, %lld]", name,
       static_cast<long long>(t->rows), static_cast<long long>(t->cols),
       static_cast<long long>(rows), static_cast<long long>(cols));
}

void Check::equal(int64_t found, int64_t expected, const char *name, const char *expected_name) {
  if (!ok() || found == expected) return;
  fail(OCTAVO_INVALID, "%s = %lld; expected %s = %lld", name, static_cast<long long>(found),
       expected_name, static_cast<long long>(expected));
}

void Check::at_least(int64_t found, int64_t expected, const char *name, const char *expected_name) {
  if (!ok() || found >= expected) return;
  fail(OCTAVO_INVALID, "%s = %lld; expected at least %s = %lld", name,
       static_cast<long long>(found), expected_name, static_cast<long long>(expected));
}

void Check::flags(uint32_t found, uint32_t known, const char *name) {
  if ((found & ~known) != 0)
    fail(OCTAVO_UNSUPPORTED, "%s = 0x%x; expected bits of 0x%x", name, found, known);
}

void Check::reserved(uint32_t found, const char *name) {
  if (found != 0)
    fail(OCTAVO_UNSUPPORTED, "%s.reserved = %u; expected 0, it has no meaning here", name, found);
}

void Check::plain_scale(const octavo_scale *s, const char *name) {
  reserved(s->reserved, name);
  if (s->second != nullptr)
    fail(OCTAVO_UNSUPPORTED,
         "%s.second = %p; expected null, these kernels read one level of scales", name,
         static_cast<const void *>(s->second));
  if (s->order != OCTAVO_SCALES_ROW_MAJOR)
    fail(OCTAVO_UNSUPPORTED, "%s.order = %u; expected %d (row-major)", name, s->order,
         OCTAVO_SCALES_ROW_MAJOR);
}

void Check::scale(const octavo_scale *s, const char *name, bool optional, const char *others) {
  if (!ok() || (s == nullptr && optional)) return;
  if (s == nullptr) return fail(OCTAVO_INVALID, "%s is null; expected a scale", name);
  plain_scale(s, name);
  if (s->granularity != OCTAVO_PER_TENSOR) {
    return fail(OCTAVO_UNSUPPORTED, "%s.granularity = %u; expected %d (one scale per tensor)%s",
                name, s->granularity, OCTAVO_PER_TENSOR, others);
  }
  if (s->dtype != OCTAVO_F32) {
    return fail(OCTAVO_UNSUPPORTED, "%s.dtype = 0x%x; expected 0x%x (f32)", name, s->dtype,
                OCTAVO_F32);
  }
  if (s->stride != 0 && s->stride != 1) {
    return fail(OCTAVO_UNSUPPORTED, "%s.stride = %lld; expected 0 or 1, of one scale per tensor",
                name, static_cast<long long>(s->stride));
  }
  if (s->data == nullptr || !is_aligned(s->data, sizeof(float))) {
    fail(OCTAVO_INVALID, "%s.data = %p; expected the address of a float", name, s->data);
  }
}

void Check::scale_rows(const octavo_scale *s, const char *name, int64_t rows) {
  if (!ok()) return;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, s->stride, &bytes) ||
      __builtin_mul_overflow(bytes, dtype_bytes(s->dtype), &bytes)) {
    fail(OCTAVO_INVALID, "%s has %lld rows of %lld scales, more than memory can hold", name,
         static_cast<long long>(rows), static_cast<long long>(s->stride));
  }
}

void Check::accumulators(std::initializer_list<Named> pointers) {
  for (const auto &[pointer, name] : pointers) {
    if (is_aligned(pointer, sizeof(float))) continue;
    fail(OCTAVO_INVALID, "%s = %p is not aligned to a float", name,
         static_cast<const void *>(pointer));
  }
}

void Check::number(bool holds, const char *name, float found, const char *expected) {
  if (!holds)
    fail(OCTAVO_INVALID, "%s = %g; expected %s", name, static_cast<double>(found), expected);
}

void Check::rule(uint32_t rule) {
  if (is_scale_rule(rule)) return;
  fail(OCTAVO_UNSUPPORTED,
       "rule = %u; expected %d (quotient), %d (pow2), %d (reciprocal), %d (msamp) or %u (msamp04)",
       rule, OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP,
       OCTAVO_RULE_MSAMP04);
}

void Check::format_max(float value, float least) {
  if (value >= least && value <= kMaxF16) return;
  fail(OCTAVO_INVALID,
       "format_max = %g; expected %g to %g: the largest finite value of the format, 448, 57344 or "
       "65504%s",
       static_cast<double>(value), static_cast<double>(least), static_cast<double>(kMaxF16),
       least < 1 ? ", or that divided by 2^margin" : "");
}

void Check::eps(float value) {
  number(is_0_or_above(value), "eps", value, "a finite number, 0 for none");
}

}  // namespace octavo
