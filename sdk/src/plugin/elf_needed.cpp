// Candidates in the order of ld.so(8); a file counts when it is an ELF file of this machine.
#include "sdk/src/plugin/elf_needed.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "sdk/src/base/text.h"
#include "sdk/src/file/privilege_path.h"
#include "sdk/src/plugin/elf_library.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr const char *kPlatform = "x86_64";
constexpr std::array<const char *, 4> kVariants = {
    "", "glibc-hwcaps/x86-64-v4/", "glibc-hwcaps/x86-64-v3/", "glibc-hwcaps/x86-64-v2/"};
constexpr std::array<const char *, 3> kLib = {"lib/x86_64-linux-gnu", "lib64", "lib"};
#else
constexpr const char *kPlatform = "aarch64";
constexpr std::array<const char *, 1> kVariants = {""};
constexpr std::array<const char *, 3> kLib = {"lib/aarch64-linux-gnu", "lib64", "lib"};
#endif

void replace_all(std::string &text, const std::string &token, const std::string &by) {
  for (const std::string &form : {"${" + token + "}", "$" + token})
    for (size_t at = text.find(form); at != std::string::npos; at = text.find(form, at + by.size()))
      text.replace(at, form.size(), by);
}

// Directories of a search path with its tokens resolved. An empty element would be the current
// directory, which never counts.
std::vector<std::string> directories(const std::string &path, char other_separator,
                                     const std::string &origin) {
  std::string text = path;
  std::replace(text.begin(), text.end(), other_separator, ':');
  std::vector<std::string> found;
  for (std::string part : split(text, ':')) {
    if (part.find("ORIGIN") != std::string::npos && privileged()) continue;
    replace_all(part, "ORIGIN", origin);
    replace_all(part, "PLATFORM", kPlatform);
    if (part.empty() || part.front() != '/') continue;
    if (part.find("$LIB") == std::string::npos && part.find("${LIB}") == std::string::npos) {
      found.push_back(part);
      continue;
    }
    for (const std::string lib : kLib) {
      found.push_back(part);
      replace_all(found.back(), "LIB", lib);
    }
  }
  return found;
}

std::string in_directories(const std::string &name, const std::vector<std::string> &places) {
  for (const std::string &place : places)
    for (const char *variant : kVariants)
      if (std::string path = concat(place, "/", variant, name); is_library_of_this_processor(path))
        return path;
  return {};
}

// The file under which this process has opened a library of this name.
std::string opened(const std::string &name) {
  struct Search {
    const std::string &name;
    std::string found;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *ctx) {
        auto &s = *static_cast<Search *>(ctx);
        const std::string path(info->dlpi_name);
        if (path.substr(path.rfind('/') + 1) != s.name) return 0;
        s.found = path;
        return 1;
      },
      &search);
  return search.found;
}

// In the places that the library, or the environment, names.
std::string search_named(const std::string &name, const NeededSearch &search) {
  if (name.find('/') != std::string::npos) {
    std::string path = name;
    replace_all(path, "ORIGIN", search.origin);
    return is_library_of_this_processor(path) ? path : std::string();
  }
  std::string found;
  if (search.runpath.empty())
    found = in_directories(name, directories(search.rpath, ':', search.origin));
  const char *variable = privileged() ? nullptr : std::getenv("LD_LIBRARY_PATH");
  if (found.empty() && variable != nullptr)
    found = in_directories(name, directories(variable, ';', search.origin));
  if (found.empty()) found = in_directories(name, directories(search.runpath, ':', search.origin));
  return found;
}

}  // namespace

std::string find_named(const std::string &name, const NeededSearch &search) {
  return opened(name).empty() ? search_named(name, search) : std::string();
}

bool is_named(const std::string &name, const NeededSearch &search) {
  return !search_named(name, search).empty();
}

std::string opened_by_path(const std::string &name) {
  std::string path = opened(name);
  return path.starts_with('/') ? path : std::string();
}

}  // namespace octavo
