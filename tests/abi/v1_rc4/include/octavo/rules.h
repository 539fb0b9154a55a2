/* octavo/rules.h: the rules that derive a scale from the amax of a tensor, a row or a block.
 *
 * M is the format_max of the call. a is the amax, or eps where that is larger; an amax that a cast
 * finds is never NaN or below 0. Each operation is rounded to fp32, and scale_inv = fl32(1 / scale)
 * unless a rule states another one. `kept` is the old scale that the call gives, or 1.
 *
 *   rule         scale                            a <= 0 or NaN   a is Inf   scale overflows
 *   QUOTIENT     M / a                            kept            kept       L
 *   POW2         QUOTIENT, then rounded down to   kept            kept       L, rounded down
 *                a power of two
 *   RECIPROCAL   (1 / a) * M                      kept            kept       FLT_MAX
 *   MSAMP        2^floor(log2((1 / a) * M))       kept            kept       2^floor(log2(M / a))
 *   MX_UP        2^(127 - code): code is the      code 0          code 254   (impossible)
 *                smallest with 2^(code - 127) >=
 *                a * (1 / M), 0 to 254
 *   MX_FLOOR     2^(127 - code), code =           code 0          code 255   (impossible)
 *                max(0, floor(log2(a)) + 127 -
 *                floor(log2(M)))
 *   DEEPGEMM     1 / scale_inv, scale_inv =       1e-4 / 448      scale 0    (impossible)
 *                max(a, fl32(1e-4)) / 448
 *
 * L is FLT_MAX for a tensor or row, and for a block the largest value of the dtype of `in` (FLT_MAX
 * for codes). floor(log2(v)) is exact: of the fp32 number v, or of M / a as real numbers. POW2
 * keeps 0, and rounds subnormals too. MSAMP's exponent is from -126 to 127. E8M0 code c stands for
 * 2^(c - 127), and 255 for NaN: with code 255 the scale is NaN, and so is every code of the block
 * but its padding. DEEPGEMM_POW2 rounds scale_inv up to a power of two, from 2^-126 to 2^127, 2^127
 * where a is Inf.
 *
 *   tensor and rows     QUOTIENT, POW2, RECIPROCAL, MSAMP; a tensor in a cast also GIVEN
 *   blocks of 128, f32  QUOTIENT, POW2, DEEPGEMM, DEEPGEMM_POW2 (both of E4M3 codes), kept = 1
 *   blocks of 32, E8M0  MX_UP, MX_FLOOR
 *
 * Kernels return OCTAVO_UNSUPPORTED for any other value and combination.
 */
#ifndef OCTAVO_RULES_H
#define OCTAVO_RULES_H

enum {
  OCTAVO_RULE_GIVEN = 0,        /* the scale is an input; no rule is applied */
  OCTAVO_RULE_QUOTIENT = 1,     /* as TE's kernels */
  OCTAVO_RULE_POW2 = 2,         /* as TE with powers of two */
  OCTAVO_RULE_RECIPROCAL = 3,   /* as TE's unfused Python path */
  OCTAVO_RULE_MSAMP = 4,        /* as MS-AMP, without its quirks */
  OCTAVO_RULE_MX_UP = 5,        /* as TE's MX */
  OCTAVO_RULE_MX_FLOOR = 6,     /* as OCP MX 1.0; the largest elements may saturate */
  OCTAVO_RULE_DEEPGEMM = 7,     /* as DeepGEMM */
  OCTAVO_RULE_DEEPGEMM_POW2 = 8 /* the same with powers of two */
};

#endif
