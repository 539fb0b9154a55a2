#include "kernels/cpu/verbs.h"
namespace octavo {
octavo_status quantize_stats(void *, const octavo_quantize_stats *) {
  return OCTAVO_UNSUPPORTED;
}
}  // namespace octavo
