// libsodium's SHA-256 in hex.
#include "secure_hash.h"

#include <sodium.h>

namespace octavo {

std::string sha256_of(std::string_view bytes) {
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(hash, reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size());
  char hex[2 * sizeof(hash) + 1];
  return sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
}

bool is_sha256(std::string_view text) {
  return text.size() == 2 * crypto_hash_sha256_BYTES &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace octavo
