// After the system's loader has mapped a library: is it the file that was checked?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sdk/src/file/privilege_file.h"

namespace octavo {

// The kernel's line about the mapping that holds each address, empty where none does. Nothing: the
// list of mappings cannot be opened.
std::optional<std::vector<std::string>> mapping_lines(const std::vector<const void *> &addresses,
                                                      const char *maps = "/proc/self/maps");

// Empty when `address` is in a mapping of `file` and the file has not changed since it was
// opened; else what is wrong. `maps`: the kernel's list of this process's mappings.
std::string mapping_problem(const CheckedFile &file, const void *address,
                            const char *maps = "/proc/self/maps");

}  // namespace octavo
