// Which folders of configuration files may bring plugins along: a file that came with a repository
// runs no code of that repository before its reader has said so, once, with `octavo plugin allow`.
#pragma once

#include <string>

namespace octavo {

// $XDG_DATA_HOME/octavo, else ~/.local/share/octavo. Empty: neither variable is set, or it is
// relative. Belongs to the user alone, so that a privileged process does not ask.
std::string user_data_directory();

// Whether the answer for this directory is recorded, in a file that root or this user alone can
// write to. Its path is resolved first: a link allows what it leads to now. Throws
// ResourceUnavailable.
bool is_allowed(const std::string &directory);

// Records the answer, in a file that only this user can write to, or takes it back. Throw Failure:
// OCTAVO_INVALID for no directory, OCTAVO_NO_RESOURCE where no answer can be kept.
void allow(const std::string &directory);
void disallow(const std::string &directory);

}  // namespace octavo
