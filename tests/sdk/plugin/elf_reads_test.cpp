// The ELF check while the file cannot be read any more: every read of it fails once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "sdk/src/plugin/elf.h"
#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

// The answer is a problem, or lacks the result of that read, or the search went on
// elsewhere.
void fail_every_read(const std::string &file) {
  const ElfCheck good = inspect_elf(file);
  ASSERT_EQ(good.problem, "");
  int problems = 0, without_id = 0, reads = 0;
  for (int n = 1;; ++n) {
    const test::FailingCall pread("pread", EACCES, n);
    const ElfCheck c = inspect_elf(file);
    if (pread.calls() < n) break;
    ++reads;
    if (!c.problem.empty())
      ++problems;
    else if (c.build_id != good.build_id)
      ++without_id;
    else
      EXPECT_TRUE(c.entry_major != good.entry_major || c.needed == good.needed) << n;
  }
  EXPECT_GE(reads, 12);
  EXPECT_GE(problems, 6);
  EXPECT_GE(without_id, 3);
}

TEST(ElfReads, every_one_fails_once) {
  fail_every_read(OCTAVO_ZOO_DIR "/fake_good.so");
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
