// The configuration made of any text, and the options of a backend in it.
#pragma once

#include <string_view>

namespace octavo::fuzz {

void read_as_config(std::string_view text);

}  // namespace octavo::fuzz
