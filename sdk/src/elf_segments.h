// The program headers of a shared library, checked, and addresses translated to offsets.
#pragma once

#include <elf.h>

#include <vector>

#include "elf_file.h"

namespace octavo {

class ElfSegments {
 public:
  // Throws Failure naming what is wrong with the headers.
  explicit ElfSegments(const ElfFile &file);

  const ElfFile &file() const { return file_; }
  const Elf64_Phdr &dynamic() const { return dynamic_; }
  const std::vector<Elf64_Phdr> &all() const { return all_; }

  // The file offset behind an address range; false unless one loaded segment holds all of it in
  // the file.
  bool offset_of(uint64_t address, uint64_t bytes, uint64_t *offset) const;
  // How many bytes of the file follow `address` in its segment; 0: none.
  uint64_t bytes_from(uint64_t address) const;
  bool executable(uint64_t address) const;

 private:
  void check_header(Elf64_Ehdr *header) const;
  void check_load(const Elf64_Phdr &segment, const Elf64_Phdr *before) const;
  void check_stack() const;
  void check_inside() const;

  const ElfFile &file_;
  std::vector<Elf64_Phdr> all_;
  std::vector<Elf64_Phdr> loads_;
  Elf64_Phdr dynamic_{};
};

}  // namespace octavo
