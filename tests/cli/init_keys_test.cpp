// octavo init in a terminal: arrow keys choose, and what they choose arrives at the backend.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/cli.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char *kUp = "\x1b[A", *kDown = "\x1b[B", *kEnter = "\r";

// The program in a terminal of its own.
class Typed {
 public:
  explicit Typed(const std::vector<std::string> &arguments, const char *kind = "xterm") {
    const winsize size{40, 60, 0, 0};
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    setenv("TERM", kind, 1);
    std::vector<char *> argv;
    for (const std::string &a : arguments) argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Typed() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(terminal_);
  }
  Typed(const Typed &) = delete;
  Typed &operator=(const Typed &) = delete;

  // Everything that was shown since the last answer, once it has these words, which come last in a
  // list; all of it when the program ends.
  std::string shown(const std::string &words) {
    while (words.empty() || text_.find(words) == std::string::npos) {
      pollfd output{terminal_, POLLIN, 0};
      char part[4096];
      const ssize_t got = poll(&output, 1, 20'000) == 1 ? read(terminal_, part, sizeof part) : -1;
      if (got <= 0) break;  // EIO: nobody writes any more
      text_.append(part, static_cast<size_t>(got));
    }
    return text_;
  }
  void answer(const std::string &question, const std::string &keys) {
    ASSERT_THAT(shown(question), HasSubstr(question));
    text_.clear();
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  int status() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  bool echoes() const {
    termios now{};
    tcgetattr(terminal_, &now);
    return (now.c_lflag & ECHO) != 0 && (now.c_lflag & ICANON) != 0;
  }

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string text_;
};

class CliInitKeys : public Cli {
 protected:
  std::vector<std::string> command() const { return {OCTAVO_CLI, "init", "--output", out}; }
  json explained() {
    const Finished f = octavo({"check", "--json", out});
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return json::parse(f.out, nullptr, false);
  }
  const std::string out = dir / "octavo.toml";
};

TEST_F(CliInitKeys, choices_arrive_at_te) {
  Typed init(command());
  init.answer("cuda", std::string(kDown) + kEnter);
  init.answer("reference", kEnter);  // te
  init.answer("rowwise", std::string(kDown) + kDown + kUp + kEnter);
  init.answer("E5M2", "2\r");  // HYBRID
  init.answer("[no]: ", "yes\n");
  init.answer("[*head*]: ", "none\n");
  const std::string end = init.shown("");
  ASSERT_EQ(init.status(), 0) << end;
  const json report = explained();
  EXPECT_EQ(report["backend"]["id"], "te");
  EXPECT_EQ(report["options"]["recipe"]["value"], "current");
  EXPECT_EQ(report["options"]["fp8_format"]["value"], "HYBRID");
  EXPECT_EQ(report["options"]["use_autocast_during_eval"]["value"], true);
  EXPECT_THAT(end, HasSubstr("\nskip = []\r\n"));
}

TEST_F(CliInitKeys, the_terminal_is_as_before_after_each_way_out) {
  for (const char *keys : {"q", "\x1b", "\x04"}) {
    Typed init(command());
    init.answer("cuda", keys);
    EXPECT_THAT(init.shown("standard input"), HasSubstr("--device answers it"));
    EXPECT_TRUE(init.echoes());
    EXPECT_EQ(WEXITSTATUS(init.status()), 2);
  }
  Typed init(command());
  init.answer("cuda", "\x03");
  init.shown("");
  const int status = init.status();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_FALSE(std::filesystem::exists(out));
}

// What belongs to a report is wrapped at the width of the terminal, and what can be pasted is not.
TEST_F(CliInitKeys, reports_are_as_wide_as_the_terminal) {
  dir.make_directory("apart");  // from the plugins of the test
  const std::string file = dir.write("apart/a.toml", "[fp8]\nbackend = \"absent\"\n");
  Typed check({OCTAVO_CLI, "check", "--color", "never", file});
  std::istringstream lines(check.shown(""));
  size_t wrapped = 0;
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of("\r") + 1);
    const size_t word = line.find_first_not_of(' ');
    const bool is_one_word = word != std::string::npos && line.find(' ', word) == std::string::npos;
    EXPECT_TRUE(line.size() <= 60 || is_one_word || line.find("apply: ") != line.npos) << line;
    wrapped += line.starts_with("        ") ? 1 : 0;
  }
  EXPECT_GT(wrapped, 2U);
}

TEST_F(CliInitKeys, a_terminal_without_escape_sequences_is_asked_line_by_line) {
  Typed init(command(), "dumb");
  init.answer("[auto]: ", "cpu\n");
  const std::string next = init.shown("[te]: ");
  EXPECT_THAT(next, HasSubstr("Which backend?"));
  EXPECT_THAT(next, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace octavo::test
