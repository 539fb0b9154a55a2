// Whose signatures count: the keys of the configuration and those of the system's administrator.
#pragma once

#include <string>
#include <vector>

#include "signature.h"

namespace octavo {

// `given`: keys themselves, or absolute paths of their files, which are judged as plugins are;
// without effect in a privileged process, whose user may have written the configuration.
// `system`: a directory; its files that end in .pub must be root's. A key that cannot be used is
// not left out: *problem says what is wrong with it, *remedy what to do.
std::vector<PublicKey> trusted_keys(const std::vector<std::string> &given,
                                    const std::string &system, bool privileged,
                                    std::string *problem, std::string *remedy);

}  // namespace octavo
