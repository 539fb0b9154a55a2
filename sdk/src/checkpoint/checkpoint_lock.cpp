// flock: the system frees it when the process ends, however it ends. The file stays, since a lock
// on a file that was removed would exclude nobody.
#include "sdk/src/checkpoint/checkpoint_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "octavo/hpp/size_signal.hpp"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_names.h"
#include "sdk/src/checkpoint/checkpoint_texts.h"

namespace octavo {
namespace {

// A holder is alone for some calls only; who waits longer reports it.
constexpr int kTries = 5000;
constexpr std::chrono::milliseconds kPause(1);
// A run that has just ended may still be named; one that goes on is there again and again.
constexpr int kMostMeetings = 10;

constexpr char kRunLine[] = "run ";

std::string lock_text(const std::string &run_id) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return concat(kRunLine, run_id, "\nprocess ", getpid(), "\nhost ", host, "\n");
}

std::string read_lock(int file) {
  char text[1024];
  const ssize_t got = pread(file, text, sizeof(text), 0);
  return got < 0 ? std::string() : std::string(text, static_cast<size_t>(got));
}

// "process 12, host h, run id": one line a part.
std::string holder_of(std::string text) {
  std::string parts;
  for (size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
    parts = text.substr(0, end) + (parts.empty() ? "" : ", ") + parts;
  return parts.empty() ? "a process that has not yet named itself" : parts;
}

bool has_no_locks(int reason) {
  return reason == ENOLCK || reason == ENOSYS || reason == EOPNOTSUPP || reason == EINVAL;
}

}  // namespace

CheckpointLock::CheckpointLock(const std::string &directory, const std::string &run_id) {
  const std::string path = (std::filesystem::path(directory) / kLockName).string();
  file_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file_.get() < 0) fail_call(path, "a file that can be written", errno, kCheckPath);
  int meetings = 0;
  for (int i = 0; i < kTries && meetings < kMostMeetings; ++i) {
    if (begin(directory, path, run_id) || join(run_id, meetings)) return;
    std::this_thread::sleep_for(kPause);
  }
  fail_checkpoint(OCTAVO_WRONG_STATE, directory, "expected a directory that no other run writes, ",
                  "found ", holder_of(read_lock(file_.get())),
                  "; give every run a directory of its own, or wait");
}

// Alone for a moment: afterwards other ranks of this run may join.
bool CheckpointLock::begin(const std::string &directory, const std::string &path,
                           const std::string &run_id) {
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    is_held_ = !has_no_locks(errno);
    return !is_held_;
  }
  const std::string text = lock_text(run_id);
  const HeldSizeSignal held;
  if (ftruncate(file_.get(), 0) != 0 ||
      pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail_call(path, "a file that can be written", errno, "free space");
  remove_drafts(directory);
  return false;  // join
}

bool CheckpointLock::join(const std::string &run_id, int &meetings) {
  if (flock(file_.get(), LOCK_SH | LOCK_NB) != 0) return false;
  if (read_lock(file_.get()).rfind(kRunLine + run_id + "\n", 0) == 0) return true;
  flock(file_.get(), LOCK_UN);
  ++meetings;
  return false;
}

}  // namespace octavo
