// The dynamic section of a shared library: its tables, checked, names and one symbol.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elf_segments.h"

namespace octavo {

class ElfDynamic {
 public:
  // Throws Failure when an entry or a table that it names lies outside of the file.
  explicit ElfDynamic(const ElfSegments &segments);

  std::vector<std::string> needed() const;
  std::string rpath() const;    // DT_RPATH; the system ignores it beside a runpath
  std::string runpath() const;  // DT_RUNPATH

  // The symbol that the system's loader would find; nothing when there is none.
  std::optional<Elf64_Sym> find(const std::string &name) const;

 private:
  bool has(int64_t tag) const;
  uint64_t value(int64_t tag) const;
  void require_table(const char *what, int64_t address, int64_t size, int64_t entry,
                     uint64_t entry_size) const;
  void require_functions() const;
  std::string text(uint64_t offset) const;
  std::string text_of(int64_t tag) const;
  bool is(const Elf64_Sym &symbol, const std::string &name) const;
  std::optional<Elf64_Sym> symbol(uint64_t index) const;
  std::optional<Elf64_Sym> find_by_gnu_hash(const std::string &name) const;
  std::optional<Elf64_Sym> find_by_hash(const std::string &name) const;
  uint32_t word(uint64_t address) const;

  const ElfSegments &segments_;
  std::vector<Elf64_Dyn> entries_;
  uint64_t strings_ = 0;  // file offset
  uint64_t string_bytes_ = 0;
};

}  // namespace octavo
