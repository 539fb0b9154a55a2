// Who could put another file under this name? Walks a path component by component, each opened
// relative to the one before, so that a directory that was judged is the one that is entered.
#pragma once

#include <sys/types.h>

#include <string>

#include "secure_file.h"

namespace octavo {

enum class Links { kFollow, kRefuse };

// The user whose files count beside root's; kNobody: root's only. In a process with more rights
// than its user, the files of that user do not count.
// No file has this number.
inline constexpr uid_t kNobody = static_cast<uid_t>(-1);
uid_t trusted_owner(bool privileged);

// Empty when `file` is what `path`, which is absolute, leads to, and when nobody but root and
// `owner` can change that: every directory, every symbolic link and the file belong to one of them,
// and neither group nor others may write (directories with the sticky bit excepted, where others
// cannot replace what they do not own). Otherwise what is wrong, and where; *remedy, when given,
// receives a command that mends it, if one does.
std::string path_problem(const std::string &path, const SecureFile &file, uid_t owner, Links links,
                         std::string *remedy = nullptr);

}  // namespace octavo
