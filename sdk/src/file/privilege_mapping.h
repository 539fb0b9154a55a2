// After the system's loader has mapped a library: is it the file that was checked?
#pragma once

#include <string>

#include "sdk/src/file/privilege_file.h"

namespace octavo {

// Empty when `address` is in a mapping of `file` and the file has not changed since it was
// opened; else what is wrong. `maps`: the kernel's list of this process's mappings.
std::string mapping_problem(const CheckedFile &file, const void *address,
                            const char *maps = "/proc/self/maps");

}  // namespace octavo
