// The lock file: its text, what makes it malformed, and that it appears whole.
#include "sdk/src/trust/lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using testing::HasSubstr;

LockedPlugin plugin(const std::string &name, const std::string &platform = platform_tuple()) {
  return {name, platform, "1.2", "1.0", sha256_of("l" + name), sha256_of("m"), sha256_of("v")};
}

std::string failure_of(const std::string &text) {
  try {
    parse_lock(text, "octavo.lock");
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_STREQ(f.domain(), "octavo.lock");
    return f.text();
  }
  return "(accepted)";
}

TEST(Lock, comes_back_as_it_was_written) {
  Lock lock;
  lock.plugins = {plugin("te"), plugin("msamp"), plugin("te", "plan9-mips"),
                  plugin("te", "aix-power")};
  lock.plugins[1].version = "1.0 \"final\" \\ 2";
  const std::string text = lock_text(lock);
  const Lock back = parse_lock(text, "octavo.lock");
  ASSERT_EQ(back.plugins.size(), 4u);
  ASSERT_NE(back.find("te"), nullptr);
  EXPECT_EQ(back.find("te")->sha256, sha256_of("lte"));
  EXPECT_EQ(back.find("te")->platform, platform_tuple());
  EXPECT_EQ(back.find("msamp")->version, "1.0 \"final\" \\ 2");
  EXPECT_EQ(back.find("reference"), nullptr);
  EXPECT_EQ(lock_text(back), text);
  EXPECT_LT(text.find("\"msamp\""), text.find("\"te\""));
}

TEST(Lock, texts_keep_their_control_characters) {
  Lock lock;
  lock.plugins = {plugin("te")};
  lock.plugins[0].version = "1\t2\n3\x7F";
  const Lock back = parse_lock(lock_text(lock), "octavo.lock");
  ASSERT_EQ(back.plugins.size(), 1u);
  EXPECT_EQ(back.plugins[0].version, lock.plugins[0].version);
  EXPECT_EQ(lock_drift(lock.plugins[0], back.plugins[0]), "");
}

TEST(Lock, malformed) {
  Lock lock;
  lock.plugins = {plugin("te")};
  const std::string good = lock_text(lock);
  const auto with = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return failure_of(text);
  };
  EXPECT_EQ(failure_of(good), "(accepted)");
  EXPECT_EQ(failure_of(""),
            "octavo.lock: lock_version: expected 1, found nothing; write it again: "
            "octavo plugin lock");
  EXPECT_THAT(with("lock_version = 1", "lock_version = 2"), HasSubstr("expected 1, found 2"));
  EXPECT_EQ(with("abi = \"1.0\"", "abi = 1"),
            "octavo.lock:8: plugin.0.abi: expected a text, found an integer; write it again: "
            "octavo plugin lock");
  EXPECT_THAT(with("abi = \"1.0\"\n", ""), HasSubstr("plugin 0: expected a value of abi"));
  EXPECT_THAT(with("abi =", "api ="), HasSubstr("unknown key \"plugin.0.api\""));
  EXPECT_THAT(with(sha256_of("lte"), "12"), HasSubstr("plugin.0.sha256: expected 64 digits"));
  EXPECT_THAT(failure_of(good + good.substr(good.find("[[plugin]]"))),
              HasSubstr("expected one entry for te on "));
  EXPECT_THAT(failure_of(good + "["), HasSubstr("not valid TOML"));
}

TEST(Lock, every_truncation_of_the_file_is_seen) {
  Lock lock;
  lock.plugins = {plugin("te")};
  const std::string good = lock_text(lock);
  const size_t entry = good.find("[[plugin]]");  // before it, an empty lock is a lock
  for (size_t size = entry + 1; size + 2 < good.size(); ++size)
    EXPECT_NE(failure_of(good.substr(0, size)), "(accepted)") << size;
}

TEST(Lock, is_written_whole_or_not_at_all) {
  const test::TempDir dir;
  const std::string path = dir / "octavo.lock";
  Lock lock;
  lock.plugins = {plugin("te")};
  write_lock(path, lock);
  EXPECT_EQ(test::read_text(path), lock_text(lock));
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0644u);
  const ino_t old = st.st_ino;
  lock.plugins.push_back(plugin("msamp"));
  write_lock(path, lock);
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_NE(st.st_ino, old);  // another file under the name, never a half-written one
  EXPECT_EQ(test::read_text(path), lock_text(lock));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Lock, failed_write_leaves_nothing) {
  const test::TempDir dir;
  dir.make_directory("octavo.lock/full");  // a directory that is not empty cannot be replaced
  try {
    write_lock(dir / "octavo.lock", {});
    FAIL() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_NO_RESOURCE);
    EXPECT_THAT(f.text(), HasSubstr((dir / "octavo.lock") + ": cannot be written: "));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_THROW(write_lock(dir / "none/octavo.lock", {}), Failure);
}

// Each call of the way to a new file: the old one stays, and no other file is left.
TEST(Lock, calls_that_fail) {
  const test::TempDir dir;
  const std::string path = dir.write("octavo.lock", "old");
  for (const char *function : {"open", "write", "fchmod", "fsync", "close", "rename"}) {
    const test::FailingCall call(function, ENOSPC);
    try {
      write_lock(path, {});
      ADD_FAILURE() << function << ": accepted";
    } catch (const Failure &f) {
      EXPECT_EQ(f.status(), OCTAVO_NO_RESOURCE);
      EXPECT_EQ(f.text(), path +
                              ": cannot be written: No space left on device; check the "
                              "directory's permissions and free space");
    }
    EXPECT_EQ(test::read_text(path), "old") << function;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << function;
  }
  const test::FailingCall none("write", ENOSPC, 1, 1, 0);  // writes nothing, and says so
  EXPECT_THROW(write_lock(path, {}), Failure);
  EXPECT_EQ(test::read_text(path), "old");
}

TEST(Lock, calls_that_are_made_again_or_not_needed) {
  const test::TempDir dir;
  const std::string path = dir / "octavo.lock";
  {
    const test::FailingCall write("write", EINTR, 1, 2);
    write_lock(path, {});
    EXPECT_EQ(write.calls(), 3);
  }
  EXPECT_EQ(test::read_text(path), lock_text({}));
  std::filesystem::remove(path);
  {
    const test::FailingCall directory("open", EACCES, 2);  // which is on disk sooner or later
    write_lock(path, {});
    EXPECT_EQ(directory.calls(), 2);
  }
  EXPECT_EQ(test::read_text(path), lock_text({}));
}

TEST(Lock, drift_names_what_changed) {
  const LockedPlugin a = plugin("te");
  EXPECT_EQ(lock_drift(a, a), "");
  LockedPlugin b = a;
  b.version = "1.3";
  b.sha256 = sha256_of("other");
  b.verdict = sha256_of("other");  // compared when the backend has answered
  EXPECT_EQ(lock_drift(a, b), "version: locked 1.2, found 1.3 and sha256: locked " + a.sha256 +
                                  ", found " + b.sha256);
}

TEST(Lock, verdict_digest_ignores_words) {
  const Verdict v{OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, 0, "text", "evidence", "remedy"};
  Verdict other = v;
  other.text = other.evidence = "";
  other.remedy = {};
  EXPECT_EQ(verdict_digest({v}), verdict_digest({other}));
  EXPECT_NE(verdict_digest({v}), verdict_digest({v, v}));
  other.decision = OCTAVO_ACCEPT_EMULATED;
  EXPECT_NE(verdict_digest({v}), verdict_digest({other}));
  other = v;
  other.level = OCTAVO_LEVEL_DEVICE;
  EXPECT_NE(verdict_digest({v}), verdict_digest({other}));
}

TEST(Lock, texts_and_versions_of_other_forms) {
  Lock lock;
  lock.plugins = {plugin("te")};
  lock.plugins[0].version = "1\t2";
  EXPECT_EQ(parse_lock(lock_text(lock), "octavo.lock").plugins[0].version, "1\t2");
  EXPECT_THAT(failure_of("lock_version = \"1\"\n"),
              HasSubstr("lock_version: expected 1, found -1"));
  EXPECT_THAT(failure_of(""), HasSubstr("lock_version: expected 1, found nothing"));
  EXPECT_THAT(failure_of("[a.b]\nname = \"x\"\n"), HasSubstr("unknown key \"a.b.name\""));
}

}  // namespace
}  // namespace octavo
