// Trust: may this file be loaded? Decided from owner, mode and hash, before any of its code runs.
#pragma once

#include <string>
#include <vector>

#include "manifest.h"
#include "verdict.h"

namespace octavo {

// trust "owner": the library and its manifest are regular files of root or of this user, and
// neither they nor their directories are writable by others. "dev": any file. A sha256 in the
// manifest is checked in both. Appends a declining verdict and returns false when the answer is no.
// *sha256 receives the library's hash in lower-case hex.
bool check_trust(const Manifest &manifest, const std::string &trust, std::string *sha256,
                 std::vector<Verdict> &verdicts);

}  // namespace octavo
