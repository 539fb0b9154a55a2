// Tables are reached by address, translated to offsets inside the loaded segments; look-ups follow
// the hash tables as the system's loader does, in a bounded number of steps.
#include "sdk/src/plugin/elf_file.h"

#include <algorithm>
#include <array>

#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

constexpr uint64_t kMaxEntries = 1024;  // linkers write about 30
constexpr uint64_t kMaxName = 4096;
constexpr uint64_t kMaxNeeded = 256;
constexpr uint64_t kMaxSteps = 4096;  // along one chain of a hash table

}  // namespace

ElfDynamic::ElfDynamic(const ElfSegments &segments) : segments_(segments) {
  const Elf64_Phdr &where = segments_.dynamic();
  const uint64_t count = where.p_filesz / sizeof(Elf64_Dyn);
  if (count == 0 || count > kMaxEntries || where.p_filesz % sizeof(Elf64_Dyn) != 0)
    fail_elf("expected a dynamic section of entries of 16 bytes, found ", where.p_filesz, " bytes");
  entries_.resize(count);
  if (!segments_.file().read(where.p_offset, entries_.data(), where.p_filesz))
    fail_elf("its dynamic section cannot be read");
  const auto end = std::find_if(entries_.begin(), entries_.end(),
                                [](const Elf64_Dyn &e) { return e.d_tag == DT_NULL; });
  if (end == entries_.end()) fail_elf("its dynamic section has no end (DT_NULL)");
  entries_.erase(end, entries_.end());

  string_bytes_ = value(DT_STRSZ);
  if (!has(DT_STRTAB) || !segments_.offset_of(value(DT_STRTAB), string_bytes_, &strings_))
    fail_elf("its table of names (DT_STRTAB) is outside of the file");
  uint64_t offset = 0;
  if (!has(DT_SYMTAB) || value(DT_SYMENT) != sizeof(Elf64_Sym) ||
      !segments_.offset_of(value(DT_SYMTAB), sizeof(Elf64_Sym), &offset))
    fail_elf("its table of symbols (DT_SYMTAB) is outside of the file");
  if (!has(DT_GNU_HASH) && !has(DT_HASH)) fail_elf("it has no hash table (DT_GNU_HASH or DT_HASH)");
  require_table("relocations (DT_RELA)", DT_RELA, DT_RELASZ, DT_RELAENT, sizeof(Elf64_Rela));
  require_table("relocations of calls (DT_JMPREL)", DT_JMPREL, DT_PLTRELSZ, 0, sizeof(Elf64_Rela));
  require_table("initialisers (DT_INIT_ARRAY)", DT_INIT_ARRAY, DT_INIT_ARRAYSZ, 0, 8);
  require_table("finalisers (DT_FINI_ARRAY)", DT_FINI_ARRAY, DT_FINI_ARRAYSZ, 0, 8);
  constexpr int64_t kRelrsz = 35, kRelr = 36, kRelrent = 37;
  require_table("relative relocations (DT_RELR)", kRelr, kRelrsz, kRelrent, 8);
  require_functions();
  const uint16_t last = last_version();
  require_targets(DT_RELA, DT_RELASZ, last);
  require_targets(DT_JMPREL, DT_PLTRELSZ, last);
}

bool ElfDynamic::has(int64_t tag) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Elf64_Dyn &e) { return e.d_tag == tag; });
}

// The last entry of a tag counts, as for the system's loader.
uint64_t ElfDynamic::value(int64_t tag) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Elf64_Dyn &e) { return e.d_tag == tag; });
  return found == entries_.rend() ? 0 : found->d_un.d_val;
}

void ElfDynamic::require_table(const char *what, int64_t address, int64_t size, int64_t entry,
                               uint64_t entry_size) const {
  if (!has(address)) return;
  uint64_t offset = 0;
  const uint64_t bytes = value(size);
  if (bytes % entry_size != 0 || (entry != 0 && value(entry) != entry_size))
    fail_elf("its table of ", what, " has ", bytes, " bytes, expected a multiple of ", entry_size);
  if (bytes != 0 && !segments_.offset_of(value(address), bytes, &offset))
    fail_elf("its table of ", what, " is outside of the file");
}

void ElfDynamic::require_functions() const {
  for (const auto &[tag, name] : {std::pair<int64_t, const char *>{DT_INIT, "DT_INIT"},
                                  std::pair<int64_t, const char *>{DT_FINI, "DT_FINI"}})
    if (has(tag) && !segments_.executable(value(tag))) fail_elf(name, " is outside of its code");
  for (const auto &[tag, name] : {std::pair<int64_t, const char *>{DT_VERSYM, "DT_VERSYM"},
                                  std::pair<int64_t, const char *>{DT_VERNEED, "DT_VERNEED"},
                                  std::pair<int64_t, const char *>{DT_VERDEF, "DT_VERDEF"}})
    if (has(tag) && segments_.bytes_from(value(tag)) < 2) fail_elf(name, " is outside of the file");
}

template <typename T>
T ElfDynamic::at(uint64_t address, const char *what) const {
  uint64_t offset = 0;
  T found{};
  if (!segments_.offset_of(address, sizeof(T), &offset) || !segments_.file().read(offset, found))
    fail_elf(what, " points outside of the file");
  return found;
}

// The system's loader follows the chains to their ends, whatever numbers stand in front.
uint16_t ElfDynamic::last_version() const {
  constexpr uint64_t kMaxVersions = 4096;
  uint64_t steps = 0;
  uint16_t last = 1;  // 0: local, 1: global
  const auto step = [&] {
    if (++steps > kMaxVersions) fail_elf("its tables of versions have no end");
  };
  for (uint64_t need = has(DT_VERNEED) ? value(DT_VERNEED) : 0, next = 1; need != 0 && next != 0;
       need += next, step()) {
    const auto library = at<Elf64_Verneed>(need, "DT_VERNEED");
    text(library.vn_file);
    uint64_t aux = need + library.vn_aux;
    for (uint64_t follow = 1; follow != 0; aux += follow, step()) {
      const auto version = at<Elf64_Vernaux>(aux, "DT_VERNEED");
      text(version.vna_name);
      last = std::max<uint16_t>(last, version.vna_other & 0x7fff);
      follow = version.vna_next;
    }
    next = library.vn_next;
  }
  for (uint64_t own = has(DT_VERDEF) ? value(DT_VERDEF) : 0, next = 1; own != 0 && next != 0;
       own += next, step()) {
    const auto version = at<Elf64_Verdef>(own, "DT_VERDEF");
    text(at<Elf64_Verdaux>(own + version.vd_aux, "DT_VERDEF").vda_name);
    last = std::max<uint16_t>(last, version.vd_ndx & 0x7fff);
    next = version.vd_next;
  }
  return last;
}

void ElfDynamic::require_targets(int64_t address, int64_t size, uint16_t last_version) const {
  uint64_t offset = 0;
  if (!has(address) || !segments_.offset_of(value(address), value(size), &offset)) return;
  std::vector<Elf64_Rela> some(std::min<uint64_t>(value(size) / sizeof(Elf64_Rela), 1024));
  for (uint64_t left = value(size) / sizeof(Elf64_Rela); left != 0; left -= some.size()) {
    some.resize(std::min<uint64_t>(left, some.size()));
    if (!segments_.file().read(offset, some.data(), some.size() * sizeof(Elf64_Rela)))
      fail_elf("its relocations cannot be read");
    offset += some.size() * sizeof(Elf64_Rela);
    for (const Elf64_Rela &r : some) {
      if (ELF64_R_TYPE(r.r_info) == 0) continue;  // R_X86_64_NONE, R_AARCH64_NONE
      if (!segments_.writable(r.r_offset, 8) && !has(DT_TEXTREL))
        fail_elf("a relocation changes address ", r.r_offset, ", which is outside of its data");
      const uint64_t index = ELF64_R_SYM(r.r_info);
      if (index == 0) continue;
      uint64_t found = 0;
      if (!segments_.offset_of(value(DT_SYMTAB) + index * sizeof(Elf64_Sym), sizeof(Elf64_Sym),
                               &found))
        fail_elf("a relocation names symbol ", index, ", which is outside of the file");
      if (has(DT_VERSYM) &&
          (at<uint16_t>(value(DT_VERSYM) + index * 2, "DT_VERSYM") & 0x7fff) > last_version)
        fail_elf("symbol ", index, " has a version that its tables do not");
    }
  }
}

std::string ElfDynamic::text(uint64_t offset) const {
  if (offset >= string_bytes_) fail_elf("a name is outside of its table of names (DT_STRTAB)");
  std::string found;
  std::array<char, 64> part;
  while (found.size() < kMaxName) {
    const uint64_t take = std::min<uint64_t>(part.size(), string_bytes_ - offset);
    if (take == 0 || !segments_.file().read(strings_ + offset, part.data(), take)) break;
    char *end = std::find(part.data(), part.data() + take, '\0');
    found.append(part.data(), end);
    if (end != part.data() + take) return found;
    offset += take;
  }
  fail_elf("a name in its table of names (DT_STRTAB) has no end");
}

std::string ElfDynamic::text_of(int64_t tag) const {
  return has(tag) ? text(value(tag)) : std::string();
}

std::string ElfDynamic::rpath() const {
  return text_of(DT_RPATH);
}

std::string ElfDynamic::runpath() const {
  return text_of(DT_RUNPATH);
}

std::vector<std::string> ElfDynamic::needed() const {
  std::vector<std::string> names;
  for (const Elf64_Dyn &e : entries_)
    if (e.d_tag == DT_NEEDED) names.push_back(text(e.d_un.d_val));
  if (names.size() > kMaxNeeded)
    fail_elf("it needs ", names.size(), " libraries, expected at most ", kMaxNeeded);
  return names;
}

bool ElfDynamic::is(const Elf64_Sym &symbol, const std::string &name) const {
  // Compared in place: other names of the table may have no end.
  std::string found(name.size() + 1, '?');
  return symbol.st_name < string_bytes_ && found.size() <= string_bytes_ - symbol.st_name &&
         segments_.file().read(strings_ + symbol.st_name, found.data(), found.size()) &&
         found.back() == '\0' && found.compare(0, name.size(), name) == 0;
}

std::optional<Elf64_Sym> ElfDynamic::symbol(uint64_t index) const {
  uint64_t offset = 0;
  Elf64_Sym found{};
  if (!segments_.offset_of(value(DT_SYMTAB) + index * sizeof(found), sizeof(found), &offset) ||
      !segments_.file().read(offset, found))
    return std::nullopt;
  return found;
}

uint32_t ElfDynamic::word(uint64_t address) const {
  return at<uint32_t>(address, "its hash table");
}

std::optional<Elf64_Sym> ElfDynamic::find(const std::string &name) const {
  return has(DT_GNU_HASH) ? find_by_gnu_hash(name) : find_by_hash(name);
}

std::optional<Elf64_Sym> ElfDynamic::find_by_gnu_hash(const std::string &name) const {
  uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  const uint64_t table = value(DT_GNU_HASH);
  const uint64_t buckets = word(table);
  const uint64_t first_symbol = word(table + 4);
  const uint64_t bloom_words = word(table + 8);
  if (buckets == 0 || bloom_words == 0 || (bloom_words & (bloom_words - 1)) != 0)
    fail_elf("its hash table (DT_GNU_HASH) has ", buckets, " buckets and ", bloom_words,
             " filter words");
  const uint64_t bucket_table = table + 16 + bloom_words * 8;
  const uint64_t chains = bucket_table + buckets * 4;
  uint64_t index = word(bucket_table + (hash % buckets) * 4);
  if (index == 0) return std::nullopt;
  if (index < first_symbol)
    fail_elf("its hash table (DT_GNU_HASH) names a symbol before its first");
  for (uint64_t steps = 0; steps < kMaxSteps; ++steps, ++index) {
    const uint32_t entry = word(chains + (index - first_symbol) * 4);
    if ((entry | 1) == (hash | 1)) {
      const auto candidate = symbol(index);
      if (!candidate) fail_elf("its hash table (DT_GNU_HASH) names a symbol outside of the file");
      if (is(*candidate, name)) return candidate;
    }
    if ((entry & 1) != 0) return std::nullopt;
  }
  fail_elf("a chain of its hash table (DT_GNU_HASH) has no end");
}

std::optional<Elf64_Sym> ElfDynamic::find_by_hash(const std::string &name) const {
  uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4) + static_cast<unsigned char>(c);
    hash = (hash ^ ((hash >> 24) & 0xF0)) & 0x0FFFFFFF;
  }
  const uint64_t table = value(DT_HASH);
  const uint64_t buckets = word(table);
  if (buckets == 0) fail_elf("its hash table (DT_HASH) has no buckets");
  uint64_t index = word(table + 8 + (hash % buckets) * 4);
  for (uint64_t steps = 0; index != STN_UNDEF && steps < kMaxSteps; ++steps) {
    const auto candidate = symbol(index);
    if (!candidate) fail_elf("its hash table (DT_HASH) names a symbol outside of the file");
    if (is(*candidate, name)) return candidate;
    index = word(table + 8 + buckets * 4 + index * 4);
  }
  if (index == STN_UNDEF) return std::nullopt;
  fail_elf("a chain of its hash table (DT_HASH) has no end");
}

}  // namespace octavo
