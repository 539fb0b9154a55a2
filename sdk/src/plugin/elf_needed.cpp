// Candidates in the order of ld.so(8); a file counts when it is an ELF file of this machine.
#include "sdk/src/plugin/elf_needed.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "sdk/src/base/text.h"
#include "sdk/src/file/privilege_path.h"
#include "sdk/src/plugin/elf_file.h"

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

bool fits(const std::string &path) {
  std::string problem;
  const auto file = ElfFile::open(path, &problem);
  Elf64_Ehdr header{};
  return file && file->read(0, header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == kElfMachine;
}

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
      if (std::string path = concat(place, "/", variant, name); fits(path)) return path;
  return {};
}

const std::vector<std::string> &system_directories() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> found;
    for (const std::string lib : kLib) {
      found.push_back("/" + lib);
      found.push_back("/usr/" + lib);
    }
    return found;
  }();
  return all;
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
    return fits(path) ? path : std::string();
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

std::string search_files(const std::string &name, const NeededSearch &search) {
  std::string found = search_named(name, search);
  if (!found.empty() || name.find('/') != std::string::npos) return found;
  for (const std::string &path : paths_in_cache(search.cache, name))
    if (found.empty() && fits(path)) found = path;
  if (found.empty()) found = in_directories(name, system_directories());
  return found;
}

}  // namespace

NeededFile find_needed(const std::string &name, const NeededSearch &search) {
  const std::string here = opened(name);
  const auto directory = std::filesystem::path(here).parent_path().string();
  const auto &usual = system_directories();
  if (std::find(usual.begin(), usual.end(), directory) != usual.end()) return {here, false};
  if (std::string path = search_files(name, search); !path.empty()) return {path, false};
  return {here, !here.empty() && here.front() == '/'};
}

std::string find_named(const std::string &name, const NeededSearch &search) {
  return opened(name).empty() ? search_named(name, search) : std::string();
}

std::vector<std::string> paths_in_cache(const std::string &cache_file, const std::string &name) {
  // The format of glibc 2.2 and later; it may follow a block of the older one.
  struct Entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hwcap;
  };
  struct Header {
    char magic[20];
    uint32_t entries, string_bytes;
    uint32_t unused[5];
  };
  constexpr char kMagic[] = "glibc-ld.so.cache1.1";
  constexpr char kOldMagic[] = "ld.so-1.7.0";
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  std::string problem;
  const auto file = ElfFile::open(cache_file, &problem);
  if (!file || file->size() > kMaxBytes) return {};
  std::string bytes(file->size(), '\0');
  if (!file->read(0, bytes.data(), bytes.size())) return {};
  uint64_t start = 0;
  if (bytes.compare(0, sizeof(kOldMagic) - 1, kOldMagic) == 0) {
    uint32_t old_entries = 0;
    if (bytes.size() < 16) return {};
    std::memcpy(&old_entries, bytes.data() + 12, sizeof(old_entries));
    start = (16 + uint64_t{old_entries} * 12 + 7) / 8 * 8;
  }
  Header header{};
  if (!file->holds(start, sizeof(header))) return {};
  std::memcpy(&header, bytes.data() + start, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0 ||
      !file->holds(start + sizeof(header), uint64_t{header.entries} * sizeof(Entry)))
    return {};
  // Offsets count from the header; a text ends at its zero or at the end of the file.
  const auto text_at = [&](uint64_t offset) -> std::string_view {
    if (start + offset >= bytes.size()) return {};
    const std::string_view rest = std::string_view(bytes).substr(start + offset);
    return rest.substr(0, rest.find('\0'));
  };
  std::vector<std::string> found;
  for (uint64_t i = 0; i < header.entries; ++i) {
    Entry entry{};
    std::memcpy(&entry, bytes.data() + start + sizeof(header) + i * sizeof(entry), sizeof(entry));
    if (text_at(entry.key) == name) found.emplace_back(text_at(entry.value));
  }
  return found;
}

}  // namespace octavo
