/* kernels/check/scales.h: requirements on scales that are more than one number, for the functions
 * of verbs.h. Each records the first failure only, as Check does.
 */
#pragma once

#include "kernels/check/check.h"
#include "kernels/check/granularity.h"

namespace octavo {

/* Refuses a dtype other than f32, a stride below 1, and a null or misaligned address. s is per row,
 * of a tensor with `rows` rows. */
void check_row_scale(Check *check, const octavo_scale *s, const char *name, int64_t rows);

/* Refuses a dtype that is not that of the granularity, a stride shorter than a row of
 * scales, and a null or misaligned address. s has blocks; t is the checked tensor of theirs. */
void check_block_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &t);

/* The same for codes of four bits; also what has no second level. s has blocks of 16. */
void check_fp4_scale(Check *check, const octavo_scale *s, const char *name, const octavo_tensor &t);
/* check->tensor, and rows of codes that are not whole blocks. */
void check_fp4_tensor(Check *check, const octavo_tensor *t, const char *name);
/* check_quantize and check_gemm of a call in which one operand or output has blocks of 16. */
void check_fp4_quantize(Check *check, const octavo_quantize &c);
void check_fp4_gemm(Check *check, const octavo_gemm &c);

/* Refuses a checked tensor that is not dense, and codes other than E4M3FN. */
void check_state_dense(Check *check, const octavo_tensor *t, const char *name);
void check_state_codes(Check *check, const octavo_tensor *t, const char *name);
/* Refuses scales that are not dense f32; `s` is not null. */
void check_state_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &codes);

}  // namespace octavo
