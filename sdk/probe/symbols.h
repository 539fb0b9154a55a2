// Symbols that a library takes from whatever its process happens to have.
#pragma once

#include <string>

namespace octavo::probe {

// The first undefined symbol of an opened library that neither it nor what it needs defines, though
// this process has it; empty: none. Another process may lack it, and cannot open the library.
std::string borrowed_symbol(void *opened);

}  // namespace octavo::probe
