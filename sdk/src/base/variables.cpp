// The environment is read as it is now, since tests and hosts change it.
#include "sdk/src/base/variables.h"

#include <unistd.h>

#include <string_view>

namespace octavo {

std::vector<std::string> variables_with(const std::string &prefix) {
  std::vector<std::string> names;
  for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (line.substr(0, line.find('=')).starts_with(prefix))
      names.emplace_back(line.substr(0, line.find('=')));
  }
  return names;
}

}  // namespace octavo
