// fork and exec, with both streams in files: no pipe can fill up and block the child.
#include "tests/samples/child_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace gpt_test {
namespace {

constexpr unsigned kNobody = 65534;

void redirect(const std::string &path, int descriptor) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
}

}  // namespace

std::string test_directory() {
  const auto *info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path =
      std::string(TRAIN_GPT_TEST_DIRECTORY) + "/" + info->test_suite_name() + "." + info->name();
  static std::string last;
  if (last != path) {
    std::filesystem::remove_all(path);
    last = path;
  }
  std::filesystem::create_directories(path);
  return path;
}

std::string read_text(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

int64_t count_lines(const std::string &path) {
  const std::string text = read_text(path);
  return static_cast<int64_t>(std::count(text.begin(), text.end(), '\n'));
}

int64_t wait_for_lines(const std::string &path, int64_t lines) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (count_lines(path) < lines && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return count_lines(path);
}

void write_text(const std::string &path, const std::string &content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string some_text(size_t bytes) {
  const char *words[] = {"the ", "scale ", "of ",      "a ",       "tensor ",
                         "is ",  "its ",   "largest ", "value.\n", "and "};
  std::string text;
  uint64_t state = 7;
  while (text.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += words[(state >> 33) % 10];
  }
  text.resize(bytes);
  return text;
}

ChildProgram::ChildProgram(const std::vector<std::string> &arguments, bool as_nobody,
                           const std::vector<std::string> &launcher, const std::string &name) {
  output_path_ = test_directory() + "/" + name + "stdout";
  errors_path_ = test_directory() + "/" + name + "stderr";
  std::vector<std::string> words = launcher;
  words.push_back(TRAIN_GPT_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> pointers;
  for (std::string &word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  process_ = fork();
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) {
    redirect(output_path_, STDOUT_FILENO);
    redirect(errors_path_, STDERR_FILENO);
    if (as_nobody && geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(127);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
}

ChildProgram::~ChildProgram() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
}

void ChildProgram::send(int signal) {
  kill(process_, signal);
}

Finished ChildProgram::wait() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return {code, read_text(output_path_), read_text(errors_path_)};
}

Finished run(const std::vector<std::string> &arguments) {
  return ChildProgram(arguments).wait();
}

Finished run_without_root(const std::vector<std::string> &arguments) {
  return ChildProgram(arguments, true).wait();
}

}  // namespace gpt_test
