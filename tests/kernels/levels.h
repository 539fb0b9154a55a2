/* tests/kernels/levels.h: what the functions of every level's table write, against the baseline. */
#ifndef OCTAVO_TESTS_KERNELS_LEVELS_H
#define OCTAVO_TESTS_KERNELS_LEVELS_H

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cpu/level.h"

namespace octavo::test {

using Bytes = std::vector<uint8_t>;

template <typename T>
void append(Bytes *bytes, const T *values, size_t count) {
  const auto *from = reinterpret_cast<const uint8_t *>(values);
  bytes->insert(bytes->end(), from, from + count * sizeof(T));
}

/* Calls body(level) for the levels of this CPU besides the baseline. */
template <typename Body>
void for_other_levels(Body body) {
  for (int i = 0; i + 1 < kLevelCount; ++i) {
    if (kLevels[i].level != nullptr && kLevels[i].is_supported()) body(*kLevels[i].level);
  }
}

/* body(level, bytes) fills `bytes`; the same on each level. */
template <typename Body>
void expect_equal_levels(Body body) {
  Bytes expected;
  ASSERT_STREQ(kLevels[kLevelCount - 1].name, "baseline");
  body(*kLevels[kLevelCount - 1].level, &expected);
  for_other_levels([&](const Level &level) {
    Bytes found;
    body(level, &found);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t at = 0; at < found.size() && found != expected; ++at) {
      ASSERT_EQ(+found[at], +expected[at]) << level.name << ": byte " << at;
    }
  });
}

}  // namespace octavo::test

#endif
