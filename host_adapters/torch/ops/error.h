// Diagnostics as text, for errors in torch and for the Python package.
#pragma once

#include <string>

namespace octavo::ops {

// What backends and liboctavo reported on this thread since the last call, warnings and errors, one
// message a line.
std::string take_text();

}  // namespace octavo::ops
