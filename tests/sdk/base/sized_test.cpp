// Every size that a caller may state: a pointer is whole or null.

#include "sdk/src/base/sized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "octavo/octavo.h"

namespace {

// A table whose size says `size`, in memory that a sanitizer ends there.
octavo_collective copy_of(uint32_t size) {
  octavo_collective full{};
  full.size = size;
  full.kind = OCTAVO_KIND_COLLECTIVE;
  full.ctx = &full;
  full.world = 3;
  full.run = [](void *, uint32_t, uint32_t, const void *, uint64_t, void *, uint64_t, void *) {
    return octavo_status{OCTAVO_OK};
  };
  full.broadcast = [](void *, uint32_t, void *, uint64_t, void *) {
    return octavo_status{OCTAVO_OK};
  };
  const auto memory = std::make_unique<unsigned char[]>(size);
  std::memcpy(memory.get(), &full, std::min<size_t>(size, sizeof full));
  return octavo::copy_known_fields(*reinterpret_cast<const octavo_collective *>(memory.get()),
                                   &octavo_collective::ctx, &octavo_collective::run,
                                   &octavo_collective::broadcast);
}

TEST(Sized, EveryPointerIsWholeOrNull) {
  const octavo_collective full = copy_of(sizeof full);
  for (uint32_t size = 8; size <= sizeof full + 8; ++size) {
    SCOPED_TRACE(size);
    const octavo_collective c = copy_of(size);
    EXPECT_EQ(c.ctx != nullptr, size >= OCTAVO_SIZE_THROUGH(octavo_collective, ctx));
    EXPECT_EQ(c.run, size >= OCTAVO_SIZE_THROUGH(octavo_collective, run) ? full.run : nullptr);
    EXPECT_EQ(c.broadcast,
              size >= OCTAVO_SIZE_THROUGH(octavo_collective, broadcast) ? full.broadcast : nullptr);
    EXPECT_EQ(c.world, size >= OCTAVO_SIZE_THROUGH(octavo_collective, world) ? 3u : c.world);
    EXPECT_EQ(c.size, std::min<size_t>(size, sizeof full));
  }
}

}  // namespace
