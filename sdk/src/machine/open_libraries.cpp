// Read from the loader's list of what it has mapped; no file is opened.
#include "sdk/src/machine/open_libraries.h"

#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <exception>

namespace octavo {
namespace {

// DT_SONAME of a loaded object; empty when it states none, as modules of Python do.
std::string soname_of(const dl_phdr_info &object) {
  const ElfW(Dyn) *entry = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i)
    if (object.dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn) *>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
  ElfW(Addr) names = 0, at = 0;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SONAME) at = entry->d_un.d_val;
  }
  if (names == 0 || at == 0) return "";
  // glibc's loader relocates the address, other loaders leave it as it is in the file.
  if (names < object.dlpi_addr) names += object.dlpi_addr;
  return reinterpret_cast<const char *>(names + at);
}

// Of a path "/proc/<pid>/fd/<n>" the n, where the process is this one; otherwise -1.
int descriptor_in(const std::string &path) {
  const std::string by = "/proc/" + std::to_string(getpid()) + "/fd/";
  return path.starts_with(by) ? std::atoi(path.c_str() + by.size()) : -1;
}

// The file behind the name by which a library was opened.
std::string file_of(const std::string &path) {
  char target[PATH_MAX];
  const ssize_t size = descriptor_in(path) < 0 ? -1 : readlink(path.c_str(), target, sizeof target);
  return size < 0 ? path : std::string(target, static_cast<size_t>(size));
}

struct Search {
  std::map<std::string, std::vector<std::string>> found;
  std::vector<int> descriptors;
  std::exception_ptr error;  // the loader's own code must not be left by an exception
};

int add(dl_phdr_info *object, size_t, void *to) {
  auto &search = *static_cast<Search *>(to);
  try {
    const std::string path(object->dlpi_name);
    if (path.find('/') == std::string::npos) return 0;  // the program, and the kernel's own object
    if (const int fd = descriptor_in(path); fd >= 0) search.descriptors.push_back(fd);
    const std::string name = soname_of(*object);
    if (!name.empty()) search.found[name.substr(0, name.find(".so"))].push_back(file_of(path));
    return 0;
  } catch (...) {
    search.error = std::current_exception();
    return 1;
  }
}

Search search_all() {
  Search search;
  dl_iterate_phdr(add, &search);
  if (search.error) std::rethrow_exception(search.error);
  return search;
}

}  // namespace

std::map<std::string, std::vector<std::string>> open_libraries() {
  return search_all().found;
}

std::vector<int> library_descriptors() {
  return search_all().descriptors;
}

}  // namespace octavo
