/* octavo/rules.h: the rules that derive a scale from the amax of a tensor or block.
 *
 * kernels/format/scale_rules.h defines each of them to the last bit.
 */
#ifndef OCTAVO_RULES_H
#define OCTAVO_RULES_H

/* M is format_max. Kernels return OCTAVO_UNSUPPORTED for any other value. */
enum {
  OCTAVO_RULE_GIVEN = 0,      /* the scale is an input; no rule is applied */
  OCTAVO_RULE_QUOTIENT = 1,   /* fl32(M / amax), a single division, as TE's kernels */
  OCTAVO_RULE_POW2 = 2,       /* QUOTIENT rounded down to a power of two (mantissa cleared) */
  OCTAVO_RULE_RECIPROCAL = 3, /* fl32(fl32(1 / amax) * M), as TE's unfused Python path */
  OCTAVO_RULE_MSAMP = 4, /* 2^floor(log2(fl32(fl32(1 / amax) * M))), at most 2^127; the old scale
                            is kept if amax is 0, Inf or NaN */
  /* The following rules are for block granularities only. With these granularities, QUOTIENT and
   * POW2 follow TE's block scaling: an amax of 0, Inf or NaN gives a scale of 1, and an infinite
   * scale is replaced by the largest value of the input's dtype. */
  OCTAVO_RULE_MX_UP = 5,        /* E8M0 code of fl32(amax * fl32(1 / M)), rounded up, as TE */
  OCTAVO_RULE_MX_FLOOR = 6,     /* 2^(floor(log2(amax)) - emax), as OCP MX 1.0; may saturate */
  OCTAVO_RULE_DEEPGEMM = 7,     /* scale_inv = fl32(max(amax, 1e-4) / 448), scale = 1 / scale_inv */
  OCTAVO_RULE_DEEPGEMM_POW2 = 8 /* the same with scale_inv rounded up to a power of two */
};

#endif
