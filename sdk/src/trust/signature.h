// Signatures: Ed25519 over a whole file, in the formats of minisign, so that authors sign with a
// tool that exists. This library verifies and never holds a secret key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/failure.h"

namespace octavo {

struct PublicKey {
  std::string id;      // 8 bytes
  std::string key;     // 32 bytes
  std::string origin;  // where it was given, for messages
};

// "minisign public key 1A2B..." as minisign writes the id.
std::string key_name(const PublicKey &key);

// One line of base64, alone or as the second line of a file of minisign. Empty when it is neither.
std::optional<PublicKey> parse_public_key(std::string_view text, const std::string &origin);

// Empty when `signature`, the text of a file of `minisign -S`, is that of one of the keys over
// `bytes`, its trusted comment included; else what is wrong. *by receives the key.
std::string signature_problem(std::string_view bytes, std::string_view signature,
                              const std::vector<PublicKey> &keys, PublicKey *by);

// Whose signatures count: the keys of the configuration and of the system's administrator.
// `given`: keys themselves, or absolute paths of their files, which are judged as plugins are;
// without effect in a privileged process, whose user may have written the configuration.
// `system`: a directory; its files that end in .pub must be root's. A key that cannot be used is
// not left out: *problem receives what is wrong with it, *remedy what to do.
std::vector<PublicKey> trusted_keys(const std::vector<std::string> &given,
                                    const std::string &system, bool privileged,
                                    std::string *problem, Remedy *remedy);

}  // namespace octavo
