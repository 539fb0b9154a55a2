/* octavo/rules.h: the named ways from the amax of a tensor or block to its scale.
 *
 * kernels/format/scale_rules.h defines each to the last bit.
 */
#ifndef OCTAVO_RULES_H
#define OCTAVO_RULES_H

/* How amax becomes a scale; M is format_max. Anything else is answered with OCTAVO_UNSUPPORTED. */
enum {
  OCTAVO_RULE_GIVEN = 0,    /* the scale is read, no rule */
  OCTAVO_RULE_QUOTIENT = 1, /* fl32(M / amax), a true quotient; TE's kernels */
  OCTAVO_RULE_POW2 = 2,     /* QUOTIENT with the mantissa cleared: rounded down to a power of two */
  OCTAVO_RULE_RECIPROCAL = 3, /* fl32(fl32(1 / amax) * M); TE's unfused Python path */
  OCTAVO_RULE_MSAMP = 4,   /* 2^floor(log2(fl32(fl32(1 / amax) * M))), at most 2^127; an amax that
                              is 0, Inf or NaN keeps the old scale */
  OCTAVO_RULE_MSAMP04 = 5, /* MS-AMP 0.4.0 as it is: an amax of Inf gives 1 / old scale, a
                             quotient that overflows an infinite scale */
  /* Of block granularities only. QUOTIENT and POW2 there follow TE's block scaling: an amax of 0,
   * Inf or NaN gives 1, an infinite scale becomes the largest value of the input's dtype. */
  OCTAVO_RULE_MX_UP = 6,    /* E8M0 code of fl32(amax * fl32(1 / M)), rounded up: TE */
  OCTAVO_RULE_MX_FLOOR = 7, /* 2^(floor(log2(amax)) - emax): OCP MX 1.0; elements may saturate */
  OCTAVO_RULE_DEEPGEMM = 8, /* scale_inv = fl32(max(amax, 1e-4) / 448), scale = 1 / scale_inv */
  OCTAVO_RULE_DEEPGEMM_POW2 = 9 /* the same with scale_inv rounded up to a power of two */
};

#endif
