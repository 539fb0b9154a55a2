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
#include <fstream>

#include "sdk/src/base/shortage.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

// Device and inode of the mapping that holds each address, as the kernel writes them.
class Mappings {
 public:
  explicit Mappings(const char *path) : maps_(path) {
    if (maps_) maps_.exceptions(std::ios::badbit);  // short memory must not look like the end
  }
  bool readable() const { return static_cast<bool>(maps_); }
  void find(const void *a, std::string &of_a, const void *b, std::string &of_b) {
    const auto at_a = reinterpret_cast<uintptr_t>(a);
    const auto at_b = reinterpret_cast<uintptr_t>(b);
    for (std::string line; std::getline(maps_, line);) {
      uintptr_t from = 0, to = 0;
      if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2) continue;
      if (from <= at_a && at_a < to) of_a = file_in(line);
      if (from <= at_b && at_b < to) of_b = file_in(line);
    }
  }

 private:
  static std::string file_in(const std::string &line) {
    unsigned long long inode = 0;
    char device[32] = {};
    if (std::sscanf(line.c_str(), "%*s %*s %*s %31s %llu", device, &inode) != 2) return {};
    return concat(device, " ", inode);
  }
  std::ifstream maps_;
};

}  // namespace

std::string mapping_problem(const CheckedFile &file, const void *address, const char *maps_file) {
  const std::string what = file.path() + ": ";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void *own = mmap(nullptr, page, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (own == MAP_FAILED) pass_shortage(what + "the checked file cannot be mapped", errno);
  if (own == MAP_FAILED) return what + "the checked file cannot be mapped";
  std::string loaded, checked;
  Mappings maps(maps_file);
  const bool readable = maps.readable();
  maps.find(address, loaded, own, checked);
  munmap(own, page);
  if (!readable) {
    // Without /proc the name is asked once more, which sees a file that was exchanged for good.
    struct stat now {};
    if (stat(file.path().c_str(), &now) != 0 || !file.is(now))
      return what + "another file than the checked one is there now";
  } else if (loaded.empty() || loaded != checked) {
    return what + "expected the mapping of the checked file (device and inode " + checked +
           "), found " + (loaded.empty() ? "none" : loaded);
  }
  if (!file.unchanged()) return what + "was written to or renamed while it was loaded";
  return {};
}

}  // namespace octavo
