// The shared libraries that this process has open.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo {

// Files by the name that each states for itself (DT_SONAME), up to ".so". More than one file under
// a name are copies or versions of one runtime, which share symbols and no state.
std::map<std::string, std::vector<std::string>> open_libraries();

}  // namespace octavo
