// The dtypes that liboctavo knows, with their widths; a dtype that is not here has width 0 and is
// refused, never guessed from its bits.
#pragma once

#include <cstdint>

#include "octavo/slots.h"

namespace octavo {

constexpr uint64_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_I32:
    case OCTAVO_U8:
    case OCTAVO_F16:
    case OCTAVO_F32:
    case OCTAVO_BF16:
    case OCTAVO_E4M3FN:
    case OCTAVO_E5M2:
    case OCTAVO_E8M0FNU: return OCTAVO_DTYPE_BITS(dtype) / 8;
    default: return 0;
  }
}

// Of a slot that a seal accepted, which bounds rows * cols.
constexpr uint64_t slot_bytes(const octavo_slot &s) {
  return static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols) * element_bytes(s.dtype);
}

}  // namespace octavo
