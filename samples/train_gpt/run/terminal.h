// What the terminal sees: numbers, text tables, the progress of a training; and signals.
#ifndef TRAIN_GPT_TERMINAL_H
#define TRAIN_GPT_TERMINAL_H

#include <chrono>
#include <string>
#include <vector>

#include "metrics.h"

namespace gpt {

// Whether this file descriptor is a terminal and NO_COLOR is unset.
bool wants_color(int descriptor);
// 3.14159, 2 -> "3.14"
std::string fixed(double value, int digits);
// 1234567 -> "1 234 567"
std::string grouped(uint64_t value);
// The first row is the header. `left` columns from the left are text, the others are numbers.
std::string table(const std::vector<std::vector<std::string>> &rows, size_t left, bool color);

// Throws UserError if standard output was not written. A terminal that hung up takes no more text:
// after a signal its code says what happened.
void expect_written_output();

// The last step on a terminal, a line now and then elsewhere, on standard error: standard output is
// for the tables.
class Progress {
 public:
  // speaks: false on the ranks as processes that are not the first.
  explicit Progress(bool quiet, bool speaks = true);

  void start_run(const std::string &name, size_t index, size_t count, int64_t steps);
  void step(const StepRecord &record);
  // One line about the run.
  void end_run(const RunResult &result);
  void note(const std::string &line);
  // Also when quiet.
  void warn(const std::string &line);

 private:
  bool quiet_, speaks_, terminal_;
  std::string title_;
  int64_t steps_ = 0;
  std::string validation_;
  std::chrono::steady_clock::time_point started_;
};

// The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks the training to stop after its step, the second
// one ends the program. One that was ignored at the start, as nohup has it, stays ignored.
void catch_interrupts();
bool interrupted();
// The signal, 0: none; and as if it had come here, for one that came to another rank.
int interrupt_signal();
void interrupt(int signal);
// What the program ends with: 128 and the signal's number after an interrupt, else 0.
int exit_code();

}  // namespace gpt

#endif
