// Secure: whether this process has more rights than the user who started it. Then nothing that this
// user alone controls may choose which code runs.
#pragma once

namespace octavo {

// Set-uid, set-gid or with file capabilities: the kernel's AT_SECURE.
bool privileged();

}  // namespace octavo
