// Where the helper octavo-probe is, and which plugins are part of this installation.
#pragma once

#include <string>
#include <vector>

namespace octavo {

// OCTAVO_PROBE_HELPER (not in a process with raised privileges), else the first that exists next to
// liboctavo. Empty: none; then *looked names every place.
std::string probe_helper(std::vector<std::string> *looked);

// The file of the library or program that holds this address; empty: none does.
std::string file_holding(const void *address);
// That of liboctavo, or of a program that it is linked into.
const std::string &liboctavo_file();

// Whether the library is in octavo/plugins next to liboctavo, with liboctavo's owner and closed to
// others: who could put it there could as well replace liboctavo.
bool belongs_to_liboctavo(const std::string &library, const std::string &own = liboctavo_file());

}  // namespace octavo
