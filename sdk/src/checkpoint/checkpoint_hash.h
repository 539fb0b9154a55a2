// BLAKE2b with 256 bits, as `b2sum -l 256` and hashlib.blake2b(data, digest_size=32) compute it;
// and texts that carry a hash of themselves.
#pragma once

#include <sodium.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octavo {

inline constexpr size_t kBlake2bDigits = 64;

class Blake2b {
 public:
  Blake2b();
  void add(const void *from, uint64_t bytes);
  std::string hex();  // once, at the end

 private:
  crypto_generichash_state state_;
};

std::string blake2b_of(std::string_view bytes);

// The digits of a hash that is not known yet.
std::string no_blake2b();

// A sealed text has `mark` once and then 64 digits: the hash of the text with digits 0 in their
// place. Puts them there; false: there is no such place.
bool seal(std::string &text, std::string_view mark);

struct Seal {
  std::string stated;
  std::string computed;
  bool holds() const { return stated == computed; }
};
// None: the text has no such place.
std::optional<Seal> seal_of(std::string_view text, std::string_view mark);

}  // namespace octavo
