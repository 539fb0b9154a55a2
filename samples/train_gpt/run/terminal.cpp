// NO_COLOR and pipes get plain text.
#include "terminal.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "host_adapters/standalone/error.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

// A signal handler may do little more than set a flag; any thread may run it, another one looks.
std::atomic<int> g_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");

extern "C" void on_interrupt(int signal) {
  int none = 0;
  g_signal.compare_exchange_strong(none, signal);
  std::signal(signal, SIG_DFL);
}

}  // namespace

void expect_written_output() {
  expect(static_cast<bool>(std::cout.flush()) || interrupted(), "standard output",
         "a place that can be written", "that a write failed",
         "free space, or write to another file");
}

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_interrupt) == SIG_IGN) std::signal(signal, SIG_IGN);
}
bool interrupted() {
  return g_signal != 0;
}
int interrupt_signal() {
  return g_signal;
}
void interrupt(int signal) {
  int none = 0;
  g_signal.compare_exchange_strong(none, signal);
}
int exit_code() {
  return interrupted() ? 128 + g_signal : 0;
}

bool wants_color(int descriptor) {
  const char *no_color = std::getenv("NO_COLOR");
  return isatty(descriptor) == 1 && (no_color == nullptr || *no_color == '\0');
}

std::string fixed(double value, int digits) {
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ' ');
  return digits;
}

std::string table(const std::vector<std::vector<std::string>> &rows, size_t left, bool color) {
  std::vector<size_t> widths;
  for (const auto &row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t width = 2 * (widths.size() - 1);
  for (const size_t w : widths) width += w;
  std::string all;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string pad(widths[i] - rows[r][i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += i < left ? rows[r][i] + pad : pad + rows[r][i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (r == 0 && color) line = std::string("\033[1m").append(line).append("\033[0m");
    all += line + "\n";
    if (r == 0) all += std::string(width, '-') + "\n";
  }
  return all;
}

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
