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

// Nothing more is there from some read on: a fault of the file, or of what the check can do
// without.
TEST(ElfReads, file_that_shrinks) {
  const test::TempDir dir;
  const std::string file = dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "x.so");
  const ElfCheck whole = inspect_elf(file);
  bool is_read = true;
  int faults = 0;
  for (int n = 1; is_read; ++n) {
    const test::FailingCall pread("pread", 0, n, 1, 0);
    const ElfCheck check = inspect_elf(file);
    is_read = pread.calls() >= n;
    EXPECT_TRUE(!check.problem.empty() || check.entry == whole.entry) << n;
    faults += check.problem.empty() ? 0 : 1;
  }
  EXPECT_GE(faults, 10);
}

}  // namespace
}  // namespace octavo
