// The ELF check while the file cannot be read any more: every read of it fails once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/plugin/elf.h"
#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

// That says nothing about the file, whatever the error.
void fail_every_read(const std::string &file, int error) {
  ASSERT_EQ(inspect_elf(file).problem, "");
  int reads = 0;
  for (bool failed = true; failed;) {
    const test::FailingCall pread("pread", error, reads + 1);
    failed = false;
    try {
      inspect_elf(file);
    } catch (const ResourceUnavailable &) {
      failed = true;
    }
    EXPECT_EQ(failed, pread.calls() > reads) << reads;
    reads += failed ? 1 : 0;
  }
  EXPECT_GE(reads, 12);
}

TEST(ElfReads, every_one_fails_once) {
  for (const int error : {EACCES, ENOENT, EIO, ESTALE})
    fail_every_read(OCTAVO_ZOO_DIR "/fake_good.so", error);
}

TEST(ElfReads, file_that_shrinks) {
  const test::TempDir dir;
  const std::string file = dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "x.so");
  for (int n = 1; n < 6; ++n) {
    const test::FailingCall pread("pread", 0, n, 1, 0);  // nothing more is there
    EXPECT_NE(inspect_elf(file).problem, "") << n;
    if (n > 2) break;
  }
}

}  // namespace
}  // namespace octavo
