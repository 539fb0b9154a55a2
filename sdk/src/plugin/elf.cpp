// Puts the parts of the check together and words what they found.
#include "sdk/src/plugin/elf.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "octavo/plugin.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/plugin/elf_file.h"
#include "sdk/src/plugin/elf_needed.h"

namespace octavo {
namespace {

constexpr uint64_t kMaxNotes = uint64_t{1} << 16;  // bytes

std::string build_id(const ElfSegments &segments) {
  for (const Elf64_Phdr &s : segments.all()) {
    if (s.p_type != PT_NOTE || s.p_filesz > kMaxNotes) continue;
    const uint64_t align = s.p_align == 8 ? 8 : 4;
    const auto padded = [&](uint64_t n) { return (n + align - 1) / align * align; };
    Elf64_Nhdr note{};
    for (uint64_t at = 0; at + sizeof(note) <= s.p_filesz;) {
      if (!segments.file().read(s.p_offset + at, note)) break;
      const uint64_t name = s.p_offset + at + sizeof(note);
      const uint64_t content = s.p_offset + at + padded(sizeof(note) + note.n_namesz);
      std::array<unsigned char, 64> id;
      std::array<char, 4> owner{};
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == owner.size() &&
          note.n_descsz <= id.size() && segments.file().read(name, owner) &&
          owner == std::array<char, 4>{'G', 'N', 'U', '\0'} &&
          segments.file().read(content, id.data(), note.n_descsz)) {
        std::string hex;
        for (uint32_t i = 0; i < note.n_descsz; ++i)
          for (const int nibble : {id[i] >> 4, id[i] & 15}) hex += "0123456789abcdef"[nibble];
        return hex;
      }
      at += padded(sizeof(note) + note.n_namesz) + padded(note.n_descsz);
    }
  }
  return {};
}

// Why a symbol of the right name is no entry; empty: it is one.
std::string symbol_problem(const Elf64_Sym &symbol, const ElfSegments &segments) {
  if (symbol.st_shndx == SHN_UNDEF) return "is only imported, not defined";
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  if ((binding != STB_GLOBAL && binding != STB_WEAK && binding != STB_GNU_UNIQUE) ||
      (visibility != STV_DEFAULT && visibility != STV_PROTECTED))
    return "is hidden";
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (type != STT_FUNC && type != STT_GNU_IFUNC)
    return concat("is not a function (symbol type ", type, ")");
  if (!segments.executable(symbol.st_value)) return "is outside of the library's code";
  return {};
}

// The entries of other ABIs: a release has the major as its suffix. "v1" stands for the release
// candidates 1 to 3 of major 1, later ones have a name each.
constexpr std::string_view kEntryPrefix = "octavo_plugin_query_";
constexpr std::string_view kReleases = "123456789";
constexpr std::array<std::string_view, 5> kCandidates = {"v1", "rc4", "rc5", "rc6", "rc7"};

std::vector<std::string> entries() {
  std::vector<std::string> names = {OCTAVO_PLUGIN_SYMBOL};  // this host's own comes first
  for (const char major : kReleases) names.push_back(concat(kEntryPrefix, major));
  for (const std::string_view candidate : kCandidates)
    names.push_back(concat(kEntryPrefix, candidate));
  return names;
}

void find_entry(const ElfDynamic &dynamic, const ElfSegments &segments, ElfCheck &check) {
  for (const std::string &name : entries()) {
    const auto symbol = dynamic.find(name);
    if (!symbol) continue;
    check.entry_problem = symbol_problem(*symbol, segments);
    if (check.entry_problem.empty())
      check.entry = name;
    else
      check.entry_problem = name + " " + check.entry_problem;
    return;
  }
}

// `path`: by which the library is opened.
NeededSearch search_of(const std::string &path, const ElfDynamic &dynamic) {
  NeededSearch search;
  search.origin = std::filesystem::path(path).parent_path().string();
  search.rpath = dynamic.rpath();
  search.runpath = dynamic.runpath();
  return search;
}

void find_libraries(const std::string &path, const ElfDynamic &dynamic, ElfCheck &check) {
  const NeededSearch search = search_of(path, dynamic);
  check.needed = dynamic.needed();
  for (const std::string &name : check.needed) {
    const NeededFile file = find_needed(name, search);
    if (file.path.empty()) check.not_found.push_back(name);
    if (file.only_here) check.preload.push_back(file.path);
  }
}

// Calls it unless the file is no sound library.
template <typename Look>
void with_dynamic(const std::string &path, const Look &look) {
  std::string problem;
  const auto file = ElfFile::open(path, &problem);
  if (!file) return;
  try {
    const ElfSegments segments(*file);
    look(ElfDynamic(segments));
  } catch (const Failure &) {
    return;  // inspect_elf says why
  }
}

}  // namespace

ElfCheck inspect_elf(const std::string &path, const CheckedFile *checked) {
  ElfCheck check;
  const auto file =
      checked != nullptr ? ElfFile::of(*checked) : ElfFile::open(path, &check.problem);
  if (!file) return check;
  try {
    const ElfSegments segments(*file);
    const ElfDynamic dynamic(segments);
    check.build_id = build_id(segments);
    find_entry(dynamic, segments, check);
    find_libraries(path, dynamic, check);
  } catch (const Failure &f) {
    check.problem = f.text();
  }
  return check;
}

std::vector<std::string> named_needs(const std::string &library) {
  std::vector<std::string> found;
  with_dynamic(library, [&](const ElfDynamic &dynamic) {
    const NeededSearch search = search_of(library, dynamic);
    for (const std::string &needed : dynamic.needed())
      if (std::string path = find_named(needed, search); !path.empty()) found.push_back(path);
  });
  return found;
}

bool needs_the_same(const std::string &library, const std::string &name) {
  bool is_same = false;
  with_dynamic(name, [&](const ElfDynamic &dynamic) {
    const NeededSearch search = search_of(library, dynamic), other = search_of(name, dynamic);
    is_same = std::ranges::all_of(dynamic.needed(), [&](const std::string &needed) {
      return find_named(needed, search) == find_named(needed, other);  // the rest is the system's
    });
  });
  return is_same;
}

std::optional<Verdict> elf_verdict(const std::string &library, const ElfCheck &check) {
  const auto decline = [&](uint32_t reason, const std::string &text, const std::string &remedy) {
    return Verdict{OCTAVO_LEVEL_PLUGIN,   OCTAVO_DECLINE, reason,
                   library + ": " + text, library,        remedy};
  };
  if (!check.problem.empty())
    return decline(OCTAVO_REASON_LIBRARY, "cannot be loaded: " + check.problem,
                   "install what is missing, or reinstall the plugin");
  if (!check.entry_problem.empty())
    return decline(OCTAVO_REASON_LIBRARY,
                   "expected the function " OCTAVO_PLUGIN_SYMBOL ", but " + check.entry_problem,
                   "declare the entry as a function with OCTAVO_EXPORT");
  if (check.entry.empty())
    return decline(OCTAVO_REASON_LIBRARY,
                   "expected the symbol " OCTAVO_PLUGIN_SYMBOL ", found none",
                   "the file is not an Octavo plugin, or hides its entry: declare it "
                   "OCTAVO_EXPORT");
  if (check.entry != OCTAVO_PLUGIN_SYMBOL) {
    const std::string suffix = check.entry.substr(kEntryPrefix.size());
    const bool is_release = suffix.size() == 1;
    return decline(OCTAVO_REASON_ABI,
                   concat("exports ", check.entry, ", built for ",
                          is_release ? "ABI major " + suffix : std::string("a release candidate"),
                          "; this host has ABI ", OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR,
                          " and looks for " OCTAVO_PLUGIN_SYMBOL),
                   !is_release
                       ? std::string("rebuild the plugin with the headers of this liboctavo")
                   : suffix == std::to_string(OCTAVO_ABI_MAJOR)
                       ? std::string("upgrade liboctavo")
                       : concat("install a build of the plugin for ABI major ", OCTAVO_ABI_MAJOR));
  }
  if (!check.not_found.empty())
    return decline(
        OCTAVO_REASON_LIBRARY,
        "cannot be loaded: it needs " + enumerate(check.not_found) +
            ", which the system's loader would not find",
        "install " + enumerate(check.not_found) + ", or name its directory in LD_LIBRARY_PATH");
  return std::nullopt;
}

}  // namespace octavo
