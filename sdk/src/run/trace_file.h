// A file of trace events, as chrome://tracing and Perfetto read it: the JSON array of "Trace Event
// Format" by Google. Times are of the calls on the host; on a GPU a call starts kernels and
// returns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "octavo/host.h"

namespace octavo {

// Which steps of a run are written where; the first step has the number 1.
struct TraceWindow {
  std::string directory;
  int64_t first = 1, count = 1;
};

// Thread-safe. A failed write is reported once, as a warning, and training goes on.
class TraceFile {
 public:
  using Clock = std::chrono::steady_clock;
  // Creates the directory, and in it <host>-<pid>-<number>.json when the first event comes. Throws
  // Failure(OCTAVO_INVALID) for a directory that cannot be created.
  TraceFile(TraceWindow window, const octavo_host *host);
  ~TraceFile();
  TraceFile(const TraceFile &) = delete;
  TraceFile &operator=(const TraceFile &) = delete;

  // Whether events of now are written.
  bool is_on() const noexcept { return is_on_.load(std::memory_order_relaxed); }
  // A call on this thread. args: members of a JSON object, or "".
  void add(const char *category, const char *name, const std::string &args, Clock::time_point begin,
           Clock::time_point end) noexcept;
  // One step has ended, on this thread, which began with the one before.
  void end_step() noexcept;

 private:
  void open();
  void flush();
  void finish() noexcept;
  void fail(const std::string &what) noexcept;

  const TraceWindow window_;
  const octavo_host *host_;
  const int owner_;  // process; a child that was forked has no part in the file
  const Clock::time_point zero_;
  std::atomic<bool> is_on_;
  std::mutex mutex_;
  int64_t step_ = 1;
  Clock::time_point step_began_;
  std::string path_, pending_;
  int file_ = -1;
  bool is_over_ = false;
};

// A text as a JSON string, with its quotes.
std::string json_quoted(std::string_view text);

}  // namespace octavo
