// dlsym on a handle looks in the library and in what it needs; the system's loader looks in all
// that the program itself brought, too.
#include "symbols.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>

namespace octavo::probe {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer's functions are the program's.
std::string borrowed_symbol(void *) {
  return {};
}
#else
std::string borrowed_symbol(void *opened) {
  const link_map *map = nullptr;
  if (dlinfo(opened, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  uint32_t count = 0;
  for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    const auto *table = reinterpret_cast<const uint32_t *>(d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym) *>(table);
    if (d->d_tag == DT_STRTAB) names = reinterpret_cast<const char *>(table);
    if (d->d_tag == DT_HASH) count = table[1];  // all of them
    // The first one that can be looked up: undefined ones are before it.
    if (d->d_tag == DT_GNU_HASH && count == 0) count = table[1];
  }
  if (symbols == nullptr || names == nullptr) return {};
  for (uint32_t i = 1; i < count; ++i) {
    const ElfW(Sym) &s = symbols[i];
    if (s.st_shndx != SHN_UNDEF || ELF64_ST_BIND(s.st_info) != STB_GLOBAL) continue;
    const char *name = names + s.st_name;
    if (dlsym(opened, name) == nullptr && dlsym(RTLD_DEFAULT, name) != nullptr) return name;
  }
  return {};
}
#endif

}  // namespace octavo::probe
