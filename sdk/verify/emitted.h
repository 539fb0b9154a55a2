// What a session emitted, as text.
#pragma once

#include <string>

#include "session.h"

namespace octavo::conformance {

// Every slot and every use.
std::string emitted(const Session &s);
// "expected 'slot 3 ...', found 'slot 4 ...'".
std::string first_difference(const std::string &a, const std::string &b);

}  // namespace octavo::conformance
