// Privilege: what a process with more rights than the user who started it may rely on, and who
// could put another file under a name. A path is walked component by component, each opened
// relative to the one before, so that a directory that was judged is the one that is entered.
#pragma once

#include <sys/types.h>

#include <string>

#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {

// Set-uid, set-gid or with file capabilities: the kernel's AT_SECURE. Then nothing that the user
// alone controls may choose which code runs.
bool privileged();

enum class Links { kFollow, kRefuse };

// The user whose files count in addition to root's; kNobody: root's only. In a process with more
// rights than its user, the files of that user do not count. No file has this number.
inline constexpr uid_t kNobody = static_cast<uid_t>(-1);
uid_t trusted_owner(bool privileged);

// Empty when `file` is what `path`, which is absolute, leads to, and when nobody but root and
// `owner` can change that: every directory, every symbolic link and the file belong to one of them,
// and neither group nor others may write (directories with the sticky bit excepted, where others
// cannot replace what they do not own). Otherwise what is wrong, and where; *remedy, when given,
// receives a command that fixes it, if there is one.
std::string path_problem(const std::string &path, const CheckedFile &file, uid_t owner, Links links,
                         Remedy *remedy = nullptr);
// The same for a folder: the reason for which every file in it would be refused.
std::string folder_problem(const std::string &path, uid_t owner, Remedy *remedy);

}  // namespace octavo
