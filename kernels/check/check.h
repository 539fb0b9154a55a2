/* kernels/check/check.h: refusing malformed calls with a text that says expected and found.
 *
 * A Check remembers the first failure only; later requirements on the same call are skipped, so
 * they may rely on the earlier ones having been tested in order with `ok()`.
 */
#pragma once

#include <bit>
#include <initializer_list>
#include <utility>

#include "kernels/check/minor_0.h"

namespace octavo {

/* Who refuses, and where the message goes. */
struct Caller {
  const octavo_host *host;
  const char *domain; /* of the diagnostics: "octavo.kernels.cpu" */
};

/* Sends an error to the host and returns `status`; the text is formatted on the stack. */
octavo_status report_error(const Caller &caller, octavo_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* By its bits: a caller's floating-point mode may take subnormal numbers for 0. */
inline bool is_above_0(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return bits > 0 && bits < 0x7F800000u;
}
inline bool is_0_or_above(float value) {
  return is_above_0(value) || (std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu) == 0;
}

/* Which dtypes a tensor may have. */
enum class Dtypes {
  kAny,       /* f32, bf16, f16, E4M3FN, E5M2 */
  kPlain,     /* f32, bf16, f16 */
  kQuantized, /* E4M3FN, E5M2, f16: what a scale_inv belongs to */
  kFloat8,    /* E4M3FN, E5M2 */
  kState,     /* E4M3FN: blocks of optimizer states */
  kFp4,       /* E2M1, in rows of whole blocks */
  kNone
};

/* Of the tensor that the dtype of an octavo_ability is about, with scales of this granularity. */
Dtypes dtypes_of(uint32_t call, uint32_t granularity);
/* The bits of a call that the flags of an octavo_ability are about. */
uint32_t flags_of(uint32_t call);

class Check {
 public:
  Check(const Caller &caller, const char *verb) : caller_(caller), verb_(verb) {}

  bool ok() const { return status_ == OCTAVO_OK; }
  octavo_status status() const { return status_; }

  /* Records `status` and reports the text, prefixed by the verb. */
  void fail(octavo_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

  /* The call struct itself: not null, and at least as long as minor 0 made it. */
  template <typename Call>
  bool call(const Call *c) {
    if (c == nullptr) {
      fail(OCTAVO_INVALID, "the call struct is null");
    } else if (c->size < Minor0<Call>::kSize) {
      fail(OCTAVO_INVALID, "the call struct has %u bytes; expected at least %u", c->size,
           Minor0<Call>::kSize);
    }
    return ok();
  }

  void not_null(const void *pointer, const char *name);
  /* Shape, stride, dtype, alignment and data of one tensor; `name` is that of the call's field. */
  void tensor(const octavo_tensor *t, const char *name, Dtypes allowed);
  void same_shape(const octavo_tensor *t, const char *name, const octavo_tensor *like,
                  const char *like_name);
  /* At least as large as [rows, cols] in both directions. */
  void holds(const octavo_tensor *t, const char *name, int64_t rows, int64_t cols);
  void equal(int64_t found, int64_t expected, const char *name, const char *expected_name);
  void at_least(int64_t found, int64_t expected, const char *name, const char *expected_name);
  /* A per-tensor f32 scale; null is legal when `optional`. `others`: the granularities that the
   * verb takes besides, for the text. */
  void scale(const octavo_scale *s, const char *name, bool optional, const char *others = "");
  /* The rows of a scale that is a matrix with `rows` rows are within 2^63 bytes. */
  void scale_rows(const octavo_scale *s, const char *name, int64_t rows);
  /* Nothing but the known bits: of flags, or of a field that is 0 or 1. */
  void flags(uint32_t found, uint32_t known, const char *name);
  /* 0 in `name`, a tensor, a scale or "the call struct". */
  void reserved(uint32_t found, const char *name);
  /* What a tensor's scales have beyond those that these kernels read. */
  void plain_scale(const octavo_scale *s, const char *name);
  /* Each null, or aligned to a float. */
  using Named = std::pair<const float *, const char *>;
  void accumulators(std::initializer_list<Named> pointers);
  /* A number of the call for which `holds` is true; `expected` says when it is. */
  void number(bool holds, const char *name, float found, const char *expected);
  /* One that scale_by_rule knows. */
  void rule(uint32_t rule);
  /* From `least` to what every rule is defined for. */
  void format_max(float value, float least = kLeastWithMargin);
  void eps(float value);

  /* The largest value of a format by any margin is a normal number. */
  static constexpr float kLeastWithMargin = 0x1p-126f;

 private:
  const Caller caller_;
  const char *verb_;
  octavo_status status_ = OCTAVO_OK;
};

bool is_dtype(uint32_t dtype, Dtypes allowed);

}  // namespace octavo
