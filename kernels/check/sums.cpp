/* What sum_quantized, sum_rows, sum_of_squares, copy and scale_values refuse. */
#include "kernels/check/verbs.h"

namespace octavo {
namespace {

void check_sum(Check *check, const octavo_sum *c) {
  check->tensor(c->in, "in", Dtypes::kAny);
  check->scale(c->in_scale_inv, "in_scale_inv", true);
  check->flags(c->accumulate, 1, "accumulate");
  check->reserved(c->reserved, "the call struct");
  check->accumulators({{static_cast<const float *>(c->out), "out"}});
}

}  // namespace

octavo_status check_sum_quantized(const Caller &caller, const octavo_sum_quantized *c) {
  Check check(caller, "sum_quantized");
  if (!check.call(c)) return check.status();
  if (!is_dtype(c->dtype, Dtypes::kFloat8)) {
    check.fail(OCTAVO_UNSUPPORTED,
               "dtype = 0x%x; expected 0x%x (float8_e4m3fn) or 0x%x "
               "(float8_e5m2)",
               c->dtype, OCTAVO_E4M3FN, OCTAVO_E5M2);
  }
  if (c->count > 0) {
    check.not_null(c->out, "out");
    if (c->shards > 0) check.not_null(c->codes, "codes");
  }
  if (c->shards > 1 && c->shard_stride < c->count) {
    check.fail(OCTAVO_INVALID, "shard_stride = %llu; expected at least count = %llu",
               static_cast<unsigned long long>(c->shard_stride),
               static_cast<unsigned long long>(c->count));
  }
  check.accumulators({{c->saturated, "saturated"}, {c->added, "added"}});
  return check.status();
}

octavo_status check_sum_rows(const Caller &caller, const octavo_sum *c) {
  Check check(caller, "sum_rows");
  if (!check.call(c)) return check.status();
  check_sum(&check, c);
  if (check.ok() && c->in->cols > 0) check.not_null(c->out, "out");
  return check.status();
}

octavo_status check_sum_of_squares(const Caller &caller, const octavo_sum *c) {
  Check check(caller, "sum_of_squares");
  if (!check.call(c)) return check.status();
  check_sum(&check, c);
  check.not_null(c->out, "out");
  return check.status();
}

octavo_status check_copy(const Caller &caller, const octavo_copy *c) {
  Check check(caller, "copy");
  if (!check.call(c)) return check.status();
  if (c->bytes > 0) check.not_null(c->out, "out");
  return check.status();
}

octavo_status check_scale_values(const Caller &caller, const octavo_scale_values *c) {
  Check check(caller, "scale_values");
  if (!check.call(c)) return check.status();
  if (c->n > 0) {
    check.not_null(c->out, "out");
    check.not_null(c->in, "in");
  }
  check.reserved(c->reserved, "the call struct");
  check.accumulators({{c->out, "out"}, {c->in, "in"}});
  return check.status();
}

}  // namespace octavo
