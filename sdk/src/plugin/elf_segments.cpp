// File header and program headers; every sum is checked for overflow before it is used.
#include "sdk/src/plugin/elf_file.h"

#include <cstring>
#include <string>

#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

constexpr uint64_t kMaxSegments = 128;               // linkers write about 12
constexpr uint64_t kMaxAddress = uint64_t{1} << 36;  // 64 GiB of one library
constexpr uint64_t kPage = 4096;

[[noreturn]] void fail_truncated(uint64_t size) {
  fail_elf("the file is truncated: its headers name more than its ", size, " bytes");
}

// "64-bit x86-64", as a user names a processor.
std::string processor(const int elf_class, const uint16_t machine) {
  const std::string bits = elf_class == ELFCLASS64   ? "64-bit "
                           : elf_class == ELFCLASS32 ? "32-bit "
                                                     : "";
  switch (machine) {
    case EM_X86_64: return bits + "x86-64";
    case EM_AARCH64: return bits + "aarch64";
    case EM_386: return bits + "x86";
    case EM_ARM: return bits + "arm";
    case EM_PPC64: return bits + "ppc64";
    case EM_RISCV: return bits + "riscv";
    default: return bits + "ELF machine " + std::to_string(machine);
  }
}

bool within(uint64_t begin, uint64_t bytes, uint64_t from, uint64_t length) {
  return begin >= from && begin - from <= length && bytes <= length - (begin - from);
}

}  // namespace

ElfSegments::ElfSegments(const ElfFile &file) : file_(file) {
  Elf64_Ehdr header{};
  check_header(&header);
  all_.resize(header.e_phnum);
  const uint64_t bytes = all_.size() * sizeof(Elf64_Phdr);
  if (!file_.holds(header.e_phoff, bytes) || !file_.read(header.e_phoff, all_.data(), bytes))
    fail_truncated(file_.size());
  for (const Elf64_Phdr &s : all_)
    if (!file_.holds(s.p_offset, s.p_filesz)) fail_truncated(file_.size());
  int dynamics = 0;
  for (const Elf64_Phdr &s : all_) {
    if (s.p_type == PT_LOAD) {
      check_load(s, loads_.empty() ? nullptr : &loads_.back());
      loads_.push_back(s);
    } else if (s.p_type == PT_DYNAMIC) {
      dynamic_ = s;
      ++dynamics;
    }
  }
  if (loads_.empty()) fail_elf("expected segments to load (PT_LOAD), found none");
  if (dynamics != 1) fail_elf("expected one dynamic section (PT_DYNAMIC), found ", dynamics);
  check_stack();
  check_inside();
}

void ElfSegments::check_header(Elf64_Ehdr *header) const {
  const Elf64_Ehdr &h = *header;
  if (!file_.read(0, *header) || std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
    fail_elf("expected an ELF shared library, found another file of ", file_.size(), " bytes");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
      h.e_machine != kElfMachine)
    fail_elf("expected a library for this processor, ", processor(ELFCLASS64, kElfMachine),
             ", found one for ", processor(h.e_ident[EI_CLASS], h.e_machine));
  if (h.e_ident[EI_VERSION] != EV_CURRENT || h.e_version != EV_CURRENT)
    fail_elf("expected ELF version 1, found ", h.e_version);
  if (h.e_ident[EI_OSABI] != ELFOSABI_SYSV && h.e_ident[EI_OSABI] != ELFOSABI_GNU)
    fail_elf("expected a library for Linux (ELF OS 0 or 3), found ", h.e_ident[EI_OSABI]);
  if (h.e_type != ET_DYN) fail_elf("expected a shared library (ELF type 3), found type ", h.e_type);
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > kMaxSegments)
    fail_elf("expected program headers of ", sizeof(Elf64_Phdr), " bytes, found ", h.e_phnum,
             " of ", h.e_phentsize);
}

void ElfSegments::check_load(const Elf64_Phdr &s, const Elf64_Phdr *before) const {
  if (s.p_memsz < s.p_filesz || s.p_vaddr > kMaxAddress || s.p_memsz > kMaxAddress - s.p_vaddr)
    fail_elf("a segment's size in memory, ", s.p_memsz, " bytes at address ", s.p_vaddr,
             ", does not fit its file size or the address space");
  if ((s.p_align & (s.p_align - 1)) != 0 || (s.p_vaddr - s.p_offset) % kPage != 0 ||
      (s.p_align != 0 && (s.p_vaddr - s.p_offset) % s.p_align != 0))
    fail_elf("a segment's alignment, ", s.p_align, ", does not fit its address and offset");
  if (before != nullptr && s.p_vaddr < before->p_vaddr + before->p_memsz)
    fail_elf("segments to load overlap or are out of order at address ", s.p_vaddr);
}

// Without the header the system's loader assumes that the stack must be executable.
void ElfSegments::check_stack() const {
  for (const Elf64_Phdr &s : all_) {
    if (s.p_type != PT_GNU_STACK) continue;
    if ((s.p_flags & PF_X) == 0) return;
    fail_elf("it requires an executable stack; link it with -z noexecstack");
  }
  fail_elf(
      "it does not say that its stack need not be executable (PT_GNU_STACK); link it with -z "
      "noexecstack");
}

void ElfSegments::check_inside() const {
  uint64_t offset = 0;
  if (!offset_of(dynamic_.p_vaddr, dynamic_.p_filesz, &offset) || offset != dynamic_.p_offset)
    fail_elf("its dynamic section is outside of the segments to load");
  for (const Elf64_Phdr &s : all_) {
    if (s.p_type == PT_TLS &&
        (s.p_memsz < s.p_filesz || (s.p_align & (s.p_align - 1)) != 0 || s.p_memsz > kMaxAddress ||
         s.p_align > kMaxAddress || !offset_of(s.p_vaddr, s.p_filesz, &offset)))
      fail_elf("its thread-local segment is outside of the segments to load");
    if (s.p_type != PT_GNU_RELRO || s.p_memsz == 0) continue;
    bool inside = false;
    for (const Elf64_Phdr &l : loads_)
      inside = inside || within(s.p_vaddr, s.p_memsz, l.p_vaddr,
                                (l.p_memsz + kPage - 1 + l.p_vaddr % kPage) / kPage * kPage);
    if (!inside) fail_elf("its read-only-after-relocation segment is outside of those to load");
  }
}

bool ElfSegments::offset_of(uint64_t address, uint64_t bytes, uint64_t *offset) const {
  for (const Elf64_Phdr &l : loads_)
    if (within(address, bytes, l.p_vaddr, l.p_filesz)) {
      *offset = l.p_offset + (address - l.p_vaddr);
      return true;
    }
  return false;
}

uint64_t ElfSegments::bytes_from(uint64_t address) const {
  for (const Elf64_Phdr &l : loads_)
    if (within(address, 0, l.p_vaddr, l.p_filesz)) return l.p_filesz - (address - l.p_vaddr);
  return 0;
}

bool ElfSegments::executable(uint64_t address) const {
  for (const Elf64_Phdr &l : loads_)
    if ((l.p_flags & PF_X) != 0 && within(address, 1, l.p_vaddr, l.p_memsz)) return true;
  return false;
}

bool ElfSegments::writable(uint64_t address, uint64_t bytes) const {
  for (const Elf64_Phdr &l : loads_)
    if ((l.p_flags & PF_W) != 0 && within(address, bytes, l.p_vaddr, l.p_memsz)) return true;
  return false;
}

}  // namespace octavo
