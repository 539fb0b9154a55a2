// What must not be in a text that people paste into a public page.
#pragma once

#include <string>

namespace octavo::cli::env {

// The value of a variable of Octavo where it is a setting, which tells nothing about a person; for
// any other variable, such as one with a path, "(set)".
std::string shown_value(const std::string &name, const std::string &value);

}  // namespace octavo::cli::env
