// The shared libraries that this process has open.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace octavo {

// Files by the name that each states for itself (DT_SONAME), up to ".so". More than one file under
// a name are copies or versions of one runtime, which share symbols and no state.
std::map<std::string, std::vector<std::string>> open_libraries();

// The descriptors of this process by which libraries were opened, see plugin/checked_name.h.
std::vector<int> library_descriptors();

}  // namespace octavo
