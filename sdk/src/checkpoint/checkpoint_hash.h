// Hashes of tensors, and texts that carry a hash of themselves.
#pragma once

#include <sodium.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace octavo {

inline constexpr size_t kBlake2bDigits = 64;

// With 256 bits, as `b2sum -l 256` and hashlib.blake2b(data, digest_size=32) compute it.
class Blake2b {
 public:
  Blake2b();
  void add(const void *from, uint64_t bytes);
  std::string hex();  // once, at the end

 private:
  crypto_generichash_state state_;
};

std::string blake2b_of(std::string_view bytes);

enum class HashKind {
  kXxh3,    // XXH3 with 128 bits, as `xxhsum -H2` and Python's xxhash.xxh3_128 compute it
  kBlake2b  // Blake2b
};

// "XXH3" or "BLAKE2b".
const char *hash_name(HashKind kind);

// Of the bytes of a tensor. XXH3 is as fast as memory, and finds what happens by accident; BLAKE2b
// also withstands who looks for other bytes with the same hash.
class TensorHash {
 public:
  explicit TensorHash(HashKind kind);
  ~TensorHash();
  TensorHash(const TensorHash &) = delete;
  TensorHash &operator=(const TensorHash &) = delete;

  void add(const void *from, uint64_t bytes);
  std::string hex();  // once, at the end; 32 or 64 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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
