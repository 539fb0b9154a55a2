// Starts the child with posix_spawn; its outputs go to files, so that no pipe can fill up.
#include "tests/support/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

void check(bool ok, const char *what) {
  if (!ok) throw std::runtime_error(std::string("run_program: ") + what + " failed");
}

// A pseudo-terminal; what is written to `name` comes back from read_all.
class Terminal {
 public:
  Terminal() : fd_(posix_openpt(O_RDWR | O_NOCTTY)) {
    check(fd_ >= 0 && grantpt(fd_) == 0 && unlockpt(fd_) == 0, "opening a terminal");
    char name[128];
    check(ptsname_r(fd_, name, sizeof(name)) == 0, "naming the terminal");
    name_ = name;
    keep_ = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    check(keep_ >= 0, "opening the terminal's other side");
  }
  ~Terminal() {
    if (keep_ >= 0) close(keep_);
    close(fd_);
  }
  Terminal(const Terminal &) = delete;
  Terminal &operator=(const Terminal &) = delete;

  const std::string &name() const { return name_; }
  // Short outputs only: the child has ended, and the terminal's buffer holds what it wrote.
  std::string read_all() {
    std::string text;
    char buffer[4096];
    fcntl(fd_, F_SETFL, O_NONBLOCK);
    for (ssize_t n = 0; (n = read(fd_, buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  int fd_;
  int keep_ = -1;
  std::string name_;
};

}  // namespace

Finished run_program(const std::vector<std::string> &arguments, bool terminal) {
  const TempDir dir;
  const std::string out = dir / "out";
  std::string err = dir / "err";
  std::unique_ptr<Terminal> tty;
  if (terminal) {
    tty = std::make_unique<Terminal>();
    err = tty->name();
  }
  std::vector<char *> argv;
  for (const std::string &a : arguments) argv.push_back(const_cast<char *>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  check(posix_spawn_file_actions_init(&actions) == 0, "preparing");
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_NOCTTY, 0600);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check(error == 0, "starting the program");
  int status = 0;
  check(waitpid(child, &status, 0) == child, "waiting for the program");
  Finished f;
  f.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  f.out = read_text(out);
  f.err = terminal ? tty->read_all() : read_text(err);
  return f;
}

}  // namespace octavo::test
