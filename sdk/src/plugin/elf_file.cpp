// One descriptor, pread only.
#include "sdk/src/plugin/elf_file.h"

#include "sdk/src/base/system_call.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {

std::optional<ElfFile> ElfFile::open(const std::string &path, std::string *problem) {
  struct stat status {};
  Descriptor file = open_regular(path, &status, problem);
  if (file.get() < 0) return std::nullopt;
  return ElfFile(path, std::move(file), static_cast<uint64_t>(status.st_size));
}

ElfFile ElfFile::of(const CheckedFile &checked) {
  return ElfFile(checked.path(), checked.another(), checked.size());
}

bool ElfFile::read(uint64_t offset, void *out, uint64_t bytes) const {
  return holds(offset, bytes) && read_at(file_, path_, out, bytes, offset) == bytes;
}

}  // namespace octavo
