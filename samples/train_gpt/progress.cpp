// The bar redraws one line at most ten times a second; NO_COLOR and pipes get plain text.
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "table.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kBarWidth = 24;

}  // namespace

Progress::Progress(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), color_(wants_color(STDERR_FILENO)) {}

void Progress::note(const std::string &line) {
  if (!quiet_) std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::start_run(const std::string &name, size_t index, size_t count, int64_t steps) {
  title_ = "[" + std::to_string(index + 1) + "/" + std::to_string(count) + "] " + name;
  steps_ = steps;
  validation_.clear();
  started_ = Clock::now();
  drawn_ = {};
}

void Progress::step(const StepRecord &record) {
  if (quiet_) return;
  if (record.validation) validation_ = "  val " + fixed(*record.validation, 3);
  const std::string numbers = std::to_string(record.step) + "/" + std::to_string(steps_) +
                              "  loss " + fixed(record.loss, 3) + validation_ + "  " +
                              fixed(record.tokens_per_s, 0) + " tokens/s";
  if (!terminal_) {
    const int64_t every = std::max<int64_t>(steps_ / 5, 1);
    if (record.step % every == 0) {
      std::fprintf(stderr, "%s  step %s\n", title_.c_str(), numbers.c_str());
    }
    return;
  }
  const auto now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(100) && record.step != steps_) return;
  drawn_ = now;
  const int64_t filled = record.step * kBarWidth / steps_;
  std::string bar;
  for (int64_t i = 0; i < kBarWidth; ++i) bar += i < filled ? "█" : "░";
  if (color_) bar = "\033[36m" + bar + "\033[0m";
  const double passed = std::chrono::duration<double>(now - started_).count();
  const double left =
      passed / static_cast<double>(record.step) * static_cast<double>(steps_ - record.step);
  std::fprintf(stderr, "\r\033[K%s %s %s  %ss left", title_.c_str(), bar.c_str(), numbers.c_str(),
               fixed(left, 0).c_str());
  std::fflush(stderr);
}

void Progress::erase_bar() {
  if (terminal_ && !quiet_) std::fprintf(stderr, "\r\033[K");
}

void Progress::end_run(const RunResult &result) {
  erase_bar();
  if (quiet_) return;
  const double passed = std::chrono::duration<double>(Clock::now() - started_).count();
  const std::string validation = result.validation_loss
                                     ? "validation " + fixed(*result.validation_loss, 4)
                                     : std::string("stopped early");
  std::fprintf(stderr, "%s  %s  in %s s\n", title_.c_str(), validation.c_str(),
               fixed(passed, 1).c_str());
}

}  // namespace gpt
