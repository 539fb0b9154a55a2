// Events are collected and written at the end of each step, so that the disk is not in the times. A
// file without its last bracket is still read, so a run that is killed keeps its trace.
#include "sdk/src/run/trace_file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"

namespace octavo {
namespace {

constexpr const char *kTraceDomain = "octavo.trace";
constexpr size_t kPendingBytes = size_t{1} << 22;
constexpr int kMostFiles = 10000;  // of one process in one directory

double microseconds(TraceFile::Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "host";
  for (char *c = name; *c != '\0'; ++c)
    if (*c == '/') *c = '_';
  return name;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

TraceFile::TraceFile(TraceWindow window, const octavo_host *host)
    : window_(std::move(window)),
      host_(host),
      owner_(getpid()),
      zero_(Clock::now()),
      is_on_(window_.first == 1),
      step_began_(zero_) {
  std::error_code error;
  std::filesystem::create_directories(window_.directory, error);
  if (error || access(window_.directory.c_str(), W_OK | X_OK) != 0)
    throw Failure(OCTAVO_INVALID, kTraceDomain,
                  "trace.directory: expected a directory that can be "
                  "created and written, found ",
                  window_.directory, ": ", error ? error.message() : std::strerror(errno));
}

TraceFile::~TraceFile() {
  if (getpid() != owner_) return;
  finish();
  if (path_.empty() && !is_over_)
    diagnose(host_, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, kTraceDomain,
             concat("trace.directory: nothing was written: the run ended in step ", step_,
                    ", expected calls in step ", window_.first, " (trace.first_step)"));
}

void TraceFile::open() {
  const std::string front = concat(window_.directory, "/", host_name(), "-", owner_, "-");
  for (int number = 0; file_ < 0 && number < kMostFiles; ++number) {
    path_ = concat(front, number, ".json");
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) throw std::system_error(errno, std::generic_category());
  pending_ = concat("[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", owner_,
                    ",\"tid\":0,\"args\":{\"name\":\"Octavo\"}}");
}

void TraceFile::add(const char *category, const char *name, const std::string &args,
                    Clock::time_point begin, Clock::time_point end) noexcept {
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_over_ || getpid() != owner_) return;
    if (file_ < 0) open();
    char times[96];
    std::snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f", microseconds(begin - zero_),
                  microseconds(end - begin));
    pending_ += concat(",\n{\"ph\":\"X\",\"cat\":\"", category, "\",\"name\":\"", name,
                       "\",\"pid\":", owner_, ",\"tid\":", syscall(SYS_gettid), ",", times,
                       ",\"args\":{", args, "}}");
    if (pending_.size() > kPendingBytes) flush();
  } catch (const std::exception &e) {
    fail(e.what());
  }
}

void TraceFile::end_step() noexcept {
  const Clock::time_point now = Clock::now();
  if (is_on()) add("step", "step", concat("\"number\":", step_), step_began_, now);
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_over_ || getpid() != owner_) return;
    if (is_on()) flush();
    step_ += 1;
    step_began_ = now;
    is_on_ = step_ >= window_.first && step_ < window_.first + window_.count;
    if (step_ < window_.first + window_.count) return;
  } catch (const std::exception &e) {
    return fail(e.what());
  }
  finish();
}

// Under the lock.
void TraceFile::flush() {
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t written = ::write(file_, pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category());
    done += static_cast<size_t>(written);
  }
  pending_.clear();
}

void TraceFile::finish() noexcept {
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_over_ || file_ < 0) return;
    is_on_ = false;
    pending_ += "\n]\n";
    flush();
    if (close(std::exchange(file_, -1)) != 0)
      throw std::system_error(errno, std::generic_category());
    is_over_ = true;
  } catch (const std::exception &e) {
    fail(e.what());
  }
}

void TraceFile::fail(const std::string &what) noexcept {
  is_on_ = false;
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (is_over_) return;
      is_over_ = true;
      if (file_ >= 0) close(std::exchange(file_, -1));
    }
    diagnose(host_, OCTAVO_SEVERITY_WARNING, OCTAVO_NO_RESOURCE, kTraceDomain,
             concat(path_, ": the trace ends here: ", what, "; training goes on"));
  } catch (const std::exception &) {
    return;  // no memory for the words; the file shows that it is not complete
  }
}

}  // namespace octavo
