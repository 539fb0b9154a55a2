// Runs train_gpt as a child process and collects what it prints.
#ifndef TESTS_SAMPLES_CHILD_PROGRAM_H
#define TESTS_SAMPLES_CHILD_PROGRAM_H

#include <cstdint>
#include <string>
#include <vector>

namespace gpt_test {

struct Finished {
  int exit_code;  // minus the signal's number when one ended the program
  std::string output;
  std::string errors;
};

class ChildProgram {
 public:
  // As the user who runs the tests, or without the powers of root.
  // launcher: a program with arguments that starts it, such as mpirun. name: of the files of its
  // outputs, where a test has several programs.
  explicit ChildProgram(const std::vector<std::string> &arguments, bool as_nobody = false,
                        const std::vector<std::string> &launcher = {},
                        const std::string &name = "");
  ~ChildProgram();
  ChildProgram(const ChildProgram &) = delete;
  ChildProgram &operator=(const ChildProgram &) = delete;

  void send(int signal);
  Finished wait();

 private:
  int process_ = -1;
  std::string output_path_;
  std::string errors_path_;
};

Finished run(const std::vector<std::string> &arguments);
// For tests of file modes, which root does not feel: run by the user nobody when started by root.
Finished run_without_root(const std::vector<std::string> &arguments);

// A directory of its own for the running test, emptied first.
std::string test_directory();
std::string read_text(const std::string &path);
int64_t count_lines(const std::string &path);
// Waits until a file has this many lines, at most a minute; how many it has then.
int64_t wait_for_lines(const std::string &path, int64_t lines);
void write_text(const std::string &path, const std::string &content);
// English-like text of this many bytes, the same every time.
std::string some_text(size_t bytes);

}  // namespace gpt_test

#endif
