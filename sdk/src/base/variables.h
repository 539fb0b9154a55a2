// Variables of the environment by the beginning of their names.
#pragma once

#include <string>
#include <vector>

namespace octavo {

// The names of all variables that begin with `prefix`.
std::vector<std::string> variables_with(const std::string &prefix);

}  // namespace octavo
