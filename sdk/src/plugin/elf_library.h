// What is read of a shared library before the system's loader maps it: program headers, names and
// symbols. Each read is inside the file, and whatever else is wrong the helper finds.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

class CheckedFile;

class ElfLibrary {
 public:
  // Throws Failure(OCTAVO_NO_RESOURCE), which says why it is no library that can be loaded here.
  explicit ElfLibrary(const CheckedFile &file);

  std::vector<std::string> needed() const;  // DT_NEEDED, in order
  std::string rpath() const;    // DT_RPATH; the system ignores it where there is a runpath
  std::string runpath() const;  // DT_RUNPATH

  struct Symbol {
    std::string name;
    std::string problem;  // why it is no function that another library can call; empty: it is one
  };
  // Those of the dynamic table whose names begin with that.
  std::vector<Symbol> symbols(std::string_view prefix) const;

 private:
  // Of an address; 0: nowhere in the file.
  uint64_t bytes_from(uint64_t address, uint64_t *offset) const;
  uint64_t value(int64_t tag) const;  // 0: there is none
  std::string text(uint64_t offset) const;
  std::string problem_of(const Elf64_Sym &symbol) const;

  const CheckedFile &file_;
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Dyn> entries_;
  std::string names_;
};

// Whether the system's loader would take it for a library of this process, by its first bytes.
bool is_library_of_this_processor(const std::string &path);

}  // namespace octavo
