// The arithmetic is libsodium's.
#include "sdk/src/checkpoint/checkpoint_hash.h"

#include <algorithm>

namespace octavo {

Blake2b::Blake2b() {
  // Without it libsodium takes the code that runs on every processor.
  static const bool is_ready = sodium_init() >= 0;
  static_cast<void>(is_ready);
  crypto_generichash_init(&state_, nullptr, 0, kBlake2bDigits / 2);
}

void Blake2b::add(const void *from, uint64_t bytes) {
  crypto_generichash_update(&state_, static_cast<const unsigned char *>(from), bytes);
}

std::string Blake2b::hex() {
  unsigned char hash[kBlake2bDigits / 2];
  crypto_generichash_final(&state_, hash, sizeof(hash));
  char digits[kBlake2bDigits + 1];
  return sodium_bin2hex(digits, sizeof(digits), hash, sizeof(hash));
}

std::string blake2b_of(std::string_view bytes) {
  Blake2b hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

std::string no_blake2b() {
  return std::string(kBlake2bDigits, '0');
}

std::optional<Seal> seal_of(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos || text.size() - at - mark.size() < kBlake2bDigits) return {};
  const size_t first = at + mark.size();
  Blake2b hash;
  hash.add(text.data(), first);
  hash.add(no_blake2b().data(), kBlake2bDigits);
  hash.add(text.data() + first + kBlake2bDigits, text.size() - first - kBlake2bDigits);
  return Seal{std::string(text.substr(first, kBlake2bDigits)), hash.hex()};
}

bool seal(std::string &text, std::string_view mark) {
  const std::optional<Seal> found = seal_of(text, mark);
  if (!found) return false;
  text.replace(text.find(mark) + mark.size(), kBlake2bDigits, found->computed);
  return true;
}

}  // namespace octavo
