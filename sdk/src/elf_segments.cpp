// File header and program headers; every sum is checked for overflow before it is used.
#include "elf_segments.h"

#include <cstring>
#include <string>

#include "failure.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif
constexpr uint64_t kMaxSegments = 128;               // linkers write about 12
constexpr uint64_t kMaxAddress = uint64_t{1} << 36;  // 64 GiB of one library
constexpr uint64_t kPage = 4096;

[[noreturn]] void fail(const std::string &text) {
  throw Failure(OCTAVO_RESOURCE, "octavo.elf", text);
}

[[noreturn]] void fail_truncated(uint64_t size) {
  fail("the file is truncated: its headers name more than its " + std::to_string(size) + " bytes");
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
  if (loads_.empty()) fail("expected segments to load (PT_LOAD), found none");
  if (dynamics != 1)
    fail("expected one dynamic section (PT_DYNAMIC), found " + std::to_string(dynamics));
  check_stack();
  check_inside();
}

void ElfSegments::check_header(Elf64_Ehdr *header) const {
  const Elf64_Ehdr &h = *header;
  if (!file_.read(0, *header) || std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
    fail("expected an ELF shared library, found a file of " + std::to_string(file_.size()) +
         " bytes that is none");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
      h.e_machine != kMachine)
    fail("expected a library for this processor (64 bits, ELF machine " + std::to_string(kMachine) +
         "), found class " + std::to_string(h.e_ident[EI_CLASS]) + ", machine " +
         std::to_string(h.e_machine));
  if (h.e_ident[EI_VERSION] != EV_CURRENT || h.e_version != EV_CURRENT)
    fail("expected ELF version 1, found " + std::to_string(h.e_version));
  if (h.e_ident[EI_OSABI] != ELFOSABI_SYSV && h.e_ident[EI_OSABI] != ELFOSABI_GNU)
    fail("expected a library for Linux (ELF OS 0 or 3), found " +
         std::to_string(h.e_ident[EI_OSABI]));
  if (h.e_type != ET_DYN)
    fail("expected a shared library (ELF type 3), found type " + std::to_string(h.e_type));
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > kMaxSegments)
    fail("expected program headers of " + std::to_string(sizeof(Elf64_Phdr)) + " bytes, found " +
         std::to_string(h.e_phnum) + " of " + std::to_string(h.e_phentsize));
}

void ElfSegments::check_load(const Elf64_Phdr &s, const Elf64_Phdr *before) const {
  if (s.p_memsz < s.p_filesz || s.p_vaddr > kMaxAddress || s.p_memsz > kMaxAddress - s.p_vaddr)
    fail("a segment's size in memory, " + std::to_string(s.p_memsz) + " bytes at address " +
         std::to_string(s.p_vaddr) + ", does not fit its file size or the address space");
  if ((s.p_align & (s.p_align - 1)) != 0 || (s.p_vaddr - s.p_offset) % kPage != 0 ||
      (s.p_align != 0 && (s.p_vaddr - s.p_offset) % s.p_align != 0))
    fail("a segment's alignment, " + std::to_string(s.p_align) +
         ", does not fit its address and offset");
  if (before != nullptr && s.p_vaddr < before->p_vaddr + before->p_memsz)
    fail("segments to load overlap or are out of order at address " + std::to_string(s.p_vaddr));
}

// Without the header the system's loader assumes that the stack must be executable.
void ElfSegments::check_stack() const {
  for (const Elf64_Phdr &s : all_) {
    if (s.p_type != PT_GNU_STACK) continue;
    if ((s.p_flags & PF_X) == 0) return;
    fail("it asks for an executable stack; link it with -z noexecstack");
  }
  fail(
      "it does not say that its stack need not be executable (PT_GNU_STACK); link it with "
      "-z noexecstack");
}

void ElfSegments::check_inside() const {
  uint64_t offset = 0;
  if (!offset_of(dynamic_.p_vaddr, dynamic_.p_filesz, &offset) || offset != dynamic_.p_offset)
    fail("its dynamic section lies outside of the segments to load");
  for (const Elf64_Phdr &s : all_) {
    if (s.p_type == PT_TLS &&
        (s.p_memsz < s.p_filesz || (s.p_align & (s.p_align - 1)) != 0 || s.p_memsz > kMaxAddress ||
         s.p_align > kMaxAddress || !offset_of(s.p_vaddr, s.p_filesz, &offset)))
      fail("its thread-local segment lies outside of the segments to load");
    if (s.p_type != PT_GNU_RELRO || s.p_memsz == 0) continue;
    bool inside = false;
    for (const Elf64_Phdr &l : loads_)
      inside = inside || within(s.p_vaddr, s.p_memsz, l.p_vaddr,
                                (l.p_memsz + kPage - 1 + l.p_vaddr % kPage) / kPage * kPage);
    if (!inside) fail("its read-only-after-relocation segment lies outside of those to load");
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

}  // namespace octavo
