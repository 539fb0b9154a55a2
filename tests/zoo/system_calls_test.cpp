// Whatever call of the system fails, and whatever its error: a good plugin runs, or the program
// ends with an error. Only the errors that say something about a path may choose the fallback.
//
// The program and its helper are traced, so every call counts: those of the C library, of the
// system's loader and of the plugin, too. 250 pairs of a call and an error for each backend by
// default; OCTAVO_SYSTEM_CALLS has another number, and "every" means each call with each error.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

// EHWPOISON is the last one; 41 and 58 are no errors.
constexpr int kLastError = 133;
const std::set<int> kVerdicts = {ENOENT, EACCES, ELOOP, ENOTDIR, ENAMETOOLONG};

// One call: of which process, in the order of their starts, and its number there.
struct Place {
  size_t process;
  size_t call;
};

struct Outcome {
  bool is_traced = false;
  int exit_code = -1;  // minus the signal's number when one ended the program
  std::string out;
  std::vector<std::vector<long>> calls;  // the kernel's numbers, by process
};

#if defined(__x86_64__)
long number_of(const user_regs_struct &r) {
  return static_cast<long>(r.orig_rax);
}
void leave_out(user_regs_struct &r) {
  r.orig_rax = static_cast<unsigned long long>(-1);
}
void answer(user_regs_struct &r, int error) {
  r.rax = static_cast<unsigned long long>(-static_cast<long long>(error));
}
#endif

// What cannot fail: the ends of a process and of a signal's handler, its numbers and its umask. brk
// answers with the old end, and glibc ends a process whose futex does not answer as Linux does.
bool can_fail(long call) {
  for (const long never :
       {SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_brk, SYS_futex, SYS_getpid, SYS_gettid,
        SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_umask})
    if (call == never) return false;
  return true;
}

class Traced {
 public:
  // `error` 0: nothing fails.
  Outcome run(const std::vector<std::string> &arguments, const std::string &to, Place place,
              int error) {
    place_ = place;
    error_ = error;
    std::vector<char *> argv;
    for (const std::string &a : arguments) argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    const pid_t program = fork();
    if (program == 0) {
      const int out = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(125);
      execv(argv[0], argv.data());
      _exit(127);
    }
    int status = 0;
    if (waitpid(program, &status, 0) != program || !WIFSTOPPED(status)) return outcome_;
    ptrace(PTRACE_SETOPTIONS, program, nullptr,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
               PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
    outcome_.is_traced = true;
    add(program);
    ptrace(PTRACE_SYSCALL, program, nullptr, nullptr);
    while (!processes_.empty()) {
      const pid_t pid = waitpid(-1, &status, __WALL);
      if (pid < 0) break;
      if (WIFSTOPPED(status)) {
        go_on(pid, status);
        continue;
      }
      processes_.erase(pid);
      if (pid == program)
        outcome_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    outcome_.out = read_text(to);
    return outcome_;
  }

 private:
  struct Process {
    size_t number;
    bool is_inside = false;  // of a call
    bool fails = false;      // that call
    bool has_started = false;
  };

  void add(pid_t pid) {
    processes_[pid] = {outcome_.calls.size()};
    outcome_.calls.emplace_back();
  }

  void go_on(pid_t pid, int status) {
    if (processes_.count(pid) == 0) add(pid);
    Process &p = processes_[pid];
    long signal = 0;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      at_call(pid, p);
    } else if (status >> 16 == 0) {
      // The first stop of a new process is the tracer's.
      if (p.number == 0 || p.has_started || WSTOPSIG(status) != SIGSTOP) signal = WSTOPSIG(status);
      p.has_started = true;
    }
    ptrace(PTRACE_SYSCALL, pid, nullptr, signal);
  }

  void at_call(pid_t pid, Process &p) {
#if defined(__x86_64__)
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, pid, nullptr, &registers) != 0) return;
    p.is_inside = !p.is_inside;
    std::vector<long> &calls = outcome_.calls[p.number];
    if (p.is_inside) {
      calls.push_back(number_of(registers));
      p.fails = error_ != 0 && p.number == place_.process && calls.size() - 1 == place_.call &&
                can_fail(calls.back());
      if (!p.fails) return;
      leave_out(registers);
    } else {
      if (!p.fails) return;
      p.fails = false;
      answer(registers, error_);
    }
    ptrace(PTRACE_SETREGS, pid, nullptr, &registers);
#else
    (void)pid;
    (void)p;
#endif
  }

  Place place_{};
  int error_ = 0;
  std::map<pid_t, Process> processes_;
  Outcome outcome_;
};

// By backend: a plugin of the tests, and those that liboctavo finds next to itself.
class SystemCalls : public testing::TestWithParam<const char *> {
 protected:
  SystemCalls() {
    put_fake(dir, "plugins");
    dir.write("octavo.toml", std::string("mixed_precision = \"fp8\"\n[fp8]\nbackend = \"") +
                                 GetParam() +
                                 "\"\nfallback = [\"bf16\"]\n"
                                 "[plugins]\nprobe = \"always\"\nprobe_timeout_ms = 60000\n");
  }

  Outcome explain(Place place, int error) {
    return Traced().run({OCTAVO_CLI, "check", dir / "octavo.toml", "--plugin-dir", dir / "plugins"},
                        dir / "out", place, error);
  }
  static bool ran(const Outcome &o) {
    return o.out.find("\nruns       fp8\n") != std::string::npos;
  }

  // Empty: as it must be.
  static std::string fault_of(const Outcome &o, int error) {
    if (o.exit_code < 0) return "ended by a signal";
    if (o.exit_code == 0 && !ran(o) && kVerdicts.count(error) == 0)
      return "exit code 0 without the plugin";
    return {};
  }

  const Environment environment;
  const TempDir dir;
};

TEST_P(SystemCalls, that_fail_never_choose_the_fallback) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs the registers of x86-64";
#endif
  const Outcome whole = explain({0, 0}, 0);
  if (!whole.is_traced) GTEST_SKIP() << "needs ptrace, which this machine does not permit";
  ASSERT_EQ(whole.exit_code, 0) << whole.out;
  ASSERT_TRUE(ran(whole)) << whole.out;
  ASSERT_EQ(whole.calls.size(), 2u) << "the program and its helper";

  std::vector<std::pair<Place, int>> cases;
  // Before its first file is open, the system's loader can only crash.
  const std::vector<long> &loader = whole.calls[0];
  const auto first = std::find(loader.begin(), loader.end(), SYS_openat) - loader.begin();
  for (size_t p = 0; p < whole.calls.size(); ++p)
    for (size_t c = p == 0 ? static_cast<size_t>(first) : 0; c < whole.calls[p].size(); ++c)
      for (int error = 1; error <= kLastError; ++error)
        if (error != 41 && error != 58 && can_fail(whole.calls[p][c]))
          cases.push_back({{p, c}, error});
  const char *wanted = std::getenv("OCTAVO_SYSTEM_CALLS");
  const std::string count = wanted == nullptr ? "250" : wanted;
  if (count != "every") {
    std::mt19937_64 random(seed_or(48));
    std::shuffle(cases.begin(), cases.end(), random);
    cases.resize(std::min<size_t>(cases.size(), std::strtoul(count.c_str(), nullptr, 10)));
  }
  std::map<int, int> codes;
  for (const auto &[place, error] : cases) {
    const Outcome o = explain(place, error);
    ++codes[o.exit_code];
    const std::string fault = fault_of(o, error);
    if (!fault.empty())
      ADD_FAILURE() << "process " << place.process << ", call " << place.call << " (number "
                    << whole.calls[place.process][place.call] << "), " << std::strerror(error)
                    << ": " << fault << ", exit code " << o.exit_code << "\n"
                    << o.out;
  }
  std::string ends;
  for (const auto &[code, times] : codes)
    ends += " " + std::to_string(code) + ": " + std::to_string(times);
  std::printf("%zu cases, exit codes and how often:%s\n", cases.size(), ends.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, SystemCalls, testing::Values("fake", "te", "msamp"));

}  // namespace
}  // namespace octavo::test
