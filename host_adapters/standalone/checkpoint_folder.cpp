// `latest` names a checkpoint when all of it is on disk. So whenever the program dies, `latest`
// names a complete one.
#include "host_adapters/standalone/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <octavo/hpp/regular_file.hpp>
#include <sstream>
#include <vector>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/files.h"

namespace octavo::standalone {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostLatestBytes = 1 << 20;

std::string content_of(int file) {
  char text[512];
  const ssize_t got = pread(file, text, sizeof text, 0);
  std::string content(text, got > 0 ? static_cast<size_t>(got) : 0);
  for (char &c : content) c = c == '\n' ? ' ' : c;
  return content.empty() ? "a process that has not yet named itself" : content;
}

// The names in `latest`, the newest first. *found: why there is none.
std::vector<std::string> saved_names(const std::string &directory, std::string *found) {
  octavo::RegularFile file(directory + "/latest");
  std::istringstream in(file.text(kMostLatestBytes).value_or(""));
  std::vector<std::string> names;
  for (std::string name; std::getline(in, name);) names.push_back(name);
  *found = file.problem().empty() ? "an empty file" : file.problem();
  return names;
}

}  // namespace

// flock: the system frees it when the program ends, however it ends. The file stays, since a lock
// on a file that was removed would exclude nobody.
DirectoryLock::DirectoryLock(const std::string &option, const std::string &directory) {
  const std::string path = directory + "/lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  expect(file_ >= 0, option + " " + path, "a file that can be written", std::strerror(errno),
         "choose another " + option + ", or change the permissions");
  const bool is_locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
  const int reason = errno;
  const std::string holder = is_locked ? "" : content_of(file_);
  if (!is_locked) close(file_);
  expect(is_locked || reason != EWOULDBLOCK, option + " " + directory,
         "a directory that no other run writes", "a run that does: " + holder,
         "choose another " + option + ", or wait until that process has ended");
  expect(is_locked, option + " " + directory, "a file system with locks", std::strerror(reason),
         "choose a directory of another file system");
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string text = "process " + std::to_string(getpid()) + " on host " + host + "\n";
  const bool is_written = ftruncate(file_, 0) == 0 && pwrite(file_, text.data(), text.size(), 0) ==
                                                          static_cast<ssize_t>(text.size());
  const int error = errno;
  if (!is_written) close(file_);
  expect(is_written, option + " " + path, "a file that can be written", std::strerror(error),
         "free space");
}

DirectoryLock::~DirectoryLock() {
  if (file_ >= 0) close(file_);
}

std::string run_directory(const std::string &directory, const std::string &run) {
  std::string name = directory + "/";
  for (const char c : run) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string("._-=:,+").find(c) != std::string::npos;
    const auto code = static_cast<unsigned char>(c);
    const char *digits = "0123456789ABCDEF";
    name += plain ? std::string{c} : std::string{'%', digits[code / 16], digits[code % 16]};
  }
  return name;
}

std::string checkpoint_name(int64_t steps, int64_t attempt) {
  const std::string digits = std::to_string(steps);
  const std::string name = "step-" + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return name + digits + (attempt == 0 ? "" : "." + std::to_string(attempt));
}

std::string latest_directory(const std::string &directory) {
  std::string found;
  const std::vector<std::string> names = saved_names(directory, &found);
  const std::string name = names.empty() ? "" : names.front();
  // A name that stands there twice was another one before a bit of it flipped.
  expect(name.rfind("step-", 0) == 0 && name.find('/') == std::string::npos &&
             std::count(names.begin(), names.end(), name) == 1,
         "--resume: " + directory + "/latest", "the name of a checkpoint",
         names.empty() ? found : "\"" + name + "\"",
         "resume from a directory that --save wrote with this run, or leave "
         "--resume");
  return directory + "/" + name;
}

std::string checkpoint_remedy(const std::string &path) {
  const fs::path above = fs::path(path).parent_path();
  std::string ignored;
  for (const fs::path &run : {above, above.parent_path()})
    if (const std::vector<std::string> names = saved_names(run.string(), &ignored);
        names.size() > 1)
      return "resume from another checkpoint: without its first line, " + run.string() +
             "/latest starts with " + names[1];
  return "resume from another checkpoint";
}

void complete_checkpoint(const std::string &directory, const std::string &name, int64_t keep) {
  std::string ignored;
  std::vector<std::string> names = saved_names(directory, &ignored);
  names.insert(names.begin(), name);
  names.resize(std::min(names.size(), static_cast<size_t>(keep)));
  std::string text;
  for (const std::string &one : names) text += one + "\n";
  write_atomically(directory + "/latest", text);
  std::error_code error;
  for (const auto &entry : fs::directory_iterator(directory, error)) {
    const std::string other = entry.path().filename().string();
    const bool is_old =
        other.rfind("step-", 0) == 0 && std::find(names.begin(), names.end(), other) == names.end();
    if (is_old || other.rfind("latest.tmp.", 0) == 0) fs::remove_all(entry.path(), error);
  }
}

}  // namespace octavo::standalone
