// The progress of a training, as the terminal sees it.
#ifndef TRAIN_GPT_TERMINAL_H
#define TRAIN_GPT_TERMINAL_H

#include <chrono>
#include <string>

#include "metrics.h"

namespace gpt {

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

}  // namespace gpt

#endif
