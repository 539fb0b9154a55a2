// The hash of a tensor's bytes, for octavo.state_dict.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "octavo/abi.h"

static_assert(sizeof(XXH128_canonical_t) == 16);

// XXH3 with 128 bits in its canonical order, as Python's xxhash.xxh3_128_digest. THREAD_ANY.
OCTAVO_EXPORT void octavo_torch_xxh3_128(const void *data, uint64_t bytes, void *digest) {
  XXH128_canonicalFromHash(static_cast<XXH128_canonical_t *>(digest), XXH3_128bits(data, bytes));
}
