// octavo-conformance: opens a backend through liboctavo and runs the checks on it.
//
// Each check runs in a process of its own that opens the backend itself: a crash is the failure of
// one check, and no check sees what another left behind in the plugin.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "arguments.h"
#include "conformance.h"
#include "octavo/octavo.h"
#include "report.h"

namespace octavo::conformance {
namespace {

enum ExitCode { kPassed = 0, kFailed = 1, kUnusable = 2, kSkipped = 3 };

// Refusals are part of the checks, so messages are kept and shown only with a failure.
struct Messages {
  std::mutex mutex;
  std::string all;
};
void keep_diagnostic(void *ctx, const octavo_diagnostic *d) {
  if (d->severity < OCTAVO_SEVERITY_WARNING) return;
  auto &messages = *static_cast<Messages *>(ctx);
  const std::lock_guard<std::mutex> lock(messages.mutex);
  messages.all += text("      ", text_of(d->domain), ": ", text_of(d->text), "\n");
}
const void *no_extension(void *, octavo_str) {
  return nullptr;
}

// An integer, a real number, true or false when the text is one, else text.
octavo_value value_of(const std::string &s) {
  octavo_value value{};
  const char *end = s.data() + s.size();
  if (s == "true" || s == "false") {
    value.type = OCTAVO_VALUE_BOOL;
    value.integer = s == "true" ? 1 : 0;
  } else if (const auto i = std::from_chars(s.data(), end, value.integer);
             i.ec == std::errc() && i.ptr == end) {
    value.type = OCTAVO_VALUE_INT;
  } else if (const auto r = std::from_chars(s.data(), end, value.real);
             r.ec == std::errc() && r.ptr == end) {
    value.integer = 0;
    value.type = OCTAVO_VALUE_REAL;
  } else {
    value = {};
    value.type = OCTAVO_VALUE_TEXT;
    value.text = str_of(s);
  }
  return value;
}

struct Close {
  void operator()(octavo_run *run) const { octavo_close(run); }
};
using Run = std::unique_ptr<octavo_run, Close>;

Run open_backend(const Arguments &arguments, Messages *messages) {
  static octavo_host host{};  // plugins may keep it until the process ends
  host.size = sizeof host;
  host.kind = OCTAVO_KIND_HOST;
  host.abi_major = OCTAVO_ABI_MAJOR;
  host.abi_minor = OCTAVO_ABI_MINOR;
  host.ctx = messages;
  host.diagnose = keep_diagnostic;
  host.get_extension = no_extension;
  const std::string fp8 = "fp8";
  std::vector<octavo_option_value> overrides;
  const auto add = [&](octavo_str key, octavo_value value) { overrides.push_back({key, value}); };
  octavo_value named{};
  named.type = OCTAVO_VALUE_TEXT;
  named.text = str_of(fp8);
  add(OCTAVO_STR("mixed_precision"), named);
  named.text = str_of(arguments.backend);
  add(OCTAVO_STR("fp8.backend"), named);
  for (const auto &[key, value] : arguments.options) add(str_of(key), value_of(value));
  std::vector<octavo_str> dirs;
  for (const std::string &dir : arguments.plugin_dirs) dirs.push_back(str_of(dir));
  octavo_open_desc desc{};
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_OPEN_DESC;
  desc.overrides = overrides.data();
  desc.override_count = overrides.size();
  desc.plugin_dirs = dirs.data();
  desc.plugin_dir_count = dirs.size();
  desc.device = {OCTAVO_DEVICE_AUTO, 0};  // as device.kind says
  desc.host = &host;
  octavo_run *run = nullptr;
  const octavo_status status = octavo_open(&desc, &run);
  if (status == OCTAVO_OK && octavo_session_desc_of(run) != nullptr) return Run(run);
  std::fprintf(stderr, "octavo-conformance: backend '%s' could not be opened: %s\n%s",
               arguments.backend.c_str(), status_name(status).c_str(), messages->all.c_str());
  return nullptr;
}

// Empty on the CPU, or where the checks ran: " (cuda:0, kernels cuda)".
std::string place_of(const octavo_session_desc &desc) {
  if (desc.device.type == OCTAVO_DEVICE_CPU) return {};
  return text(desc.device.type == OCTAVO_DEVICE_CUDA ? " (cuda:" : " (device ", desc.device.index,
              ", kernels ", std::string(desc.caps->id.data, desc.caps->id.size), ")");
}

// In a child process: opens the backend, runs the check, prints its line.
int run_here(const Check &check, const Arguments &arguments) {
  static Messages messages;
  const Run run = open_backend(arguments, &messages);
  if (run == nullptr) return kUnusable;
  Target target;
  target.backend = octavo_backend_of(run.get());
  target.optimizer = octavo_optimizer_of(run.get());
  target.gradients = octavo_gradients_of(run.get());
  target.fused = octavo_fused_of(run.get());
  OCTAVO_TAKE(target.desc, octavo_session_desc_of(run.get()));
  const Result result = run_check(check, target, arguments.seed);
  switch (result.outcome) {
    case Outcome::kPass:
      std::printf("pass  %s%s%s%s\n", check.name, place_of(target.desc).c_str(),
                  result.detail.empty() ? "" : ": ", result.detail.c_str());
      return kPassed;
    case Outcome::kSkip:
      std::printf("skip  %s: %s\n", check.name, result.detail.c_str());
      return kSkipped;
    default:
      std::printf("FAIL  %s: %s\n%s", check.name, result.detail.c_str(), messages.all.c_str());
      return kFailed;
  }
}

int run_apart(const Check &check, const Arguments &arguments) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::fprintf(stderr, "octavo-conformance: fork: %s\n", std::strerror(errno));
    return kUnusable;
  }
  if (child == 0) std::exit(run_here(check, arguments));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) <= kSkipped) return WEXITSTATUS(status);
  if (WIFSIGNALED(status)) {
    std::printf("FAIL  %s: the process ended with signal %d (%s)\n", check.name, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
  } else {
    std::printf("FAIL  %s: the process ended with exit code %d; see its messages above\n",
                check.name, WEXITSTATUS(status));
  }
  return kFailed;
}

int run_all(const Arguments &arguments) {
  int failed = 0;
  int skipped = 0;
  int passed = 0;
  for (const Check &check : checks()) {
    bool wanted = arguments.checks.empty();
    for (const std::string &name : arguments.checks) wanted = wanted || name == check.name;
    if (!wanted) continue;
    const int code = run_apart(check, arguments);
    if (code == kUnusable) return kUnusable;
    ++(code == kPassed ? passed : code == kSkipped ? skipped : failed);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed > 0 ? kFailed : skipped > 0 ? kSkipped : kPassed;
}

int run_program(int argc, char **argv) {
  std::string error;
  const auto arguments = parse(argc, argv, &error);
  if (!arguments) {
    std::fprintf(stderr, "octavo-conformance: %s\n\n%s", error.c_str(), kUsage);
    return kUnusable;
  }
  if (arguments->help) {
    std::fputs(kUsage, stdout);
    return kPassed;
  }
  if (arguments->list) {
    for (const Check &check : checks()) {
      std::printf("%-18s %s (section %s)\n", check.name, check.meaning, check.section);
    }
    return kPassed;
  }
  return run_all(*arguments);
}

}  // namespace
}  // namespace octavo::conformance

int main(int argc, char **argv) {
#ifdef __GLIBC__
  // Checks take copies of all memory again and again; pages that went back to the system between
  // two would have to be cleared for the next.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_MAX, 0);
#endif
  return octavo::conformance::run_program(argc, argv);
}
