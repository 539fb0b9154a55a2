// Options of a backend from the environment: OCTAVO_FP8_<ID>_<OPTION>, above the file and below the
// program's overrides. fp8.te.margin is OCTAVO_FP8_TE_MARGIN.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "options.h"

namespace octavo {

// The variable of one option: upper case, everything but letters and digits as '_'.
std::string variable_of(const std::string &id, const std::string &option);

// `given` with what the environment says on top, except where an override stands. An empty variable
// counts as unset. Throws Failure(OCTAVO_INVALID, "octavo.config", ...) for a variable of this
// backend that names no option, and for a value that is not of the option's type.
std::map<std::string, Setting> with_environment(const std::vector<DeclaredOption> &declared,
                                                const std::string &id,
                                                std::map<std::string, Setting> given);

}  // namespace octavo
