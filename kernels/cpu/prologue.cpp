#include "kernels/cpu/verbs.h"
namespace octavo {
octavo_status prologue(void *, const octavo_prologue_call *) {
  return OCTAVO_UNSUPPORTED;
}
octavo_status prologue_quantize(void *, const octavo_prologue_call *) {
  return OCTAVO_UNSUPPORTED;
}
octavo_status prologue_workspace_bytes(void *, const octavo_prologue_call *, uint64_t *) {
  return OCTAVO_UNSUPPORTED;
}
}  // namespace octavo
