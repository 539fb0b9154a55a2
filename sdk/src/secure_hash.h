// SHA-256 as Octavo's files write it: 64 digits of lower-case hex.
#pragma once

#include <string>
#include <string_view>

namespace octavo {

std::string sha256_of(std::string_view bytes);

bool is_sha256(std::string_view text);

}  // namespace octavo
