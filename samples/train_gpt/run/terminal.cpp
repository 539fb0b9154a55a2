// A pipe gets a line now and then.
#include "terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "host_adapters/standalone/text.h"

namespace gpt {

using Clock = std::chrono::steady_clock;

Progress::Progress(bool quiet, bool speaks)
    : quiet_(quiet || !speaks), speaks_(speaks), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::note(const std::string &line) {
  if (!quiet_) std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::warn(const std::string &line) {
  if (speaks_) std::fprintf(stderr, "train_gpt: warning: %s\n", line.c_str());
}

void Progress::start_run(const std::string &name, size_t index, size_t count, int64_t steps) {
  title_ = "[" + std::to_string(index + 1) + "/" + std::to_string(count) + "] " + name;
  steps_ = steps;
  validation_.clear();
  started_ = Clock::now();
}

void Progress::step(const StepRecord &record) {
  if (quiet_) return;
  if (record.validation) validation_ = "  val " + fixed(*record.validation, 3);
  const std::string numbers = std::to_string(record.step) + "/" + std::to_string(steps_) +
                              "  loss " + fixed(record.loss, 3) + validation_ + "  " +
                              fixed(record.tokens_per_s, 0) + " tokens/s";
  if (terminal_)  // one line that is written again and again
    std::fprintf(stderr, "\r\033[K%s  step %s", title_.c_str(), numbers.c_str());
  else if (record.step % std::max<int64_t>(steps_ / 5, 1) == 0)
    std::fprintf(stderr, "%s  step %s\n", title_.c_str(), numbers.c_str());
}

void Progress::end_run(const RunResult &result) {
  if (quiet_) return;
  const std::string validation = result.validation_loss
                                     ? "validation " + fixed(*result.validation_loss, 4)
                                     : std::string("stopped early");
  std::fprintf(stderr, "%s%s  %s  in %.1f s\n", terminal_ ? "\r\033[K" : "", title_.c_str(),
               validation.c_str(), std::chrono::duration<double>(Clock::now() - started_).count());
}

}  // namespace gpt
