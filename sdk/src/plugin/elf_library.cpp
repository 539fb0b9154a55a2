// A file that shrinks while it is read gives a short read and no signal, so nothing is mapped.
#include "sdk/src/plugin/elf_library.h"

#include <algorithm>
#include <cstring>

#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif
constexpr uint64_t kMaxSegments = 128;               // linkers write about 12
constexpr uint64_t kMaxEntries = 1024;               // linkers write about 30
constexpr uint64_t kMaxAddress = uint64_t{1} << 36;  // 64 GiB of one library
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxTable = uint64_t{256} << 20;  // bytes of names or symbols

template <typename... Part>
[[noreturn]] void fail(const Part &...text) {
  throw Failure(OCTAVO_NO_RESOURCE, "octavo.elf", text...);
}

bool holds(const CheckedFile &file, uint64_t offset, uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

template <typename T>
std::vector<T> read(const CheckedFile &file, uint64_t offset, uint64_t count) {
  const uint64_t bytes = count * sizeof(T);
  std::vector<T> out;
  if (holds(file, offset, bytes)) out.resize(count);
  if (out.size() != count || file.read_at(out.data(), bytes, offset) != bytes)
    fail("the file is truncated: its headers name more than its ", file.size(), " bytes");
  return out;
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

bool is_elf(const Elf64_Ehdr &h) {
  return std::memcmp(h.e_ident, ELFMAG, SELFMAG) == 0;
}

bool is_of_this_processor(const Elf64_Ehdr &h) {
  return h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_ident[EI_DATA] == ELFDATA2LSB &&
         h.e_machine == kMachine;
}

Elf64_Ehdr checked_header(const CheckedFile &file) {
  Elf64_Ehdr h{};
  if (file.read_at(&h, sizeof(h), 0) != sizeof(h) || !is_elf(h))
    fail("expected an ELF shared library, found another file of ", file.size(), " bytes");
  if (!is_of_this_processor(h))
    fail("expected a library for this processor, ", processor(ELFCLASS64, kMachine),
         ", found one for ", processor(h.e_ident[EI_CLASS], h.e_machine));
  if (h.e_type != ET_DYN) fail("expected a shared library (ELF type 3), found type ", h.e_type);
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > kMaxSegments)
    fail("expected program headers of ", sizeof(Elf64_Phdr), " bytes, found ", h.e_phnum, " of ",
         h.e_phentsize);
  return h;
}

// Of these the system's loader has the words of short memory, mmap's and mprotect's.
void check_places(const std::vector<Elf64_Phdr> &segments) {
  uint64_t end = 0;
  for (const Elf64_Phdr &s : segments) {
    if (s.p_type != PT_LOAD) continue;
    if (s.p_memsz < s.p_filesz || s.p_vaddr > kMaxAddress || s.p_memsz > kMaxAddress - s.p_vaddr)
      fail("a segment's size in memory, ", s.p_memsz, " bytes at address ", s.p_vaddr,
           ", does not fit its file size or the address space");
    if (s.p_vaddr < end)
      fail("segments to load overlap or are out of order at address ", s.p_vaddr);
    end = s.p_vaddr + s.p_memsz;
  }
  for (const Elf64_Phdr &s : segments)
    if (s.p_type == PT_GNU_RELRO &&
        (s.p_memsz > kMaxAddress || s.p_vaddr > end + kPage || s.p_vaddr + s.p_memsz > end + kPage))
      fail("its read-only-after-relocation segment is outside of those to load");
}

}  // namespace

ElfLibrary::ElfLibrary(const CheckedFile &file) : file_(file) {
  const Elf64_Ehdr header = checked_header(file);
  segments_ = read<Elf64_Phdr>(file, header.e_phoff, header.e_phnum);
  const Elf64_Phdr *dynamic = nullptr, *stack = nullptr;
  check_places(segments_);
  for (const Elf64_Phdr &s : segments_) {
    if (!holds(file, s.p_offset, s.p_filesz))
      fail("the file is truncated: its headers name more than its ", file.size(), " bytes");
    if (s.p_type == PT_DYNAMIC) dynamic = &s;
    if (s.p_type == PT_GNU_STACK) stack = &s;
  }
  // Without the header the system's loader assumes that the stack must be executable.
  if (stack == nullptr || (stack->p_flags & PF_X) != 0)
    fail(stack == nullptr ? "it does not say that its stack need not be executable (PT_GNU_STACK)"
                          : "it requires an executable stack",
         "; link it with -z noexecstack");
  if (dynamic == nullptr || dynamic->p_filesz / sizeof(Elf64_Dyn) > kMaxEntries)
    fail("expected a dynamic section (PT_DYNAMIC) of at most ", kMaxEntries, " entries, found ",
         dynamic == nullptr ? 0 : dynamic->p_filesz / sizeof(Elf64_Dyn));
  entries_ = read<Elf64_Dyn>(file, dynamic->p_offset, dynamic->p_filesz / sizeof(Elf64_Dyn));
  entries_.erase(std::ranges::find(entries_, DT_NULL, &Elf64_Dyn::d_tag), entries_.end());
  uint64_t offset = 0;
  const uint64_t bytes = value(DT_STRSZ);
  if (bytes > kMaxTable || bytes_from(value(DT_STRTAB), &offset) < bytes)
    fail("its table of names (DT_STRTAB) is outside of the file");
  const auto names = read<char>(file, offset, bytes);
  names_.assign(names.begin(), names.end());
}

uint64_t ElfLibrary::bytes_from(uint64_t address, uint64_t *offset) const {
  for (const Elf64_Phdr &s : segments_) {
    if (s.p_type != PT_LOAD || address < s.p_vaddr || address - s.p_vaddr >= s.p_filesz) continue;
    *offset = s.p_offset + (address - s.p_vaddr);
    return s.p_filesz - (address - s.p_vaddr);
  }
  return 0;
}

// The last entry of a tag counts, as for the system's loader.
uint64_t ElfLibrary::value(int64_t tag) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Elf64_Dyn &e) { return e.d_tag == tag; });
  return found == entries_.rend() ? 0 : found->d_un.d_val;
}

std::string ElfLibrary::text(uint64_t offset) const {
  const size_t end = offset < names_.size() ? names_.find('\0', offset) : std::string::npos;
  if (end == std::string::npos) fail("a name is outside of its table of names (DT_STRTAB)");
  return names_.substr(offset, end - offset);
}

std::vector<std::string> ElfLibrary::needed() const {
  std::vector<std::string> names;
  for (const Elf64_Dyn &e : entries_)
    if (e.d_tag == DT_NEEDED) names.push_back(text(e.d_un.d_val));
  return names;
}

std::string ElfLibrary::rpath() const {
  const uint64_t offset = value(DT_RPATH);
  return offset == 0 ? std::string() : text(offset);
}

std::string ElfLibrary::runpath() const {
  const uint64_t offset = value(DT_RUNPATH);
  return offset == 0 ? std::string() : text(offset);
}

std::string ElfLibrary::problem_of(const Elf64_Sym &symbol) const {
  if (symbol.st_shndx == SHN_UNDEF) return "is only imported, not defined";
  const unsigned binding = ELF64_ST_BIND(symbol.st_info), type = ELF64_ST_TYPE(symbol.st_info);
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  if ((binding != STB_GLOBAL && binding != STB_WEAK && binding != STB_GNU_UNIQUE) ||
      (visibility != STV_DEFAULT && visibility != STV_PROTECTED))
    return "is hidden";
  if (type != STT_FUNC && type != STT_GNU_IFUNC)
    return "is not a function (symbol type " + std::to_string(type) + ")";
  const bool is_code = std::ranges::any_of(segments_, [&](const Elf64_Phdr &s) {
    return s.p_type == PT_LOAD && (s.p_flags & PF_X) != 0 && symbol.st_value >= s.p_vaddr &&
           symbol.st_value - s.p_vaddr < s.p_memsz;
  });
  return is_code ? "" : "is outside of the library's code";
}

std::vector<ElfLibrary::Symbol> ElfLibrary::symbols(std::string_view prefix) const {
  // The table has no length. Linkers put the names after it; what else is there is no symbol.
  const uint64_t begin = value(DT_SYMTAB), end = value(DT_STRTAB);
  uint64_t offset = 0, bytes = bytes_from(begin, &offset);
  if (begin == 0 || bytes == 0) fail("its table of symbols (DT_SYMTAB) is outside of the file");
  bytes = std::min(bytes, kMaxTable);
  if (end > begin) bytes = std::min(bytes, end - begin);
  std::vector<Symbol> found;
  for (const Elf64_Sym &s : read<Elf64_Sym>(file_, offset, bytes / sizeof(Elf64_Sym)))
    if (s.st_name < names_.size() && names_.compare(s.st_name, prefix.size(), prefix) == 0)
      found.push_back({text(s.st_name), problem_of(s)});
  return found;
}

bool is_library_of_this_processor(const std::string &path) {
  struct stat status {};
  std::string problem;
  Descriptor opened = open_regular(path, &status, &problem);
  if (opened.get() < 0) return false;
  const CheckedFile file(path, std::move(opened), "octavo.elf");
  Elf64_Ehdr header{};
  return file.read_at(&header, sizeof(header), 0) == sizeof(header) && is_elf(header) &&
         is_of_this_processor(header);
}

}  // namespace octavo
