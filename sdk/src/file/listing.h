// Listing: the files of a directory that end in a suffix.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Their paths, sorted. *error: 0; ENOENT or ENOTDIR when there is no such directory; EACCES when
// this user may not read it; the paths are then empty. Throws ResourceUnavailable for what says
// nothing about the directory.
std::vector<std::string> files_in(const std::string &directory, std::string_view suffix,
                                  int *error);

}  // namespace octavo
