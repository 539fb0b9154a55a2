// Saves in which one call of the system fails, for every call that there is: the save says so, and
// the last checkpoint is as it was.
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "sdk/src/base/failure.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "tests/sdk/checkpoint/checkpoint_runs.h"
#include "tests/support/failing_calls.h"

namespace octavo::test {
namespace {

class CheckpointFaultsTest : public CheckpointTest {
 protected:
  void SetUp() override {
    environment.set("OCTAVO_PLUGIN_PATH", OCTAVO_PLUGINS_DIR);
    run = open();
    run->fill(1);
    expected = run->content(false);
    ASSERT_EQ(run->save(dir / "c", 1), OCTAVO_OK) << run->error();
  }
  // What the directory holds: step 1 as it was saved, or step 2.
  void expect_step(uint64_t step, const std::string &when) {
    run->fill(3);
    uint64_t found = 0;
    ASSERT_EQ(run->load(dir / "c", &found), OCTAVO_OK) << when << ": " << run->error();
    EXPECT_EQ(found, step) << when;
    if (step == 1) {
      EXPECT_TRUE(run->content(false) == expected) << when;
    }
  }
  // Each call of the function fails once; returns how many there are.
  int sweep(const char *function, int error, bool every_one_matters) {
    for (int k = 1;; ++k) {
      std::filesystem::remove_all(dir / "c");
      run->fill(1);
      EXPECT_EQ(run->save(dir / "c", 1), OCTAVO_OK) << run->error();
      run->fill(2);
      octavo_status status = OCTAVO_OK;
      int calls = 0;
      {
        FailingCall failing(function, error, k);
        status = run->save(dir / "c", 2);
        calls = failing.calls();
      }
      const std::string when = std::string(function) + " " + std::to_string(k);
      if (calls < k) return k - 1;
      if (status == OCTAVO_OK) {
        EXPECT_FALSE(every_one_matters) << when << " failed, and the save did not say so";
        expect_step(2, when);
        continue;
      }
      EXPECT_EQ(status, OCTAVO_NO_RESOURCE) << when << ": " << run->error();
      EXPECT_THAT(run->error(), testing::HasSubstr("expected")) << when;
      // After the manifest's rename the new one stands, though its name may not be on disk.
      uint64_t step = 0;
      EXPECT_EQ(run->load(dir / "c", &step), OCTAVO_OK) << when << ": " << run->error();
      if (step != 2) expect_step(1, when);
      for (const std::string &name : files_in(dir / "c"))
        EXPECT_EQ(name.find(".tmp."), std::string::npos) << when << " left " << name;
    }
  }

  std::unique_ptr<CheckpointRun> run;
  std::map<uint32_t, Bytes> expected;
};

TEST_F(CheckpointFaultsTest, every_call_that_puts_bytes_on_the_disk) {
  EXPECT_EQ(sweep("fsync", EIO, true), 4) << "the file and the manifest, and twice the directory";
  EXPECT_GT(sweep("pwrite", ENOSPC, true), 10);
  EXPECT_EQ(sweep("write", ENOSPC, true), 1);
  EXPECT_EQ(sweep("rename", EIO, true), 2);
  EXPECT_EQ(sweep("ftruncate", EIO, true), 1);
}

// Of these some are of descriptors that were read from.
TEST_F(CheckpointFaultsTest, every_other_call) {
  EXPECT_GT(sweep("open", EMFILE, false), 5);
  EXPECT_GT(sweep("close", EIO, false), 5);
  EXPECT_GT(sweep("fstat", EIO, false), 0);
  EXPECT_GT(sweep("pread", EIO, false), 5);
}

// A signal that comes while the k-th piece is read.
TEST_F(CheckpointFaultsTest, reads_that_a_signal_ends_are_made_again) {
  int reads = 0;
  for (int k = 1; k <= reads + 1; ++k) {
    run->fill(3);
    const FailingCall failing("pread", EINTR, k);
    ASSERT_EQ(run->load(dir / "c"), OCTAVO_OK) << k << ": " << run->error();
    EXPECT_TRUE(run->content(false) == expected) << k;
    reads = std::max(reads, failing.calls() - 1);
  }
  EXPECT_GT(reads, 5);
  for (int k = 1; k <= reads; ++k) {
    const FailingCall failing("pread", EPERM, k);  // any other error is final
    EXPECT_EQ(run->load(dir / "c"), OCTAVO_NO_RESOURCE) << k;
  }
}

TEST_F(CheckpointFaultsTest, file_that_becomes_shorter_while_it_is_read) {
  int shorter = 0;
  for (int k = 1; k < 12; ++k) {
    const FailingCall failing("pread", 0, k, 1, 0);
    if (run->load(dir / "c") == OCTAVO_OK) continue;
    if (run->error().find("more bytes, found the end; the file became shorter") !=
        std::string::npos)
      ++shorter;
  }
  EXPECT_GT(shorter, 5);
}

// A program may have closed its standard input.
TEST_F(CheckpointFaultsTest, files_with_descriptor_0) {
  const int input = dup(0);
  close(0);
  const octavo_status saved = run->save(dir / "c", 2), loaded = run->load(dir / "c");
  ASSERT_EQ(dup2(input, 0), 0);
  close(input);
  EXPECT_EQ(saved, OCTAVO_OK) << run->error();
  EXPECT_EQ(loaded, OCTAVO_OK) << run->error();
}

TEST_F(CheckpointFaultsTest, closing_what_was_written) {
  run->fill(2);
  // The lock is closed last; the second file that is closed is the draft of the rank.
  int refused = 0;
  for (int k = 1; k < 12; ++k) {
    FailingCall failing("close", EIO, k);
    if (run->save(dir / "c", 2) != OCTAVO_OK) ++refused;
  }
  EXPECT_EQ(refused, 2) << "the rank's file and the manifest";
}

TEST_F(CheckpointFaultsTest, a_file_system_without_locks_is_a_warning) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    const auto warnings = [&] { return run->request.host.texts(OCTAVO_SEVERITY_WARNING); };
    const size_t before = warnings().size();
    FailingCall failing("flock", error, 1, 1000);
    EXPECT_EQ(run->save(dir / "c", 2), OCTAVO_OK) << run->error();
    ASSERT_EQ(warnings().size(), before + 1);
    EXPECT_THAT(warnings().back(), testing::HasSubstr("found one without"));
  }
}

TEST(CheckpointWork, does_everything_once_and_hands_on_the_first_failure) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{8} << 20}) {
    std::vector<std::atomic<int>> done(37);
    const std::vector<uint64_t> sizes(done.size(), size);
    work_on_tensors(sizes, [&](size_t i) { ++done[i]; });
    for (const auto &count : done) EXPECT_EQ(count, 1);
    EXPECT_THROW(work_on_tensors(sizes,
                                 [](size_t i) {
                                   if (i == 20) throw Failure(OCTAVO_NO_RESOURCE, "x", "y");
                                 }),
                 Failure);
  }
  work_on_tensors({}, [](size_t) { FAIL(); });
}

}  // namespace
}  // namespace octavo::test
