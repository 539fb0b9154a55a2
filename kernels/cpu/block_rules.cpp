/* The rules of block granularities over many blocks. Every number is that of
 * kernels/format/scale_rules.h; the rule is chosen outside of the loops.
 */
#include "kernels/cpu/block_rules.h"

#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

/* e8m0_multiplier of every code. */
struct Multipliers {
  float of[256];
  Multipliers() {
    for (int code = 0; code < 256; ++code) of[code] = e8m0_multiplier(static_cast<uint8_t>(code));
  }
};
const Multipliers kMultipliers;

/* The two ways of block_scale in kernels/format/scale_rules.h, without what each does not need. */
template <uint32_t kRule>
void store_scales_of(const BlockRule &r, const int32_t *amax_bits, int64_t count,
                     const octavo_scale &s, int64_t index, int64_t step, float *scales) {
  for (int64_t i = 0; i < count; ++i) {
    const BlockScale scale =
        block_scale(kRule, bits_float(amax_bits[i]), r.format_max, r.eps, r.largest);
    static_cast<float *>(s.data)[index + i * step] = scale.scale_inv;
    scales[i] = scale.scale;
  }
}

void store_mx_scales(const BlockRule &r, const int32_t *amax_bits, int64_t count,
                     const octavo_scale &s, int64_t index, int64_t step, float *scales) {
  auto *codes = static_cast<uint8_t *>(s.data) + index;
  const float m = r.format_max;
  const float eps = r.eps;
  const int32_t top = floor_log2(m);
  const bool rounds_up = r.rule == OCTAVO_RULE_MX_UP;
  for (int64_t i = 0; i < count; ++i) {
    const float found = bits_float(amax_bits[i]);
    const float amax = found < eps ? eps : found;
    const uint8_t code = rounds_up ? scale_inv_te_mx(amax, m) : scale_inv_ocp_mx(amax, top);
    codes[i * step] = code;
    scales[i] = kMultipliers.of[code];
  }
}

}  // namespace

void store_scales(const BlockRule &r, const int32_t *amax_bits, int64_t count,
                  const octavo_scale &s, int64_t index, int64_t step, float *scales) {
  switch (r.rule) {
    case OCTAVO_RULE_QUOTIENT:
      return store_scales_of<OCTAVO_RULE_QUOTIENT>(r, amax_bits, count, s, index, step, scales);
    case OCTAVO_RULE_POW2:
      return store_scales_of<OCTAVO_RULE_POW2>(r, amax_bits, count, s, index, step, scales);
    case OCTAVO_RULE_DEEPGEMM:
      return store_scales_of<OCTAVO_RULE_DEEPGEMM>(r, amax_bits, count, s, index, step, scales);
    case OCTAVO_RULE_DEEPGEMM_POW2:
      return store_scales_of<OCTAVO_RULE_DEEPGEMM_POW2>(r, amax_bits, count, s, index, step,
                                                        scales);
    default: return store_mx_scales(r, amax_bits, count, s, index, step, scales);
  }
}

}  // namespace octavo
