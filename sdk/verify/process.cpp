// The probe's view of the process, and what it does not look at: environment, mask, global symbols.
#include "process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

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

// The file behind the name by which a library was opened.
std::string file_of(const std::string &name) {
  char target[PATH_MAX];
  const ssize_t size =
      name.starts_with("/proc/") ? readlink(name.c_str(), target, sizeof target) : -1;
  return size < 0 ? name : std::string(target, static_cast<size_t>(size));
}

// A library's own symbols, a few of each, and where it lies.
struct Library {
  std::string path;
  std::vector<std::pair<uintptr_t, uintptr_t>> segments;
  std::vector<std::string> symbols;
};

// From the hash table of exported symbols: each bucket begins with one.
void add_symbols(const dl_phdr_info &object, Library &library) {
  const ElfW(Dyn) *entry = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_DYNAMIC) entry = reinterpret_cast<const ElfW(Dyn) *>(begin);
    if (segment.p_type == PT_LOAD) library.segments.push_back({begin, begin + segment.p_memsz});
  }
  const auto address = [&](const ElfW(Dyn) & e) {
    const uintptr_t at = e.d_un.d_ptr;
    return at < object.dlpi_addr ? at + object.dlpi_addr : at;
  };
  const uint32_t *hash = nullptr;
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t *>(address(*entry));
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym) *>(address(*entry));
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char *>(address(*entry));
  }
  if (hash == nullptr || symbols == nullptr || names == nullptr) return;
  constexpr size_t kEnough = 16;
  const uint32_t *buckets = hash + 4 + hash[2] * sizeof(ElfW(Addr)) / sizeof(uint32_t);
  for (uint32_t i = 0; i < hash[0] && library.symbols.size() < kEnough; ++i) {
    if (buckets[i] == 0) continue;
    const ElfW(Sym) &symbol = symbols[buckets[i]];
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_OBJECT))
      library.symbols.emplace_back(names + symbol.st_name);
  }
}

int add_library(dl_phdr_info *object, size_t, void *to) {
  const std::string path(object->dlpi_name);
  if (path.find('/') == std::string::npos) return 0;
  auto &all = *static_cast<std::vector<Library> *>(to);
  all.push_back({path, {}, {}});
  add_symbols(*object, all.back());
  return 0;
}

// Those in which a look-up from anywhere in the process ends.
std::set<std::string> global_libraries() {
  std::vector<Library> all;
  dl_iterate_phdr(add_library, &all);
  std::set<std::string> found;
  for (const Library &library : all) {
    for (const std::string &name : library.symbols) {
      const auto at = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, name.c_str()));
      for (const auto &[begin, end] : library.segments)
        if (at >= begin && at < end) found.insert(library.path);
    }
  }
  return found;
}

}  // namespace

ProcessWatch::ProcessWatch() : environment_(environment()), global_(global_libraries()) {
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
  std::fflush(stdout);
  const int file = memfd_create("stdout", MFD_CLOEXEC);
  stdout_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (file < 0 || stdout_ < 0 || dup2(file, STDOUT_FILENO) < 0)
    throw Failure(text("stdout cannot be watched: ", std::strerror(errno)));
  close(file);
  state_ = std::make_unique<probe::ProcessState>();
}

ProcessWatch::~ProcessWatch() {
  take_printed();
  dup2(stdout_, STDOUT_FILENO);
  close(stdout_);
}

// Also passed on, to where stdout was.
std::string ProcessWatch::take_printed() {
  std::fflush(stdout);
  std::string all;
  char part[4096];
  for (;;) {
    const ssize_t got = pread(STDOUT_FILENO, part, sizeof part, static_cast<off_t>(printed_));
    if (got <= 0) return all;
    printed_ += static_cast<uint64_t>(got);
    all.append(part, static_cast<size_t>(got));
    if (write(stdout_, part, static_cast<size_t>(got)) < 0) continue;
  }
}

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
  std::set<std::string> global = global_libraries();
  for (const std::string &path : global)
    if (global_.count(path) == 0)
      found.push_back(
          text("makes the symbols of ", file_of(path), " visible to all libraries (RTLD_GLOBAL)"));
  global_ = std::move(global);
  std::string printed = take_printed();
  while (!printed.empty() && printed.back() == '\n') printed.pop_back();
  if (!printed.empty())
    found.push_back(
        text("prints on stdout, which is its host's: \"", printed.substr(0, 200), "\""));
  return found;
}

std::string file_of_code(const void *address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return file_of(info.dli_fname);
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
