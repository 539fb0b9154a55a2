// Settings that nobody would read. They are refused, since the user expects them to take effect.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/config/config.h"

namespace octavo {

// Throws Failure(OCTAVO_INVALID, "octavo.config", ...) for an environment variable that is spelled
// like a key of the configuration, like an option of a backend that is not installed, or nearly
// like a variable that exists. Other variables whose names begin with OCTAVO_ are not liboctavo's
// to judge. plugins: the names of those that are installed.
void refuse_unread_variables(const std::vector<std::string> &plugins);

// plugins.pins and plugins.keys without the plugins.trust that reads them. Throws
// Failure(OCTAVO_INVALID, "octavo.config", ...), or returns a warning where an override of the
// program chose another trust.
std::vector<std::string> trust_settings_without_effect(const Config &config);

}  // namespace octavo
