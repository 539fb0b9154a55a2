// Shared variables are those of a thread (__shared__), in functions of octavo::cuda: the symbols of
// the program, or of the library that the executor is in, say where they are and whose.
#include "shared_memory.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace cuda_on_cpu {
namespace {

struct Symbols {
  struct Variable {
    std::string function;  // mangled, without _Z
    ptrdiff_t offset;
    size_t bytes;
  };
  std::vector<Variable> variables;
  std::map<uintptr_t, std::string> functions;
  uintptr_t base = 0;
};

Symbols read_symbols() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<const void *>(&read_symbols), &own) == 0) std::abort();
  std::ifstream file(own.dli_fname, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  Symbols all;
  all.base = reinterpret_cast<uintptr_t>(own.dli_fbase);
  const auto at = [&](size_t offset) { return bytes.data() + offset; };
  if (bytes.size() < sizeof(Elf64_Ehdr)) std::abort();
  Elf64_Ehdr header;
  std::memcpy(&header, at(0), sizeof(header));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), at(header.e_shoff), sections.size() * sizeof(Elf64_Shdr));
  ptrdiff_t of_thread = -1;
  for (const Elf64_Shdr &section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char *names = at(sections[section.sh_link].sh_offset);
    for (size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, at(section.sh_offset + i * sizeof(symbol)), sizeof(symbol));
      const std::string name = names + symbol.st_name;
      const auto offset = static_cast<ptrdiff_t>(symbol.st_value);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) all.functions[symbol.st_value] = name;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS) continue;
      if (name == "threadIdx") of_thread = offset;
      if (name.rfind("_ZZN6octavo4cuda", 0) == 0)
        all.variables.push_back({name.substr(3), offset, symbol.st_size});
    }
  }
  if (of_thread < 0) {
    std::fprintf(stderr, "cuda_on_cpu: %s has no symbol threadIdx; do not strip it\n",
                 own.dli_fname);
    std::abort();
  }
  for (Symbols::Variable &v : all.variables) v.offset -= of_thread;
  return all;
}

}  // namespace

SharedMemory::SharedMemory(const void *kernel) {
  static const Symbols symbols = read_symbols();
  const auto found = symbols.functions.find(reinterpret_cast<uintptr_t>(kernel) - symbols.base);
  const std::string name = found == symbols.functions.end() ? "" : found->second.substr(2) + "E";
  for (const Symbols::Variable &v : symbols.variables) {
    const bool is_own = !name.empty() && v.function.rfind(name, 0) == 0;
    const bool is_shared = v.function.find("_kernel") == std::string::npos;
    if (is_own || is_shared) variables_.push_back({v.offset, v.bytes});
  }
}

void SharedMemory::poison() const {
  for (const Variable &v : variables_) {
    char *data = reinterpret_cast<char *>(&threadIdx) + v.offset;
    const size_t words = v.bytes / sizeof(kPoison);
    static_assert(sizeof(wchar_t) == sizeof(kPoison));
    std::wmemset(reinterpret_cast<wchar_t *>(data), kPoison, words);
    std::memcpy(data + words * sizeof(kPoison), &kPoison, v.bytes % sizeof(kPoison));
  }
}

}  // namespace cuda_on_cpu
