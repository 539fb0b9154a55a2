/* kernels/cpu/fp4.h: codes of four bits; kernels/format/nvfp4.h has the numbers. */
#pragma once

#include "kernels/cpu/rows.h"
#include "kernels/format/nvfp4.h"

namespace octavo {

/* What quantize_fp4 of octavo/draft/fp4.h adds to a quantize. */
struct Fp4Ways {
  uint32_t flags = 0; /* OCTAVO_FP4_... */
  uint64_t key = 0;
  int32_t count = 0;
};

/* quantize of a checked call whose scales have blocks of 16. */
octavo_status quantize_fp4(const Context &context, const octavo_quantize &c, const Fp4Ways &ways);

/* Plain values or codes of any dtype to fp32; col is even. */
inline void load_any(const Context &context, const octavo_tensor &t, int64_t row, int64_t col,
                     int64_t count, float *values) {
  const char *from = element(t, row, col);
  if (t.dtype != OCTAVO_E2M1) return context.level->load(t.dtype, from, count, values);
  const auto *codes = reinterpret_cast<const uint8_t *>(from);
  for (int64_t i = 0; i < count; ++i)
    values[i] = decode_e2m1(static_cast<uint8_t>(codes[i / 2] >> (i % 2 * 4)));
}

}  // namespace octavo
