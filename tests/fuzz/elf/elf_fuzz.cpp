// libFuzzer target of the check of libraries: any bytes as a file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "sdk/src/plugin/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int file = memfd_create("elf", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  // In this order the file keeps its memory.
  if (pwrite(file, data, size, 0) != static_cast<ssize_t>(size) ||
      ftruncate(file, static_cast<off_t>(size)) != 0)
    return -1;
  const octavo::ElfCheck check = octavo::inspect_elf(path);
  const auto verdict = octavo::elf_verdict(path, check);
  // Every refusal says what to do about it, and only a found entry is none.
  if (verdict ? verdict->text.empty() || verdict->remedy.empty() : check.entry.empty())
    __builtin_trap();
  return 0;
}
