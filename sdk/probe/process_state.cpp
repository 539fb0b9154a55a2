// Read through the interfaces that set each of them; nothing is changed by looking.
#include "process_state.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "sdk/src/base/text.h"
#include "sdk/src/machine/open_libraries.h"

namespace octavo::probe {
namespace {

unsigned float_control() {
#if defined(__x86_64__)
  constexpr unsigned kStickyFlags = 0x3F;
  return _mm_getcsr() & ~kStickyFlags;
#else
  unsigned long control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<unsigned>(control);
#endif
}

std::string link_target(const std::string &path) {
  char target[512];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  return size < 0 ? std::string("?") : std::string(target, static_cast<size_t>(size));
}

std::vector<std::string> entries(const char *directory) {
  std::vector<std::string> names;
  DIR *open = opendir(directory);
  if (open == nullptr) return names;
  const int own = dirfd(open);
  while (const dirent *e = readdir(open))
    if (e->d_name[0] != '.' && e->d_name != std::to_string(own)) names.emplace_back(e->d_name);
  closedir(open);
  return names;
}

std::string hex(unsigned number) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%x", number);
  return text;
}

}  // namespace

ProcessState::ProcessState(const CheckedFile *library) {
  float_control_ = float_control();
  const char *locale = std::setlocale(LC_ALL, nullptr);
  locale_ = locale == nullptr ? "" : locale;
  umask_ = umask(0);
  umask(umask_);
  directory_ = link_target("/proc/self/cwd");
  for (int s = 1; s < kSignals; ++s) {
    struct sigaction action {};
    if (sigaction(s, nullptr, &action) != 0) continue;
    handlers_[static_cast<size_t>(s)] = {reinterpret_cast<void *>(action.sa_sigaction),
                                         action.sa_flags};
  }
  for (const std::string &name : entries("/proc/self/fd")) {
    const int file = std::atoi(name.c_str());
    struct stat status {};
    if (library == nullptr || fstat(file, &status) != 0 || !library->is(status))
      descriptors_[file] = link_target("/proc/self/fd/" + name);
  }
  threads_ = entries("/proc/self/task").size();
  libraries_ = open_libraries();
  for (const int fd : library_descriptors()) descriptors_.erase(fd);  // liboctavo's
}

std::vector<std::string> ProcessState::changes(const ProcessState &later) const {
  std::vector<std::string> found;
  if (float_control_ != later.float_control_)
    found.push_back("changes how floating-point numbers are rounded or flushed: control word " +
                    hex(float_control_) + ", later " + hex(later.float_control_));
  if (locale_ != later.locale_)
    found.push_back("changes the locale from \"" + locale_ + "\" to \"" + later.locale_ + "\"");
  if (umask_ != later.umask_) found.push_back("changes the mode of new files (umask)");
  if (directory_ != later.directory_)
    found.push_back("changes the current directory to " + later.directory_);
  for (size_t s = 1; s < handlers_.size(); ++s)
    if (handlers_[s].function != later.handlers_[s].function ||
        handlers_[s].flags != later.handlers_[s].flags)
      found.push_back(concat("changes the handler of signal ", s));
  for (const auto &[fd, target] : descriptors_) {
    const auto now = later.descriptors_.find(fd);
    if (now == later.descriptors_.end())
      found.push_back(concat("closes descriptor ", fd, ", which is not its own"));
    else if (now->second != target)
      found.push_back(concat("replaces descriptor ", fd, ", which is not its own"));
  }
  for (const auto &[fd, target] : later.descriptors_)
    if (descriptors_.count(fd) == 0) found.push_back("leaves a descriptor open: " + target);
  // Two C++ or CUDA runtimes in one process share names and nothing else.
  for (const auto &[name, paths] : later.libraries_) {
    const auto before = libraries_.find(name);
    if (paths.size() > 1 && (before == libraries_.end() || before->second.size() < paths.size()))
      found.push_back("brings a second " + name + ": " + enumerate(paths));
  }
  if (later.threads_ > threads_)
    found.push_back(concat("leaves ", later.threads_ - threads_, " threads running"));
  return found;
}

}  // namespace octavo::probe
