// The arithmetic is that of libsodium and of xxHash, whose header is compiled in.
#include "sdk/src/checkpoint/checkpoint_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <variant>

namespace octavo {
namespace {

std::string hex_of(const unsigned char *bytes, size_t count) {
  std::string digits(2 * count + 1, '\0');  // libsodium ends it with a zero byte
  sodium_bin2hex(digits.data(), digits.size(), bytes, count);
  digits.pop_back();
  return digits;
}

}  // namespace

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
  return hex_of(hash, sizeof(hash));
}

const char *hash_name(HashKind kind) {
  return kind == HashKind::kXxh3 ? "XXH3" : "BLAKE2b";
}

struct TensorHash::State {
  class Xxh3 {
   public:
    Xxh3() { XXH3_128bits_reset(&state_); }
    void add(const void *from, uint64_t bytes) { XXH3_128bits_update(&state_, from, bytes); }
    std::string hex() {
      XXH128_canonical_t bytes;
      XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&state_));
      return hex_of(bytes.digest, sizeof(bytes.digest));
    }

   private:
    XXH3_state_t state_;
  };

  std::variant<Xxh3, Blake2b> hash;
};

TensorHash::TensorHash(HashKind kind) : state_(std::make_unique<State>()) {
  if (kind == HashKind::kBlake2b) state_->hash.emplace<Blake2b>();
}

TensorHash::~TensorHash() = default;

void TensorHash::add(const void *from, uint64_t bytes) {
  std::visit([&](auto &hash) { hash.add(from, bytes); }, state_->hash);
}

std::string TensorHash::hex() {
  return std::visit([](auto &hash) { return hash.hex(); }, state_->hash);
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
