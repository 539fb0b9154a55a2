// readdir, since the iterators of std::filesystem end the process when memory is short.
#include "sdk/src/file/listing.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "sdk/src/base/resource_unavailable.h"

namespace octavo {

std::vector<std::string> files_in(const std::string &directory, std::string_view suffix,
                                  int *error) {
  std::vector<std::string> files;
  const std::unique_ptr<DIR, int (*)(DIR *)> open(opendir(directory.c_str()), closedir);
  *error = open == nullptr ? errno : 0;
  if (open == nullptr) {
    pass_shortage(directory + ": cannot be read", "opendir", *error);
    return {};
  }
  errno = 0;
  while (const dirent *entry = readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() > suffix.size() && name.ends_with(suffix) && name != "." && name != "..")
      files.push_back(directory + "/" + std::string(name));
    errno = 0;
  }
  if (errno != 0) throw ResourceUnavailable(directory + ": cannot be read", "readdir", errno);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace octavo
