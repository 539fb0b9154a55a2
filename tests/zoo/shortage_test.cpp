// What cannot be checked is not refused: the call ends, no fallback runs, nothing is remembered.
#include <sys/resource.h>

#include <optional>

#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ZooShortage : public Cage {
 protected:
  // The fake, and bf16 where it is refused.
  octavo_status open() {
    run.reset();
    wish_.emplace();
    wish_->text("[fp8]\nfallback = [\"bf16\"]")
        .set("fp8.backend", "fake")
        .set("plugins.trust", "dev")
        .set("plugins.probe_timeout_ms", timeout_ms)
        .plugins(dir / "plugins");
    return wish_->open(run);
  }
  std::string error() const { return wish_->host.error(); }
  // A helper of the test's own.
  void help_with(const std::string &script) {
    helper_.set("OCTAVO_PROBE_HELPER", dir.write("helper", script, 0755));
  }

  RunPtr run;
  int timeout_ms = 20000;

 private:
  std::optional<Request> wish_;
  Environment helper_;
};

// Each limit from none that are free to as many as a whole run needs.
TEST_F(ZooShortage, too_few_descriptors_never_fall_back) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers open files of their own while they report";
#endif
  put("good");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int short_of = 0;
  for (rlim_t limit = 3; limit < 64; ++limit) {
    const rlimit now{limit, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
    const octavo_status status = open();
    setrlimit(RLIMIT_NOFILE, &before);
    if (status == OCTAVO_OK) {
      EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "fake") << limit;
      break;
    }
    ASSERT_EQ(status, OCTAVO_NO_RESOURCE) << limit << ": " << error();
    EXPECT_THAT(error(), HasSubstr("Too many open files")) << limit;
    ++short_of;
  }
  EXPECT_GE(short_of, 2);
  EXPECT_EQ(open(), OCTAVO_OK) << error();
  EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "fake");
}

TEST_F(ZooShortage, helper_that_is_killed_before_the_plugin_is_opened) {
  put("good");
  help_with("#!/bin/sh\nkill -9 $$\n");
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_EQ(open(), OCTAVO_NO_RESOURCE);
    EXPECT_EQ(error(), library() +
                           ": cannot be tried first: the process that tries it ended by signal 9 "
                           "(SIGKILL), before it opened the plugin; no fallback was selected and "
                           "the result was not cached; look for the cause that ends processes here "
                           "(memory, a sandbox's filter), and try again");
  }
}

TEST_F(ZooShortage, helper_that_is_late_before_the_plugin_is_opened) {
  put("good");
  help_with("#!/bin/sh\nsleep 30\n");
  timeout_ms = 300;
  EXPECT_EQ(open(), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(error(), HasSubstr("the process that tries it did not end within 300 ms, before it "
                                 "opened the plugin; "));
  EXPECT_THAT(error(), EndsWith("give it more time: set plugins.probe_timeout_ms above 300, or try "
                                "again when the machine is less busy"));
}

TEST_F(ZooShortage, helper_that_is_missing) {
  put("good");
  Environment outer;
  outer.set("OCTAVO_PROBE_HELPER", dir / "none");
  EXPECT_EQ(open(), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(error(), StartsWith(library() +
                                  ": cannot be tried first, the program octavo-probe is missing; "
                                  "looked for " +
                                  (dir / "none") + " (OCTAVO_PROBE_HELPER)"));
  EXPECT_THAT(error(), EndsWith("reinstall Octavo, or set plugins.probe = \"never\" for plugins "
                                "that you trust"));
}

TEST_F(ZooShortage, helper_that_is_no_program) {
  put("good");
  help_with("no program\n");
  EXPECT_EQ(open(), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(error(), HasSubstr("cannot be started: Exec format error"));
}

// explain names the stage, and the reason has a page.
TEST_F(ZooShortage, explain_says_what_is_short) {
  put("good");
  help_with("#!/bin/sh\nkill -9 $$\n");
  Request wish;
  wish.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / "plugins");
  std::string out;
  EXPECT_EQ(wish.print(octavo_explain, "text", out), OCTAVO_NO_RESOURCE);
  EXPECT_THAT(out, HasSubstr("probe decline: " + library() + ": cannot be tried first: "));
  EXPECT_THAT(out, HasSubstr("reason: resource, see page reasons#resource"));
}

}  // namespace
}  // namespace octavo::test
