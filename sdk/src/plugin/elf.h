// A bounded look at a shared library before the system's loader maps it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sdk/src/base/verdict.h"

namespace octavo {

class CheckedFile;

struct ElfCheck {
  // What keeps this file from being mapped as a shared library here; empty: nothing. The system's
  // loader trusts headers: a truncated file would end the process with SIGBUS.
  std::string problem;
  // The entry that it exports as a function, OCTAVO_PLUGIN_SYMBOL or that of another ABI; empty:
  // none. Only looked for without a problem.
  std::string entry;
  std::string entry_problem;           // why an entry that is there does not count
  std::string build_id;                // lower-case hex; empty: none
  std::vector<std::string> needed;     // DT_NEEDED, in order
  std::vector<std::string> not_found;  // of `needed`: what the system's loader would not find
  // Files of libraries that only the search of this process finds, because it has opened them.
  std::vector<std::string> preload;
};

// Reads headers and tables by offset, never maps and never runs anything.
ElfCheck inspect_elf(const std::string &path, const CheckedFile *checked = nullptr);

// What the system's loader would take for a library, of its needs, from the places that the library
// or LD_LIBRARY_PATH names. Empty, too, for a file that is no sound library.
std::vector<std::string> named_needs(const std::string &library);

// Whether the system's loader finds the same libraries for a library when it opens it by `name`,
// another name of the file in another directory: it may search next to that. False, too, where that
// cannot be found out.
bool needs_the_same(const std::string &library, const std::string &name);

// The refusal that follows from a check; nothing when the file may be opened.
std::optional<Verdict> elf_verdict(const std::string &library, const ElfCheck &check);

}  // namespace octavo
