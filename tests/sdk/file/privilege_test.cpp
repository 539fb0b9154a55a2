// Descriptors, paths and mappings: what is judged is what was opened.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/file/privilege_mapping.h"
#include "sdk/src/file/privilege_path.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

TEST(Privilege, this_process_is_not_privileged) {
  EXPECT_FALSE(privileged());
}

TEST(Privilege, owners_that_count) {
  EXPECT_EQ(trusted_owner(false), geteuid());
  EXPECT_EQ(trusted_owner(true), geteuid() == 0 ? 0 : kNobody);
}

TEST(Privilege, hashes) {
  // FIPS 180-2.
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(is_sha256(sha256_of("")));
  EXPECT_FALSE(is_sha256(sha256_of("").substr(1)));
  EXPECT_FALSE(is_sha256(std::string(64, 'g')));
}

TEST(CheckedFile, reads_and_hashes_one_file) {
  const test::TempDir dir;
  const std::string long_text(200000, 'x');
  const std::string path = dir.write("f", long_text);
  const CheckedFile file(path, "test");
  EXPECT_EQ(file.read(1 << 20), long_text);
  EXPECT_EQ(file.sha256(), sha256_of(long_text));
  EXPECT_THROW(file.read(199999), Failure);
  EXPECT_EQ(file.read(200000), long_text);
  EXPECT_TRUE(file.unchanged());
  dir.write("f", "other");
  EXPECT_FALSE(file.unchanged());
}

// The size of when it was opened is no promise.
TEST(CheckedFile, reads_what_came_later_and_files_without_a_size) {
  const test::TempDir dir;
  const CheckedFile file(dir.write("f", "short"), "test");
  const std::string long_text(100000, 'y');
  dir.write("f", long_text);
  EXPECT_EQ(file.read(100000), long_text);
  EXPECT_THROW(file.read(99999), Failure);
  dir.write("f", "");
  EXPECT_EQ(file.read(10), "");
  EXPECT_TRUE(CheckedFile("/proc/self/status", "test").read(1 << 20).starts_with("Name:"));
}

TEST(CheckedFile, nothing_but_regular_files) {
  const test::TempDir dir;
  EXPECT_THROW(CheckedFile(dir / "none", "test"), Failure);
  EXPECT_THROW(CheckedFile(dir.path(), "test"), Failure);
  EXPECT_THROW(CheckedFile("/dev/null", "test"), Failure);
  EXPECT_THROW(CheckedFile("handed on", Descriptor(open("/dev/null", O_RDONLY)), "test"), Failure);
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(CheckedFile(dir / "pipe", "test"), Failure);
}

// What the system can answer for a file that is there.
TEST(CheckedFile, calls_that_fail) {
  const test::TempDir dir;
  const std::string path = dir.write("f", "content");
  const std::string failed = path +
                             ": cannot be read: Permission denied; check the path and its "
                             "permissions";
  const std::string is_short =
      path +
      ": cannot be read: Too many open files (open, errno 24); no fallback was selected and "
      "the result was not cached; close files, or raise this process's limit of open files (ulimit "
      "-n)";
  const auto words = [](const auto &work) -> std::string {
    try {
      work();
    } catch (const Failure &f) {
      return f.text();
    } catch (const ResourceUnavailable &s) {
      return s.message();
    }
    return "(nothing thrown)";
  };
  {
    const test::FailingCall stat("stat", EACCES);
    EXPECT_EQ(words([&] { CheckedFile(path, "test"); }), failed);
  }
  {
    const test::FailingCall open("open", EMFILE);
    EXPECT_EQ(words([&] { CheckedFile(path, "test"); }), is_short);
  }
  const CheckedFile file(path, "test");
  for (const int error : {EIO, EACCES, ESTALE})  // a disk that does not read
    for (const bool all : {true, false}) {
      const test::FailingCall pread("pread", error);
      EXPECT_THROW(all ? file.read(100) : file.sha256(), ResourceUnavailable);
    }
  {
    const test::FailingCall pread("pread", EINTR, 1, 3);  // a signal came
    EXPECT_EQ(file.read(100), "content");
    EXPECT_GE(pread.calls(), 5);
    EXPECT_EQ(file.sha256(), sha256_of("content"));
  }
  {
    const test::FailingCall fstat("fstat", EIO);
    EXPECT_THROW(file.unchanged(), ResourceUnavailable);
  }
}

// A file whose size stayed and whose times did not.
TEST(CheckedFile, times_count) {
  const test::TempDir dir;
  const std::string path = dir.write("f", "content");
  const CheckedFile file(path, "test");
  chmod(path.c_str(), 0600);  // changes the time of the status, and nothing else
  EXPECT_FALSE(file.unchanged());
  const CheckedFile again(path, "test");
  const timespec times[2] = {{0, UTIME_OMIT}, {1000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_FALSE(again.unchanged());
}

class PrivilegePath : public testing::Test {
 protected:
  void SetUp() override {
    path = dir.write("a/b/f", "");
    if (const std::string found = problem(path); !found.empty())
      GTEST_SKIP() << "the temporary directory is not trusted itself: " << found;
  }
  std::string problem(const std::string &of, Links links = Links::kFollow) {
    const CheckedFile file(of, "test");
    remedy = {};
    return path_problem(of, file, geteuid(), links, &remedy);
  }
  Remedy remedy;
  test::TempDir dir;
  std::string path;
};

TEST_F(PrivilegePath, remedies_can_be_pasted) {
  chmod((dir / "a/b").c_str(), 0775);
  EXPECT_NE(problem(path), "");
  EXPECT_EQ(remedy.text, "run `chmod g-w " + (dir / "a/b") + "`");
  chmod((dir / "a/b").c_str(), 0755);
  const std::string odd = dir.write("a/it's", "", 0666);
  EXPECT_NE(problem(odd), "");
  EXPECT_EQ(remedy.text, "run `chmod go-w '" + (dir / "a/it") + "'\\''s'`");
  EXPECT_EQ(problem(path), "");
  EXPECT_EQ(remedy.text, "");
}

TEST_F(PrivilegePath, dots_and_slashes) {
  EXPECT_EQ(problem(dir / "a//./b/../b/f"), "");
  EXPECT_EQ(problem("/.." + path), "");
}

TEST_F(PrivilegePath, links_are_followed_component_by_component) {
  fs::create_symlink("b", dir / "a/relative");
  fs::create_symlink(dir / "a", dir / "absolute");
  fs::create_symlink("../absolute/relative/f", dir / "a/chain");
  for (const char *way : {"a/relative/f", "absolute/b/f", "absolute/relative/f", "a/chain"}) {
    EXPECT_EQ(problem(dir / way), "") << way;
    EXPECT_THAT(problem(dir / way, Links::kRefuse), HasSubstr(" is not a ")) << way;
  }
}

// The place of a link matters, too: who can replace the link chooses the file.
TEST_F(PrivilegePath, link_in_a_directory_that_others_can_write) {
  fs::create_symlink(path, dir.make_directory("open", 0777) + "/f");
  EXPECT_EQ(problem(dir / "open/f"),
            (dir / "open") + " has mode 0777, writable by group or others");
}

TEST_F(PrivilegePath, link_of_another_user) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a link to another user";
  fs::create_symlink(path, dir / "link");
  ASSERT_EQ(lchown((dir / "link").c_str(), 12345, 12345), 0);
  EXPECT_EQ(problem(dir / "link"),
            (dir / "link") + " belongs to user 12345, expected root or user 0");
  EXPECT_EQ(remedy.text, "run `chown -h root " + (dir / "link") + "`");
}

TEST_F(PrivilegePath, too_many_links) {
  std::string before = path;
  for (int i = 0; i < 39; ++i) {
    const std::string link = dir / ("l" + std::to_string(i));
    fs::create_symlink(before, link);
    before = link;
  }
  EXPECT_EQ(problem(before), "");
  // The kernel's own limit is met when the file is opened; the walk has one itself.
  const CheckedFile file(path, "test");
  fs::create_symlink(dir / "loop", dir / "loop");
  EXPECT_THAT(path_problem(dir / "loop", file, geteuid(), Links::kFollow),
              EndsWith("expected at most 40 symbolic links, found more"));
}

TEST_F(PrivilegePath, another_file_than_the_opened_one) {
  const CheckedFile file(path, "test");
  fs::rename(dir.write("a/b/g", ""), path);
  EXPECT_EQ(path_problem(path, file, geteuid(), Links::kRefuse),
            path + " was replaced while it was checked");
  fs::remove(path);
  EXPECT_THAT(path_problem(path, file, geteuid(), Links::kRefuse),
              HasSubstr(path + " cannot be inspected: No such file or directory"));
}

TEST_F(PrivilegePath, file_as_a_directory) {
  const CheckedFile file(path, "test");
  EXPECT_EQ(path_problem(path + "/x", file, geteuid(), Links::kRefuse),
            path + " is not a directory");
}

TEST_F(PrivilegePath, nobody_but_root_counts) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const CheckedFile file(path, "test");
  EXPECT_EQ(path_problem(path, file, kNobody, Links::kRefuse), "");
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_EQ(path_problem(path, file, 12345, Links::kRefuse), "");
  EXPECT_EQ(path_problem(path, file, kNobody, Links::kRefuse),
            path + " belongs to user 12345, expected root");
}

TEST_F(PrivilegePath, calls_that_fail) {
  const CheckedFile file(path, "test");
  const auto problem_with = [&](const std::string &of, const char *function, int first,
                                long returned = -1) {
    const test::FailingCall call(function, EACCES, first, 1, returned);
    return path_problem(of, file, geteuid(), Links::kFollow);
  };
  const std::string first = "/" + path.substr(1, path.find('/', 1) - 1);
  EXPECT_EQ(problem_with(path, "open", 1), "/ cannot be inspected: Permission denied");
  EXPECT_EQ(problem_with(path, "openat", 1), first + " cannot be inspected: Permission denied");
  EXPECT_EQ(problem_with("/.." + path, "openat", 1), "/ cannot be inspected: Permission denied");
  fs::create_symlink(path, dir / "link");
  for (const long size : {0L, long{PATH_MAX}})
    EXPECT_EQ(problem_with(dir / "link", "readlinkat", 1, size),
              (dir / "link") + " is a link that cannot be read");
  // Of what is open, no error says anything.
  for (const auto &[function, error] :
       {std::pair("open", ESTALE), {"openat", ENOMEM}, {"fstat", EACCES}, {"readlinkat", EACCES}}) {
    const test::FailingCall call(function, error);
    EXPECT_THROW(path_problem(dir / "link", file, geteuid(), Links::kFollow), ResourceUnavailable)
        << function;
  }
}

TEST_F(PrivilegePath, ends_that_are_no_files) {
  const CheckedFile file(path, "test");
  const auto found = [&](const std::string &of) {
    return path_problem(of, file, geteuid(), Links::kFollow);
  };
  EXPECT_EQ(found(dir / "a/b"), (dir / "a/b") + " is not a regular file");
  fs::create_symlink("/", dir / "root");
  EXPECT_EQ(found(dir / "root"), (dir / "root") + " is not a regular file");
  fs::create_symlink(".", dir / "here");
  EXPECT_EQ(found(dir / "here"), (dir / "here") + " is not a regular file");
}

// The sticky bit protects the content of a directory, and means nothing on a file.
TEST_F(PrivilegePath, sticky_file_that_others_can_write) {
  chmod(path.c_str(), 01666);
  EXPECT_EQ(problem(path), path + " has mode 1666, writable by group or others");
}

TEST_F(PrivilegePath, remedy_with_a_name_that_a_shell_would_read) {
  const std::string odd = dir.write("it's $HOME", "", 0666);
  EXPECT_EQ(problem(odd), odd + " has mode 0666, writable by group or others");
  EXPECT_EQ(remedy.text, "run `chmod go-w '" + (dir / "it'\\''s $HOME") + "'`");
}

TEST(Privilege, owner_in_a_process_that_runs_as_another_user) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user and come back";
  ASSERT_EQ(seteuid(12345), 0);
  const uid_t found = trusted_owner(true);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(found, 12345u);
}

// With the rights of its group only, so that the user's own files look like others'.
TEST(Privilege, owner_in_a_set_gid_process_of_a_user) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user and come back";
  ASSERT_EQ(setresuid(12345, 12345, 0), 0);
  const uid_t found = trusted_owner(true);
  ASSERT_EQ(setresuid(0, 0, 0), 0);
  EXPECT_EQ(found, kNobody);
}

class PrivilegeMapping : public testing::Test {
 protected:
  // A page of the file, mapped as a loader does it.
  static std::shared_ptr<void> map(const CheckedFile &file) {
    void *page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    return {page, [](void *p) { munmap(p, 4096); }};
  }
  test::TempDir dir;
  CheckedFile file{dir.write("f", "abc"), "test"};
};

TEST_F(PrivilegeMapping, of_the_file) {
  const auto page = map(file);
  EXPECT_EQ(mapping_problem(file, static_cast<const char *>(page.get()) + 17), "");
}

TEST_F(PrivilegeMapping, of_another_file_with_equal_content) {
  const CheckedFile other(dir.write("g", "abc"), "test");
  const auto page = map(other);
  EXPECT_THAT(mapping_problem(file, page.get()),
              HasSubstr(file.path() + ": expected the mapping of the checked file"));
}

TEST_F(PrivilegeMapping, of_no_file) {
  const int local = 0;
  EXPECT_THAT(mapping_problem(file, &local), HasSubstr("expected the mapping of the checked file"));
  EXPECT_THAT(mapping_problem(file, nullptr), EndsWith("found none"));
}

TEST_F(PrivilegeMapping, of_a_file_that_was_written_to) {
  const auto page = map(file);
  std::ofstream(file.path(), std::ios::app) << "d";
  EXPECT_EQ(mapping_problem(file, page.get()),
            file.path() + ": was written to or renamed while it was loaded");
}

TEST_F(PrivilegeMapping, of_a_file_that_cannot_be_mapped) {
  const auto page = map(file);
  for (const int error : {EACCES, ENODEV, ENOMEM}) {
    const test::FailingCall mmap("mmap", error);
    EXPECT_THROW(mapping_problem(file, page.get()), ResourceUnavailable) << error;
  }
}

// As in a container without /proc: the name is asked once more.
TEST_F(PrivilegeMapping, without_a_list_of_mappings) {
  const std::string none = dir / "none";
  const auto found = [&] { return mapping_problem(file, nullptr, none.c_str()); };
  const std::string other = file.path() + ": another file than the checked one is there now";
  EXPECT_EQ(found(), "");
  fs::rename(dir.write("g", "abc"), file.path());
  EXPECT_EQ(found(), other);
  fs::remove(file.path());
  EXPECT_EQ(found(), other);
}

TEST_F(PrivilegeMapping, list_of_another_form) {
  const auto page = map(file);
  const std::string begin = "0-ffffffffffff r--p";
  for (const std::string &line : {std::string("rubbish"), std::string("0x-1"), begin, begin + " 0",
                                  begin + " 0 fe:00", begin + " 0 fe:00 inode"}) {
    const std::string list = dir.write("maps", line + "\n");
    EXPECT_EQ(mapping_problem(file, page.get(), list.c_str()),
              file.path() +
                  ": expected the mapping of the checked file (device and inode ), found "
                  "none")
        << line;
  }
  const std::string list = dir.write("maps", begin + " 0 fe:00 17\n");
  EXPECT_EQ(mapping_problem(file, page.get(), list.c_str()), "");
}

TEST(CheckedFile, same_number_on_another_device) {
  const test::TempDir dir;
  const CheckedFile file(dir.write("f", "x"), "test");
  struct stat st {};
  ASSERT_EQ(stat(file.path().c_str(), &st), 0);
  EXPECT_TRUE(file.is(st));
  ++st.st_dev;
  EXPECT_FALSE(file.is(st));
  --st.st_dev;
  ++st.st_ino;
  EXPECT_FALSE(file.is(st));
}

}  // namespace
}  // namespace octavo
