// Reads the file header and the program headers only; every offset is checked against the size.
#include "elf.h"

#include <elf.h>

#include <cstring>
#include <fstream>

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif

template <typename T>
bool read_at(std::ifstream &in, uint64_t offset, T &out) {
  in.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(in.read(reinterpret_cast<char *>(&out), sizeof(out)));
}

bool fits(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

}  // namespace

std::string elf_problem(const std::string &path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "it cannot be read; check its permissions";
  const auto size = static_cast<uint64_t>(in.tellg());
  Elf64_Ehdr header{};
  if (size < sizeof(header) || !read_at(in, 0, header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "expected an ELF shared library, found a file of " + std::to_string(size) +
           " bytes that is none";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine)
    return "expected a library for this processor (64 bits, ELF machine " +
           std::to_string(kMachine) + "), found class " + std::to_string(header.e_ident[EI_CLASS]) +
           ", machine " + std::to_string(header.e_machine);
  if (header.e_type != ET_DYN)
    return "expected a shared library (ELF type 3), found type " + std::to_string(header.e_type);
  const std::string truncated =
      "the file is truncated: its headers name more than its " + std::to_string(size) + " bytes";
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0)
    return "expected program headers of " + std::to_string(sizeof(Elf64_Phdr)) + " bytes, found " +
           std::to_string(header.e_phnum) + " of " + std::to_string(header.e_phentsize);
  if (!fits(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), size)) return truncated;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(in, header.e_phoff + i * sizeof(segment), segment)) return truncated;
    if (!fits(segment.p_offset, segment.p_filesz, size)) return truncated;
  }
  return {};
}

}  // namespace octavo
