// A bounded look at a library's headers before the system's loader maps it.
#pragma once

#include <string>

namespace octavo {

// What keeps this file from being mapped as a shared library of this platform; empty: nothing.
// The system's loader trusts program headers: a truncated file would end the process with SIGBUS.
std::string elf_problem(const std::string &path);

}  // namespace octavo
