// Compares two lines of /proc/self/maps: that of the library and that of a page of the checked
// descriptor. Both name the file in the same way, also where stat reports other device numbers, as
// on overlayfs and btrfs.
#include "sdk/src/file/privilege_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

// Device and inode, as the kernel writes them.
std::string file_in(const std::string &line) {
  unsigned long long inode = 0;
  char device[32] = {};
  if (std::sscanf(line.c_str(), "%*s %*s %*s %31s %llu", device, &inode) != 2) return {};
  return concat(device, " ", inode);
}

}  // namespace

std::optional<std::vector<std::string>> mapping_lines(const std::vector<const void *> &addresses,
                                                      const char *maps_file) {
  std::ifstream maps = open_lines(maps_file);
  if (!maps.is_open()) return {};
  std::vector<std::string> lines(addresses.size());
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2) continue;
    for (size_t i = 0; i < addresses.size(); ++i) {
      const auto at = reinterpret_cast<uintptr_t>(addresses[i]);
      if (from <= at && at < to) lines[i] = line;
    }
  }
  return lines;
}

std::string mapping_problem(const CheckedFile &file, const void *address, const char *maps_file) {
  const std::string what = file.path() + ": ";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void *own = mmap(nullptr, page, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (own == MAP_FAILED)
    throw ResourceUnavailable(what + "the checked file cannot be mapped", "mmap", errno);
  const auto lines = mapping_lines({address, own}, maps_file);
  munmap(own, page);
  if (!lines) {
    // Without /proc the name is asked once more, which sees a file that was exchanged for good.
    struct stat now {};
    if (find_status(file.path(), &now) != 0 || !file.is(now))
      return what + "another file than the checked one is there now";
  } else if (const std::string loaded = file_in((*lines)[0]), checked = file_in((*lines)[1]);
             loaded.empty() || loaded != checked) {
    return what + "expected the mapping of the checked file (device and inode " + checked +
           "), found " + (loaded.empty() ? "none" : loaded);
  }
  if (!file.unchanged()) return what + "was written to or renamed while it was loaded";
  return {};
}

}  // namespace octavo
