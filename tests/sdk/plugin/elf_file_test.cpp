// Bounded reads: what the system can answer for a file that opens.
#include "sdk/src/plugin/elf_file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sdk/src/base/resource_unavailable.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

class ElfFileTest : public testing::Test {
 protected:
  std::string problem(const std::string &of) const {
    std::string text;
    EXPECT_FALSE(ElfFile::open(of, &text));
    return text;
  }
  std::optional<ElfFile> open() const {
    std::string text;
    auto file = ElfFile::open(path, &text);
    EXPECT_TRUE(file) << text;
    return file;
  }
  test::TempDir dir;
  std::string path = dir.write("f", "0123456789");
};

TEST_F(ElfFileTest, sockets_and_missing_files) {
  const int s = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "s").c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(s, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
  EXPECT_EQ(problem(dir / "s"), "expected a regular file, found a socket");
  close(s);
  EXPECT_EQ(problem(dir / "none"),
            "cannot be read: No such file or directory; check the path and its permissions");
}

TEST_F(ElfFileTest, status_that_cannot_be_had) {
  const test::FailingCall fstat("fstat", EACCES);
  std::string text;
  EXPECT_THROW(ElfFile::open(path, &text), ResourceUnavailable);
}

TEST_F(ElfFileTest, reads_stay_inside) {
  const auto file = open();
  char bytes[16] = {};
  EXPECT_TRUE(file->read(3, bytes, 7));
  EXPECT_STREQ(bytes, "3456789");
  EXPECT_TRUE(file->read(10, bytes, 0));
  EXPECT_FALSE(file->read(3, bytes, 8));
  EXPECT_FALSE(file->read(11, bytes, 0));
  EXPECT_FALSE(file->read(UINT64_MAX, bytes, 2));
}

TEST_F(ElfFileTest, reads_that_fail_or_end_early) {
  const auto file = open();
  char bytes[16] = {};
  {
    const test::FailingCall pread("pread", EACCES);
    EXPECT_THROW(file->read(0, bytes, 10), ResourceUnavailable);
  }
  {
    const test::FailingCall pread("pread", EINTR, 1, 2);
    EXPECT_TRUE(file->read(0, bytes, 10));
    EXPECT_EQ(pread.calls(), 3);
  }
  ASSERT_EQ(truncate(path.c_str(), 4), 0);
  EXPECT_FALSE(file->read(0, bytes, 10));
}

TEST_F(ElfFileTest, moved_from_files_close_nothing) {
  auto first = open();
  const ElfFile second(std::move(*first));
  first.reset();
  char byte = 0;
  EXPECT_TRUE(second.read(9, &byte, 1));
  EXPECT_EQ(byte, '9');
}

}  // namespace
}  // namespace octavo
