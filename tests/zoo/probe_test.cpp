// Plugins that would end, hang or bend the process that loads them: refused after the helper has
// met them, at the stage where they did it.
#include <dlfcn.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char *kRemedy =
    "install a corrected build; octavo doctor --retry tries the same file again";

struct Case {
  const char *fault;
  const char *stage;
  const char *end;  // what the helper did
  int timeout_ms = 20000;
  const char *call = "";  // of the self-test
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.fault;
}

class ZooProbe : public Cage {
 protected:
  // The refusal of a plugin that did not survive the helper.
  void expect_fault(const std::string &stage, const std::string &end,
                    const std::string &call = "") {
    expect_refusal(library() + ": the process that tries the plugin first " + end,
                   "stage " + stage + ", " + library() + call, kRemedy);
  }
  std::string probe() {
    std::string out;
    EXPECT_EQ(request().print(octavo_probe, "text", out), OCTAVO_OK);
    return out;
  }
};

class ZooProbeFault : public ZooProbe, public testing::WithParamInterface<Case> {};

TEST_P(ZooProbeFault, is_refused_at_its_stage) {
  put(GetParam().fault);
  request().set("plugins.probe_timeout_ms", GetParam().timeout_ms);
  expect_fault(GetParam().stage, GetParam().end, GetParam().call);
}

constexpr const char *kIncomplete = " before its answer was complete";
const std::string kExit0 = std::string("ended with exit code 0") + kIncomplete;
const std::string kExit4 = std::string("ended with exit code 4") + kIncomplete;
const std::string kExit7 = std::string("ended with exit code 7") + kIncomplete;

INSTANTIATE_TEST_SUITE_P(
    All, ZooProbeFault,
    testing::Values(
        Case{"load_crashes", "dlopen", "ended by signal 11 (SIGSEGV)"},
        Case{"load_aborts", "dlopen", "ended by signal 6 (SIGABRT)"},
        Case{"load_exits", "dlopen", kExit0.c_str()},
        Case{"load_exits_at_once", "dlopen", kExit7.c_str()},
        Case{"load_hangs", "dlopen", "did not end within 1500 ms", 1500},
        Case{"load_stops", "dlopen", "did not end within 1500 ms", 1500},
        Case{"load_closes", "dlopen", kExit4.c_str()},
        Case{"query_crashes", "entry", "ended by signal 7 (SIGBUS)"},
        Case{"query_hangs", "entry", "did not end within 1500 ms", 1500},
        Case{"interface_crashes", "negotiate", "ended by signal 8 (SIGFPE)"},
        Case{"options_crash", "describe", "ended by signal 4 (SIGILL)"},
        Case{"forward_crashes", "self-test", "ended by signal 11 (SIGSEGV)", 20000,
             ", in linear_forward with M = 16, a float32 weight [16, 16], for which the "
             "plan states 0 bytes of workspace"},
        Case{"exit_crashes", "exit", "ended by signal 11 (SIGSEGV)", 20000, ", in close_session"}),
    [](const testing::TestParamInfo<Case> &i) { return std::string(i.param.fault); });

TEST_F(ZooProbe, endless_allocation_meets_the_limit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of addresses, so the helper limits none";
#endif
  put("load_allocates");
  request().set("plugins.probe_timeout_ms", 20000);
  expect_fault("dlopen", "ended by signal 6 (SIGABRT)");
}

TEST_F(ZooProbe, foreign_bytes_are_no_answer) {
  put("load_writes");
  RunPtr run;
  EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(
      request().host.error(),
      HasSubstr("first sent a malformed answer: expected a record of 4 to 65536 bytes, found "
                "one of "));
}

// Which processes, besides this one, have the file mapped.
std::vector<std::string> processes_with(const std::string &file) {
  std::vector<std::string> found;
  for (const auto &entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    if (id == std::to_string(getpid())) continue;
    if (read_of_process(entry.path() / "maps").find(file) != std::string::npos) found.push_back(id);
  }
  return found;
}

TEST_F(ZooProbe, no_process_of_the_plugin_stays) {
  put("load_forks");
  expect_fault("dlopen", "ended by signal 11 (SIGSEGV)");
  // A killed process takes a moment to end.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!processes_with(library()).empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(processes_with(library()), testing::IsEmpty());
}

struct Lie {
  const char *fault;
  const char *text;
  const char *call;  // and what the helper wrote last
};

class ZooProbeLie : public ZooProbe, public testing::WithParamInterface<Lie> {};

TEST_P(ZooProbeLie, is_found_by_the_self_test) {
  put(GetParam().fault);
  expect_refusal(library() + ": its self-test " + GetParam().text,
                 "stage self-test, " + library() + ", in " + GetParam().call, kRemedy);
}

constexpr const char *kForward =
    "linear_forward with M = 16, a float32 weight [16, 16], for which the plan states 0 bytes of "
    "workspace";

INSTANTIATE_TEST_SUITE_P(
    All, ZooProbeLie,
    testing::Values(
        Lie{"forward_not_finite", "gave an output that is not finite for finite inputs", kForward},
        Lie{"forward_varies", "gave two outputs for the same inputs", kForward},
        Lie{"forward_does_nothing",
            "gave an output that is 100.00 % of the product's norm away from it, expected at most "
            "50 %",
            kForward},
        Lie{"forward_overruns", "wrote beyond the workspace or the output that it was given",
            kForward},
        Lie{"open_fails",
            "ended early: backend fake accepted the session and then failed to open it: status 6",
            "open_session with default options on the CPU"},
        Lie{"plan_negative", "ended early: describing a layer gave status 7",
            "add_parameter, add_linear and seal of a float32 weight [16, 16]; its last lines: "
            "octavo.run: backend fake: linear_plan of linear 0: expected at most 140737488355328 "
            "bytes "
            "for 1 rows in saved, found 18446744073709551600 bytes a row and 0 more"},
        Lie{"plan_memory", "ended early: the stated sizes are more memory than the helper may use",
            "add_parameter, add_linear and seal of a float32 weight [16, 16]"},
        Lie{"forward_fails", "ended early: linear_forward gave status 1",
            "linear_forward with M = 16, a float32 weight [16, 16], for which the plan states 0 "
            "bytes "
            "of workspace; its last lines: fake: expected 17 rows | one line | and another"}),
    [](const testing::TestParamInfo<Lie> &i) { return std::string(i.param.fault); });

// What is not tried is said wherever somebody looks, and remembered.
TEST_F(ZooProbe, what_was_left_out_is_a_warning_everywhere) {
  put("parameter_declines");
  const std::string words =
      "its self-test was left out: the plugin leaves a 16 x 16 layer with the host";
  for (int i = 0; i < 2; ++i) {
    std::string text, json, report;
    EXPECT_EQ(request().print(octavo_explain, "text", text), OCTAVO_OK);
    EXPECT_THAT(text, HasSubstr("\nwarning    " + words + "\n"));
    EXPECT_THAT(text, HasSubstr("\n    warning: " + words + "\n"));
    EXPECT_EQ(request().print(octavo_explain, "json", json), OCTAVO_OK);
    EXPECT_THAT(json, HasSubstr("\"warnings\": ["));
    RunPtr run;
    ASSERT_EQ(request().open(run), OCTAVO_OK) << request().host.error();
    EXPECT_EQ(octavo_report(run.get(), borrow("text"), Request::append_line, &report), OCTAVO_OK);
    EXPECT_THAT(report, HasSubstr("\nwarning    " + words + "\n"));
    EXPECT_THAT(request().host.texts(OCTAVO_SEVERITY_WARNING),
                testing::Contains(library() + ": " + words));
  }
}

TEST_F(ZooProbe, nothing_was_tried) {
  put("good");
  request().set("plugins.probe", "never");
  std::string text;
  EXPECT_EQ(request().print(octavo_explain, "text", text), OCTAVO_OK);
  EXPECT_THAT(text, HasSubstr("\nwarning    no helper tried the plugin first: plugins.probe = "
                              "\"never\" (override)\n"));
  EXPECT_THAT(request().host.texts(OCTAVO_SEVERITY_WARNING), testing::IsEmpty());
}

// However soon the copy of the process ends.
TEST_F(ZooProbe, fork_is_found_every_time) {
  for (int i = 0; i < 5; ++i) {
    put("open_forks");
    request().set("plugins.probe", "always");
    expect_refusal(library() + ": the plugin forks the process that loads it",
                   "stage self-test, " + library() + ", in close_session", kRemedy);
  }
}

// Refusals that need no helper's trust in itself: a plain answer is the plugin's own, or the
// loader's, word for word.
TEST_F(ZooProbe, plain_refusals_pass_through) {
  put("other_id");
  expect_refusal(library() + ": expected the id \"fake\" of its manifest, found \"imposter\"",
                 library(), "reinstall the plugin: library and manifest do not belong together");
}

TEST_F(ZooProbe, changes_of_the_process_are_warnings) {
  put("load_bends");
  const std::string text = probe();
  EXPECT_THAT(text, HasSubstr("  fake          accepted, probed in "));
#if defined(__x86_64__)
  EXPECT_THAT(text, HasSubstr("the plugin changes how floating-point numbers are rounded or "
                              "flushed: control word 0x"));
#endif
  EXPECT_THAT(text, HasSubstr("the plugin changes the locale from \"C\" to \"C.UTF-8\"\n"));
  EXPECT_THAT(text, HasSubstr("the plugin changes the mode of new files (umask)\n"));
  EXPECT_THAT(text, HasSubstr("the plugin changes the current directory to /\n"));
  EXPECT_THAT(text, HasSubstr("the plugin changes the handler of signal 10\n"));
  EXPECT_THAT(text, HasSubstr("the plugin replaces descriptor 0, which is not its own\n"));
  EXPECT_THAT(text, HasSubstr("the plugin leaves a descriptor open: /dev/null\n"));
}

// Two runtimes in one process are the plugin's affair, and worth a word.
TEST_F(ZooProbe, second_runtime_is_a_warning) {
  put("load_second");
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void *>(&std::terminate), &info), 0);
  const std::string own = std::filesystem::canonical(info.dli_fname);
  const std::string name = std::filesystem::path(info.dli_fname).filename();
  if (name.find("libstdc++") != 0) GTEST_SKIP() << "the C++ library is part of " << own;
  Environment outer;
  const std::string copy = dir.copy(own, "second/" + name);
  outer.set("FAKE_SECOND", copy);
  EXPECT_THAT(probe(), HasSubstr("the plugin brings a second libstdc++: "));
  EXPECT_THAT(probe(), Not(HasSubstr("loader     several ")));
  // And those that the host has brought itself, which no plugin's trial sees. It stays open: the
  // memory that it keeps for exceptions would count as leaked without it.
  ASSERT_NE(dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const std::string text = probe();
  EXPECT_THAT(text, testing::ContainsRegex("\nloader     several libstdc\\+\\+: [^\n]*, "));
  EXPECT_THAT(text, HasSubstr(copy));
}

// What the loader was told for this process: shown, since it is code that no plugin brought.
TEST_F(ZooProbe, variables_of_the_loader_are_shown) {
  for (const std::string name : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"}) {
    Environment outer;
    for (const char *other : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"}) outer.unset(other);
    EXPECT_THAT(probe(), Not(HasSubstr("\nloader ")));
    outer.set(name, "/nowhere");
    EXPECT_THAT(probe(), HasSubstr("\nloader     " + name + " = /nowhere\n"));
    outer.set(name, "");
    EXPECT_THAT(probe(), Not(HasSubstr(name)));
  }
}

TEST_F(ZooProbe, a_refusal_is_remembered_in_this_process) {
  put("load_crashes");
  EXPECT_THAT(probe(), HasSubstr("fake          refused, probed in "));
  EXPECT_THAT(probe(), HasSubstr("fake          refused, remembered refusal\n"));
  put("good");  // another file
  EXPECT_THAT(probe(), HasSubstr("fake          accepted, probed in "));
  EXPECT_THAT(probe(), HasSubstr("fake          accepted, remembered\n"));
}

TEST_F(ZooProbe, more_time_voids_what_came_too_late) {
  put("load_hangs");
  request().set("plugins.probe_timeout_ms", 300);
  EXPECT_THAT(probe(), HasSubstr("did not end within 300 ms"));
  EXPECT_THAT(probe(), HasSubstr("remembered refusal"));
  request().set("plugins.probe_timeout_ms", 400);
  EXPECT_THAT(probe(), HasSubstr("did not end within 400 ms"));
}

TEST_F(ZooProbe, never_means_without_helper) {
  put("good");
  request().set("plugins.probe", "never");
  EXPECT_THAT(probe(), HasSubstr("fake          accepted, plugins.probe = \"never\"\n"));
}

TEST_F(ZooProbe, own_plugins_are_part_of_the_installation) {
  EXPECT_THAT(probe(), HasSubstr("te            accepted, part of this installation\n"));
  request().set("plugins.probe", "always");
  EXPECT_THAT(probe(), HasSubstr("te            accepted, probed in "));
}

TEST_F(ZooProbe, says_that_nothing_is_kept_between_processes) {
  put("good");
  EXPECT_THAT(probe(), HasSubstr("nothing is remembered between processes: neither XDG_CACHE_HOME "
                                 "nor HOME names a directory\n"));
}

}  // namespace
}  // namespace octavo::test
