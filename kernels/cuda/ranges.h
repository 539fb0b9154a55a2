/* kernels/cuda/ranges.h: each verb as an NVTX range of the domain "octavo", for Nsight Systems and
 * every other tool that reads them. Without a tool a range costs two tests of a pointer.
 *
 * The headers come with the CUDA Toolkit; without OCTAVO_NVTX the verbs stay as they are.
 */
#pragma once

#include "octavo/abi.h"

#ifdef OCTAVO_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace octavo::cuda {

#ifdef OCTAVO_NVTX

class Range {
 public:
  explicit Range(const char *name) {
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &event);
  }
  ~Range() { nvtxDomainRangePop(domain()); }
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;

 private:
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t octavo = nvtxDomainCreateA("octavo");
    return octavo;
  }
};

/* `verb` inside of a range; the name is that of the table's entry. */
template <auto verb, const char *name, typename Call>
octavo_status in_range(void *ctx, const Call *call) {
  const Range range(name);
  return verb(ctx, call);
}

#define OCTAVO_RANGED(verb, Call) in_range<verb, k_##verb, Call>
#define OCTAVO_RANGE_NAME(verb) constexpr char k_##verb[] = #verb;
#else
#define OCTAVO_RANGED(verb, Call) verb
#define OCTAVO_RANGE_NAME(verb)
#endif

}  // namespace octavo::cuda
