// The layouts follow minisign's documentation; the arithmetic is libsodium's.
//
// A key is "Ed", 8 bytes of id, 32 bytes of Ed25519 key. A signature is an algorithm, 8 bytes of
// id, 64 bytes; "ED" signs the BLAKE2b-512 hash of the file, "Ed" the file itself. A second
// signature covers the first one and the trusted comment.
#include "sdk/src/trust/signature.h"

#include <sodium.h>

#include <algorithm>
#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/listing.h"
#include "sdk/src/file/privilege_path.h"

namespace octavo {
namespace {

constexpr size_t kIdBytes = 8;
constexpr size_t kHeadBytes = 2 + kIdBytes;

std::string from_base64(const std::string &text) {
  std::string bytes(text.size(), '\0');
  size_t size = 0;
  const char *end = nullptr;
  if (sodium_base642bin(reinterpret_cast<unsigned char *>(bytes.data()), bytes.size(), text.data(),
                        text.size(), nullptr, &size, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
      end != text.data() + text.size())
    return {};
  bytes.resize(size);
  return bytes;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines = split_lines(text);
  for (std::string &line : lines)
    if (!line.empty() && line.back() == '\r') line.pop_back();
  return lines;
}

const unsigned char *bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char *>(text.data());
}

bool verifies(std::string_view signature, std::string_view message, const PublicKey &key) {
  return signature.size() == crypto_sign_BYTES &&
         crypto_sign_verify_detached(bytes_of(signature), bytes_of(message), message.size(),
                                     bytes_of(key.key)) == 0;
}

namespace fs = std::filesystem;
constexpr size_t kMostBytes = 4 << 10;
constexpr const char *kRemedy = "name a key of minisign, or a file that holds one, in plugins.keys";

// Throws Failure.
PublicKey key_file(const std::string &path, uid_t owner, Remedy *remedy) {
  const CheckedFile file(path, "octavo.trust");
  const std::string problem = path_problem(path, file, owner, Links::kFollow, remedy);
  if (!problem.empty()) throw Failure(OCTAVO_INVALID, "octavo.trust", problem);
  if (const auto key = parse_public_key(file.read(kMostBytes), path)) return *key;
  throw Failure(OCTAVO_INVALID, "octavo.trust", path,
                ": expected a public key of minisign, found something else");
}

}  // namespace

std::string key_name(const PublicKey &key) {
  static const char *const digits = "0123456789ABCDEF";
  std::string name;  // the id is a little-endian number
  for (size_t i = key.id.size(); i-- > 0;) {
    const auto byte = static_cast<unsigned char>(key.id[i]);
    name += {digits[byte >> 4], digits[byte & 15]};
  }
  return name;
}

std::optional<PublicKey> parse_public_key(std::string_view text, const std::string &origin) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) return std::nullopt;
  const bool commented = lines[0].starts_with("untrusted comment:");
  if (commented && lines.size() < 2) return std::nullopt;
  const std::string bytes = from_base64(lines[commented ? 1 : 0]);
  if (bytes.size() != kHeadBytes + crypto_sign_PUBLICKEYBYTES || !bytes.starts_with("Ed"))
    return std::nullopt;
  return PublicKey{bytes.substr(2, kIdBytes), bytes.substr(kHeadBytes), origin};
}

std::string signature_problem(std::string_view bytes, std::string_view signature,
                              const std::vector<PublicKey> &keys, PublicKey *by) {
  constexpr std::string_view kTrusted = "trusted comment: ";
  const std::vector<std::string> lines = lines_of(signature);
  const std::string first = lines.size() < 4 ? "" : from_base64(lines[1]);
  if (lines.size() < 4 || !lines[0].starts_with("untrusted comment:") ||
      !lines[2].starts_with(kTrusted) || first.size() != kHeadBytes + crypto_sign_BYTES)
    return "expected the four lines of a signature of minisign, found something else";
  const bool hashed = first.starts_with("ED");
  if (!hashed && !first.starts_with("Ed"))
    return "expected an Ed25519 signature, found another algorithm";
  const PublicKey *key = nullptr;
  for (const PublicKey &k : keys)
    if (first.compare(2, kIdBytes, k.id) == 0) key = &k;
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const PublicKey &k : keys) known.push_back(key_name(k) + " (" + k.origin + ")");
    return "expected a signature of one of the keys " + enumerate(known, "or") +
           ", found one of the key " + key_name({first.substr(2, kIdBytes), "", ""});
  }
  std::string hash(crypto_generichash_BYTES_MAX, '\0');
  if (hashed)
    crypto_generichash(reinterpret_cast<unsigned char *>(hash.data()), hash.size(), bytes_of(bytes),
                       bytes.size(), nullptr, 0);
  const std::string plain = first.substr(kHeadBytes);
  if (!verifies(plain, hashed ? std::string_view(hash) : bytes, *key))
    return "the signature of the key " + key_name(*key) + " is not one of these bytes";
  if (!verifies(from_base64(lines[3]), plain + lines[2].substr(kTrusted.size()), *key))
    return "the trusted comment is not the one that the key " + key_name(*key) + " signed";
  *by = *key;
  return {};
}

std::vector<PublicKey> trusted_keys(const std::vector<std::string> &given,
                                    const std::string &system, bool privileged,
                                    std::string *problem, Remedy *remedy) {
  std::vector<PublicKey> keys;
  try {
    if (!privileged)
      for (const std::string &key : given) {
        const auto parsed = parse_public_key(key, "plugins.keys");
        keys.push_back(parsed ? *parsed : key_file(key, trusted_owner(false), remedy));
      }
    int error = 0;  // a directory that is not there has no keys
    for (const std::string &file : files_in(system, ".pub", &error))
      keys.push_back(key_file(file, kNobody, remedy));
  } catch (const Failure &f) {
    *problem = f.text();
    if (remedy->empty()) *remedy = kRemedy;
  }
  return keys;
}

}  // namespace octavo
