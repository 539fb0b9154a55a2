// Puts the parts of the check together and words what they found.
#include "sdk/src/plugin/elf.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "octavo/plugin.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/plugin/elf_library.h"
#include "sdk/src/plugin/elf_needed.h"

namespace octavo {
namespace {

// The entry of an ABI: a release has the major as its suffix. "v1" stands for the release
// candidates 1 to 3 of major 1, later ones have a name each.
constexpr std::string_view kEntryPrefix = "octavo_plugin_query_";

bool is_release(std::string_view entry) {
  const std::string_view suffix = entry.substr(kEntryPrefix.size());
  return suffix.size() == 1 && suffix >= "1" && suffix <= "9";
}

bool is_entry(std::string_view name) {
  const std::string_view suffix = name.substr(kEntryPrefix.size());
  return is_release(name) || suffix == "v1" ||
         (suffix.size() == 3 && suffix.starts_with("rc") && suffix[2] >= '4' && suffix[2] <= '9');
}

// This host's own comes first, then one that can be called.
void find_entry(const ElfLibrary &elf, ElfCheck &check) {
  std::vector<ElfLibrary::Symbol> all = elf.symbols(kEntryPrefix);
  std::erase_if(all, [](const ElfLibrary::Symbol &s) { return !is_entry(s.name); });
  const auto best = std::ranges::min_element(all, {}, [](const ElfLibrary::Symbol &s) {
    return std::pair(s.name != OCTAVO_PLUGIN_SYMBOL, !s.problem.empty());
  });
  if (best == all.end()) return;
  if (best->problem.empty())
    check.entry = best->name;
  else
    check.entry_problem = best->name + " " + best->problem;
}

// `path`: by which the library is opened.
NeededSearch search_of(const std::string &path, const ElfLibrary &elf) {
  return {std::filesystem::path(path).parent_path().string(), elf.rpath(), elf.runpath()};
}

// Calls it unless the file is no sound library; the problem, if any.
template <typename Look>
std::string with_library(const std::string &path, const CheckedFile *checked, const Look &look) {
  std::string problem;
  try {
    if (checked != nullptr) {
      look(ElfLibrary(*checked));
      return {};
    }
    struct stat status {};
    Descriptor opened = open_regular(path, &status, &problem);
    if (opened.get() < 0) return problem;
    const CheckedFile file(path, std::move(opened), "octavo.elf");
    look(ElfLibrary(file));
  } catch (const Failure &f) {
    problem = f.text();
  }
  return problem;
}

}  // namespace

ElfCheck inspect_elf(const std::string &path, const CheckedFile *checked) {
  ElfCheck check;
  check.problem = with_library(path, checked, [&](const ElfLibrary &elf) {
    find_entry(elf, check);
    const NeededSearch search = search_of(path, elf);
    for (const std::string &name : elf.needed())
      if (std::string here = opened_by_path(name); !here.empty() && !is_named(name, search))
        check.preload.push_back(std::move(here));
  });
  return check;
}

std::vector<std::string> named_needs(const std::string &library) {
  std::vector<std::string> found;
  with_library(library, nullptr, [&](const ElfLibrary &elf) {
    const NeededSearch search = search_of(library, elf);
    for (const std::string &needed : elf.needed())
      if (std::string path = find_named(needed, search); !path.empty()) found.push_back(path);
  });
  return found;
}

bool needs_the_same(const std::string &library, const std::string &name) {
  bool is_same = false;
  with_library(name, nullptr, [&](const ElfLibrary &elf) {
    const NeededSearch search = search_of(library, elf), other = search_of(name, elf);
    is_same = std::ranges::all_of(elf.needed(), [&](const std::string &needed) {
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
    const std::string major =
        is_release(check.entry) ? check.entry.substr(kEntryPrefix.size()) : std::string();
    return decline(OCTAVO_REASON_ABI,
                   concat("exports ", check.entry, ", built for ",
                          major.empty() ? std::string("a release candidate") : "ABI major " + major,
                          "; this host has ABI ", OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR,
                          " and looks for " OCTAVO_PLUGIN_SYMBOL),
                   major.empty()
                       ? std::string("rebuild the plugin with the headers of this liboctavo")
                   : major == std::to_string(OCTAVO_ABI_MAJOR)
                       ? std::string("upgrade liboctavo")
                       : concat("install a build of the plugin for ABI major ", OCTAVO_ABI_MAJOR));
  }
  return std::nullopt;
}

}  // namespace octavo
