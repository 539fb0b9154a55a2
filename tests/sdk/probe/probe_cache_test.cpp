// Remembered probes: what makes an entry count, and that nothing else does.
#include "sdk/src/probe/probe_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "sdk/src/file/privilege_file.h"
#include "tests/support/environment.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

class ProbeCacheTest : public testing::Test {
 protected:
  ProbeCacheTest() {
    probe.timeout_ms = 77;
    probe.answer.stage = ProbeStage::kEntry;
    probe.answer.verdicts = {
        {OCTAVO_LEVEL_PLUGIN, OCTAVO_DECLINE, OCTAVO_REASON_PROBE, "t", "e", "r"}};
    probe.answer.warnings = {"w"};
    probe.answer.notes = {"n"};
  }
  std::string only_file() const {
    std::string found;
    for (const auto &e : std::filesystem::directory_iterator(dir / "c/probe")) {
      EXPECT_EQ(found, "");
      found = e.path();
    }
    return found;
  }
  test::Environment environment;
  test::TempDir dir;
  RememberedProbe probe;
};

TEST_F(ProbeCacheTest, keeps_everything) {
  const ProbeCache cache(dir / "c");
  ASSERT_EQ(cache.problem(), "");
  EXPECT_FALSE(cache.find("/x.so", "key"));
  ASSERT_TRUE(cache.store("/x.so", "key\nof lines\n", probe));
  EXPECT_FALSE(cache.find("/x.so", "key"));
  EXPECT_FALSE(cache.find("/y.so", "key\nof lines\n"));
  const auto found = cache.find("/x.so", "key\nof lines\n");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->timeout_ms, 77);
  EXPECT_EQ(found->answer.stage, ProbeStage::kEntry);
  ASSERT_EQ(found->answer.verdicts.size(), 1u);
  EXPECT_EQ(found->answer.verdicts[0].remedy.text, "r");
  EXPECT_EQ(found->answer.warnings, probe.answer.warnings);
  EXPECT_EQ(found->answer.notes, probe.answer.notes);
  ASSERT_TRUE(cache.store("/x.so", "key 2", probe));
  EXPECT_FALSE(cache.find("/x.so", "key\nof lines\n"));
  EXPECT_NE(only_file(), "");
}

TEST_F(ProbeCacheTest, a_survey_counts_what_is_stale_and_makes_nothing) {
  environment.set("XDG_CACHE_HOME", dir.path());
  EXPECT_EQ(survey_probe_cache().results, 0u);
  EXPECT_FALSE(std::filesystem::exists(dir / "octavo"));
  const std::string library = dir.write("x.so", "x");
  const ProbeCache cache(dir / "octavo");
  ASSERT_TRUE(cache.store(library, library + "\n" + file_identity(library) + "\nmore", probe));
  ProbeCacheSurvey survey = survey_probe_cache();
  EXPECT_EQ(survey.directory, dir / "octavo/probe");
  EXPECT_EQ(survey.problem, "");
  EXPECT_EQ(survey.results, 1u);
  EXPECT_EQ(survey.stale, 0u);
  dir.write("x.so", "another");
  EXPECT_EQ(survey_probe_cache().stale, 1u);
  dir.write("octavo/probe/torn", "octavo-probe-cache 1\n");
  survey = survey_probe_cache();
  EXPECT_EQ(survey.results, 2u);
  EXPECT_EQ(survey.stale, 2u);
  ASSERT_TRUE(cache.store("/one_line.so", library, probe));
  EXPECT_EQ(survey_probe_cache().stale, 3u);
}

TEST_F(ProbeCacheTest, a_survey_says_why_nothing_is_remembered) {
  environment.set("XDG_CACHE_HOME", dir.path());
  const ProbeCache cache(dir / "octavo");
  {
    const test::FailingCall closed("opendir", EACCES, 1, 1, 0);
    EXPECT_EQ(survey_probe_cache().problem,
              dir / "octavo/probe" + " cannot be read: Permission denied");
  }
  const std::string words = " belongs to another user or can be written by others";
  for (const char *folder : {"octavo/probe", "octavo"}) {
    ASSERT_EQ(chmod((dir / folder).c_str(), 0777), 0);
    const ProbeCacheSurvey survey = survey_probe_cache();
    EXPECT_EQ(survey.problem, (dir / folder) + words);
    EXPECT_EQ(survey.remedy.fix.command, "chmod go-w " + (dir / folder));
  }
  ASSERT_EQ(chmod((dir / "octavo").c_str(), 0700), 0);
  if (geteuid() == 0) {  // who alone can give a folder away
    ASSERT_EQ(chown((dir / "octavo").c_str(), 12345, 12345), 0);
    const ProbeCacheSurvey survey = survey_probe_cache();
    EXPECT_EQ(survey.problem, (dir / "octavo") + words);
    EXPECT_EQ(survey.remedy.text, "name a folder of this user in XDG_CACHE_HOME");
    ASSERT_EQ(chown((dir / "octavo").c_str(), 0, 0), 0);
  }
  environment.set("XDG_CACHE_HOME", dir.write("file", ""));
  EXPECT_EQ(survey_probe_cache().problem, (dir / "file/octavo") + " is not a directory");
  environment.unset("XDG_CACHE_HOME");
  EXPECT_EQ(survey_probe_cache().problem, "neither XDG_CACHE_HOME nor HOME names a directory");
}

TEST_F(ProbeCacheTest, every_damage_is_seen) {
  const ProbeCache cache(dir / "c");
  ASSERT_TRUE(cache.store("/x.so", "key", probe));
  const std::string file = "c/probe/" + std::filesystem::path(only_file()).filename().string();
  const std::string good = test::read_text(only_file());
  for (size_t size = 0; size < good.size(); ++size) {
    dir.write(file, good.substr(0, size));
    ASSERT_FALSE(cache.find("/x.so", "key")) << size;
  }
  for (size_t place = 0; place < good.size(); ++place) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 1);
    dir.write(file, bad);
    ASSERT_FALSE(cache.find("/x.so", "key")) << place;
  }
  dir.write(file, good);
  EXPECT_TRUE(cache.find("/x.so", "key"));
}

TEST_F(ProbeCacheTest, places) {
  environment.unset("XDG_CACHE_HOME");
  EXPECT_EQ(ProbeCache().problem(), "neither XDG_CACHE_HOME nor HOME names a directory");
  environment.set("HOME", "relative");
  EXPECT_EQ(ProbeCache().problem(), "neither XDG_CACHE_HOME nor HOME names a directory");
  environment.set("HOME", dir.make_directory("home"));
  EXPECT_EQ(ProbeCache().problem(), "");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "home/.cache/octavo/probe"));
  environment.set("XDG_CACHE_HOME", dir / "other");
  EXPECT_EQ(ProbeCache().problem(), "");
  struct stat st {};
  ASSERT_EQ(stat((dir / "other/octavo").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777u, 0700u);
}

TEST_F(ProbeCacheTest, directories_that_do_not_serve) {
  dir.make_directory("open", 0777);
  EXPECT_EQ(ProbeCache(dir / "open").problem(),
            (dir / "open") + " belongs to another user or can be written by others");
  dir.write("file", "");
  EXPECT_EQ(ProbeCache(dir / "file").problem(), (dir / "file") + " is not a directory");
  EXPECT_EQ(ProbeCache("/proc/nothing").problem().substr(0, 35),
            "/proc/nothing cannot be created: No");
  EXPECT_FALSE(ProbeCache(dir / "file").store("/x.so", "key", probe));
  std::filesystem::create_symlink(dir / "open", dir / "link");
  EXPECT_EQ(ProbeCache(dir / "link").problem(), (dir / "link") + " is not a directory");
}

TEST_F(ProbeCacheTest, privileged_process_has_none) {
  environment.set("XDG_CACHE_HOME", dir.make_directory("mine"));
  const test::FailingCall secure("getauxval", 0, 1, 1, 1);
  EXPECT_EQ(ProbeCache().problem(), "the process runs with raised privileges");
  EXPECT_FALSE(std::filesystem::exists(dir / "mine/octavo"));
}

TEST_F(ProbeCacheTest, relative_or_empty_variable_counts_as_none) {
  environment.set("HOME", dir.make_directory("home"));
  for (const char *value : {"", "relative"}) {
    environment.set("XDG_CACHE_HOME", value);
    EXPECT_EQ(ProbeCache().problem(), "") << value;
  }
  EXPECT_TRUE(std::filesystem::is_directory(dir / "home/.cache/octavo/probe"));
}

TEST_F(ProbeCacheTest, directory_of_another_user) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  dir.make_directory("theirs", 0700);
  ASSERT_EQ(chown((dir / "theirs").c_str(), 12345, 12345), 0);
  EXPECT_EQ(ProbeCache(dir / "theirs").problem(),
            (dir / "theirs") + " belongs to another user or can be written by others");
}

TEST_F(ProbeCacheTest, calls_that_fail) {
  const ProbeCache cache(dir / "c");
  {
    const test::FailingCall lstat("lstat", EIO);
    EXPECT_EQ(ProbeCache(dir / "c").problem(), (dir / "c") + " is not a directory");
  }
  for (const auto &[function, first] :
       {std::pair("open", 1), {"write", 1}, {"close", 1}, {"rename", 1}}) {
    ASSERT_TRUE(cache.store("/x.so", "key", probe));
    {
      const test::FailingCall call(function, ENOSPC, first);
      EXPECT_FALSE(cache.store("/x.so", "key 2", probe)) << function;
    }
    // The old entry would be wrong, so it goes; no other file is left.
    EXPECT_TRUE(std::filesystem::is_empty(dir / "c/probe")) << function;
  }
  {
    const test::FailingCall write("write", EINTR, 1, 2);
    EXPECT_TRUE(cache.store("/x.so", "key", probe));
  }
  {
    const test::FailingCall write("write", 0, 1, 1, 0);
    EXPECT_FALSE(cache.store("/x.so", "key", probe));
  }
  ASSERT_TRUE(cache.store("/x.so", "key", probe));
  const test::FailingCall pread("pread", EIO);
  EXPECT_FALSE(cache.find("/x.so", "key"));
}

// Its own hash holds, so whoever wrote it could write anything: it is read with care all the same.
TEST_F(ProbeCacheTest, entry_whose_hash_holds_and_whose_content_lies) {
  const ProbeCache cache(dir / "c");
  ASSERT_TRUE(cache.store("/x.so", "key", probe));
  const std::string file = "c/probe/" + std::filesystem::path(only_file()).filename().string();
  const auto found = [&](const std::string &body) {
    dir.write(file, "octavo-probe-cache 1\n" + sha256_of(body) + body);
    return cache.find("/x.so", "key").has_value();
  };
  const std::string records = hello_record() + end_record();
  EXPECT_TRUE(found("\n77 3\nkey" + records));
  for (const std::string &body :
       {std::string(), "x77 3\nkey" + records, "\n77\nkey" + records, std::string("\n77 3"),
        "\n77 9999\nkey" + records, "\n77 3\nkex" + records, std::string("\n77 3\nkey"),
        "\n77 3\nkey" + hello_record(), std::string("\n77 3\nkeyrubbish")})
    EXPECT_FALSE(found(body)) << body;
  dir.write(file, std::string(2 * kMaxProbeBytes + 1, 'x'));
  EXPECT_FALSE(cache.find("/x.so", "key"));
  dir.write(file, std::string(200, 'x'));
  EXPECT_FALSE(cache.find("/x.so", "key"));
}

TEST_F(ProbeCacheTest, before_the_first_stage) {
  const ProbeCache cache(dir / "c");
  probe.answer.stage = ProbeStage::kNone;
  ASSERT_TRUE(cache.store("/x.so", "key", probe));
  EXPECT_EQ(cache.find("/x.so", "key")->answer.stage, ProbeStage::kNone);
}

TEST_F(ProbeCacheTest, entry_that_cannot_be_replaced_goes) {
  const ProbeCache cache(dir / "c");
  ASSERT_TRUE(cache.store("/x.so", "key", probe));
  if (geteuid() == 0) GTEST_SKIP() << "root writes into directories of every mode";
  ASSERT_EQ(chmod((dir / "c/probe").c_str(), 0500), 0);
  EXPECT_FALSE(cache.store("/x.so", "key 2", probe));
  chmod((dir / "c/probe").c_str(), 0700);
}

}  // namespace
}  // namespace octavo
