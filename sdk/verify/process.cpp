// The probe's view of the process, and what it does not look at: environment, mask, global symbols.
#include "process.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "octavo/plugin.h"
#include "report.h"
#include "sdk/probe/process_state.h"

namespace octavo::conformance {
namespace {

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    all.emplace_back(*entry);
  std::sort(all.begin(), all.end());
  return all;
}

std::string name_of(const std::string &entry) {
  return entry.substr(0, entry.find('='));
}

bool plugin_is_global() {
  return dlsym(RTLD_DEFAULT, OCTAVO_PLUGIN_SYMBOL) != nullptr;
}

}  // namespace

ProcessWatch::ProcessWatch()
    : state_(std::make_unique<probe::ProcessState>()),
      environment_(environment()),
      global_(plugin_is_global()) {
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
}

ProcessWatch::~ProcessWatch() = default;

std::vector<std::string> ProcessWatch::changes() {
  auto now = std::make_unique<probe::ProcessState>();
  std::vector<std::string> found = state_->changes(*now);
  state_ = std::move(now);
  std::vector<std::string> entries = environment(), differ;
  std::set_symmetric_difference(entries.begin(), entries.end(), environment_.begin(),
                                environment_.end(), std::back_inserter(differ));
  if (!differ.empty())
    found.push_back(text("changes the environment variable ", name_of(differ.front())));
  environment_ = std::move(entries);
  sigset_t mask{};
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    if (sigismember(&mask, signal) != sigismember(&mask_, signal))
      found.push_back(text("changes whether signal ", signal, " is blocked"));
  }
  mask_ = mask;
  const bool global = plugin_is_global();
  if (global && !global_)
    found.push_back("makes its symbols visible to all libraries (RTLD_GLOBAL)");
  global_ = global;
  return found;
}

std::string file_of_code(const void *address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string name = info.dli_fname;
  char target[PATH_MAX];
  const ssize_t size =
      name.starts_with("/proc/") ? readlink(name.c_str(), target, sizeof target) : -1;
  return size < 0 ? name : std::string(target, static_cast<size_t>(size));
}

std::vector<std::string> symbols_of_libc(const std::string &library) {
  std::vector<std::string> found;
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return found;
  for (const char *name :
       {"malloc", "calloc", "realloc",     "free",    "memcpy", "memmove", "memset",
        "memcmp", "strlen", "printf",      "fprintf", "write",  "read",    "open",
        "close",  "exit",   "_exit",       "abort",   "fork",   "signal",  "sigaction",
        "getenv", "setenv", "setlocale",   "dlopen",  "dlsym",  "mmap",    "pthread_create",
        "_Znwm",  "_ZdlPv", "__cxa_throw", "expf",    "sqrtf"}) {
    void *symbol = dlsym(handle, name);
    if (symbol != nullptr && file_of_code(symbol) == library) found.emplace_back(name);
  }
  dlclose(handle);
  return found;
}

}  // namespace octavo::conformance
