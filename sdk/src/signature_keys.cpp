// Key files pass the same walk as plugins: who can write a key can sign everything.
#include "signature_keys.h"

#include <algorithm>
#include <filesystem>

#include "failure.h"
#include "secure_path.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = 4 << 10;
constexpr const char *kRemedy = "name a key of minisign, or a file that holds one, in plugins.keys";

// Throws Failure.
PublicKey key_file(const std::string &path, uid_t owner, std::string *remedy) {
  const SecureFile file(path, "octavo.trust");
  const std::string problem = path_problem(path, file, owner, Links::kFollow, remedy);
  if (!problem.empty()) throw Failure(OCTAVO_INVALID, "octavo.trust", problem);
  if (const auto key = parse_public_key(file.read(kMostBytes), path)) return *key;
  throw Failure(OCTAVO_INVALID, "octavo.trust",
                path + ": expected a public key of minisign, found something else");
}

}  // namespace

std::vector<PublicKey> trusted_keys(const std::vector<std::string> &given,
                                    const std::string &system, bool privileged,
                                    std::string *problem, std::string *remedy) {
  std::vector<PublicKey> keys;
  try {
    if (!privileged)
      for (const std::string &key : given) {
        const auto parsed = parse_public_key(key, "plugins.keys");
        keys.push_back(parsed ? *parsed : key_file(key, trusted_owner(false), remedy));
      }
    std::error_code ec;
    std::vector<std::string> files;
    for (const auto &entry : fs::directory_iterator(system, ec))
      if (entry.path().extension() == ".pub") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string &file : files) keys.push_back(key_file(file, kNobody, remedy));
  } catch (const Failure &f) {
    *problem = f.text();
    if (remedy->empty()) *remedy = kRemedy;
  }
  return keys;
}

}  // namespace octavo
