// The trial of plugins by octavo doctor, run as a program: what one process leaves for the next.
#include <sys/stat.h>

#include <filesystem>
#include <regex>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliProbe : public Cli {
 protected:
  CliProbe() { environment.set("XDG_CACHE_HOME", dir.make_directory("cache")); }

  // The page, on one line.
  std::string probe(std::vector<std::string> more = {}) {
    more.insert(more.begin(), "doctor");
    const Finished f = with_fake(std::move(more));
    EXPECT_EQ(f.exit_code, 0) << f.err;
    EXPECT_EQ(f.err, "");
    return std::regex_replace(f.out, std::regex("\\s+"), " ");
  }
  // The one entry of the cache.
  std::string entry() const {
    std::vector<std::string> files;
    for (const auto &e : std::filesystem::directory_iterator(dir / "cache/octavo/probe"))
      files.push_back(e.path());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files[0];
  }
  static mode_t mode_of(const std::string &path) {
    struct stat st {};
    EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
    return st.st_mode & 07777;
  }

  static constexpr const char *kProbed = "fake 1.2.3 accepted, probed in ";
  static constexpr const char *kRemembered = "fake 1.2.3 accepted, remembered ";
};

TEST_F(CliProbe, is_remembered_until_the_file_changes) {
  EXPECT_THAT(probe(), HasSubstr(kProbed));
  EXPECT_THAT(probe(), HasSubstr(kRemembered));
  EXPECT_EQ(mode_of(dir / "cache/octavo"), 0700u);
  EXPECT_EQ(mode_of(entry()), 0600u);
  put_fake(dir, "plugins");
  EXPECT_THAT(probe(), HasSubstr(kProbed));
  EXPECT_THAT(probe(), HasSubstr(kRemembered));
}

TEST_F(CliProbe, crash_is_remembered_until_retry) {
  put_fake(dir, "plugins", "load_crashes");
  EXPECT_THAT(probe(), HasSubstr("fake 1.2.3 refused, probed in "));
  const std::string again = probe();
  EXPECT_THAT(again, HasSubstr("fake 1.2.3 refused, remembered refusal "));
  EXPECT_THAT(again, HasSubstr("ended by signal 11 (SIGSEGV) "));
  EXPECT_THAT(again, HasSubstr("remedy: install a corrected build; octavo doctor --retry "));
  EXPECT_THAT(probe({"--retry"}), HasSubstr("fake 1.2.3 refused, probed in "));
}

TEST_F(CliProbe, damaged_entry_is_rewritten) {
  EXPECT_THAT(probe(), HasSubstr(kProbed));
  const std::string good = read_text(entry());
  for (const std::string &damaged :
       {std::string(), good.substr(0, good.size() / 2), good + "x",
        good.substr(0, good.size() - 1) + "x", std::string(good).replace(30, 1, "_")}) {
    dir.write("cache/octavo/probe/" + std::filesystem::path(entry()).filename().string(), damaged);
    EXPECT_THAT(probe(), HasSubstr(kProbed));
    EXPECT_EQ(read_text(entry()).substr(0, 20), "octavo-probe-cache 1");
    EXPECT_THAT(probe(), HasSubstr(kRemembered));
  }
}

TEST_F(CliProbe, directory_of_others_is_not_used) {
  dir.make_directory("cache/octavo", 0777);
  EXPECT_THAT(probe(), HasSubstr("cache not used: " + (dir / "cache/octavo") +
                                 " belongs to another user or can be written by others "));
  EXPECT_THAT(probe(), HasSubstr(kProbed));
}

TEST_F(CliProbe, json) {
  const std::string text = probe({"--json"});
  EXPECT_THAT(text, HasSubstr("\"accepted\": true"));
  EXPECT_THAT(text, HasSubstr("\"stage\": \"exit\""));
}

TEST_F(CliProbe, open_uses_what_was_remembered) {
  put_fake(dir, "plugins", "load_crashes");
  const Finished first = with_fake({"check", "--set", "fp8.backend=fake"});
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_THAT(first.out, HasSubstr("ended by signal 11 (SIGSEGV)"));
  EXPECT_THAT(probe(), HasSubstr("remembered refusal"));
}

}  // namespace
}  // namespace octavo::test
