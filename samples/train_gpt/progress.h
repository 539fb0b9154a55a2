// Shows how far the training is: a bar on a terminal, a line now and then elsewhere.
#ifndef TRAIN_GPT_PROGRESS_H
#define TRAIN_GPT_PROGRESS_H

#include <chrono>
#include <string>

#include "metrics.h"

namespace gpt {

class Progress {
 public:
  // Writes to standard error, which leaves standard output to the tables.
  explicit Progress(bool quiet);

  void start_run(const std::string &name, size_t index, size_t count, int64_t steps);
  void step(const StepRecord &record);
  // One line about the run; the bar goes away.
  void end_run(const RunResult &result);
  void note(const std::string &line);

 private:
  void erase_bar();

  bool quiet_;
  bool terminal_;
  bool color_;
  std::string title_;
  int64_t steps_ = 0;
  std::string validation_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace gpt

#endif
