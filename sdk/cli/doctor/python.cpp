// One question to a Python, in a process with a deadline. It imports octavo, and no framework.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "sdk/cli/doctor/doctor.h"
#include "sdk/src/base/descriptor.h"

extern char **environ;

namespace octavo::cli::doctor {
namespace {

constexpr int kDeadlineMs = 20000;
constexpr size_t kMostBytes = 64 << 10;

// The current directory is not searched for modules.
constexpr const char *kScript = R"(
import sys
sys.path = [p for p in sys.path if p]
import importlib.metadata, importlib.util, json, platform
found = {"python": platform.python_version()}
try:
    if importlib.util.find_spec("octavo") is None:
        found["problem"] = "it has no package octavo; install the wheel of octavo into it"
    else:
        import octavo
        found["package"] = list(octavo.__path__)[0]
        found["octavo"] = octavo.version()
        if importlib.util.find_spec("octavo.installation"):
            from octavo import installation
            found["problems"] = installation.problems()
except Exception as e:
    found["problem"] = f"octavo cannot be used: {e}"
try:
    found["torch"] = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    found["torch"] = None
print(json.dumps(found))
)";

// What it printed until it ended; *problem has the reason where that is no answer.
std::string output_of(const std::string &program, std::string *problem) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *problem = std::string("cannot be asked: ") + std::strerror(errno);
    return {};
  }
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string words[] = {program, "-c", kScript};
  char *arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    *problem = std::string("cannot be run: ") + std::strerror(error);
    return {};
  }
  to = Descriptor(-1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  std::string all;
  bool open = true;
  while (open && all.size() < kMostBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd one{from.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&one, 1, static_cast<int>(left.count())) <= 0) break;
    char part[4096];
    const ssize_t size = read(from.get(), part, sizeof part);
    open = size > 0;
    if (open) all.append(part, static_cast<size_t>(size));
  }
  if (open) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (open)
    *problem = "has not answered after 20 s";
  else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    *problem = "expected a Python of version 3.9 or newer, found a program that fails";
  return all;
}

}  // namespace

Json ask_python(const std::string &program) {
  Json found = {{"program", program}};
  std::string problem;
  const std::string text = output_of(program, &problem);
  const Json answer = Json::parse(text, nullptr, false);
  if (problem.empty() && !answer.is_object())
    problem = "expected an answer in JSON, found another text";
  if (answer.is_object()) found.update(answer);
  if (!problem.empty()) found["problem"] = problem;
  return found;
}

}  // namespace octavo::cli::doctor
