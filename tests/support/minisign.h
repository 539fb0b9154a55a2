// Signs as minisign does, with a key that lives as long as the test.
#pragma once

#include <sodium.h>

#include <string>

namespace octavo::test {

class Signer {
 public:
  Signer() {
    crypto_sign_keypair(public_, secret_);
    randombytes_buf(id_, sizeof(id_));
  }

  // The line that plugins.keys takes.
  std::string public_line() const { return base64("Ed" + id() + text(public_, sizeof(public_))); }
  std::string public_file() const {
    return "untrusted comment: minisign public key\n" + public_line() + "\n";
  }

  // The text of <file>.sig.
  std::string sign(const std::string &bytes, const std::string &comment = "test") const {
    unsigned char hash[crypto_generichash_BYTES_MAX];
    crypto_generichash(hash, sizeof(hash), data(bytes), bytes.size(), nullptr, 0);
    const std::string first = detached(text(hash, sizeof(hash)));
    return "untrusted comment: x\n" + base64("ED" + id() + first) +
           "\ntrusted comment: " + comment + "\n" + base64(detached(first + comment)) + "\n";
  }

  static std::string base64(const std::string &bytes) {
    std::string out(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
    sodium_bin2base64(out.data(), out.size(), data(bytes), bytes.size(),
                      sodium_base64_VARIANT_ORIGINAL);
    out.pop_back();
    return out;
  }

 private:
  static const unsigned char *data(const std::string &s) {
    return reinterpret_cast<const unsigned char *>(s.data());
  }
  static std::string text(const unsigned char *p, size_t n) {
    return {reinterpret_cast<const char *>(p), n};
  }
  std::string id() const { return text(id_, sizeof(id_)); }
  std::string detached(const std::string &message) const {
    unsigned char out[crypto_sign_BYTES];
    crypto_sign_detached(out, nullptr, data(message), message.size(), secret_);
    return text(out, sizeof(out));
  }

  unsigned char public_[crypto_sign_PUBLICKEYBYTES];
  unsigned char secret_[crypto_sign_SECRETKEYBYTES];
  unsigned char id_[8];
};

}  // namespace octavo::test
