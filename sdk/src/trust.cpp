// Owner and mode by lstat of each component that matters; the hash by libsodium.
#include "trust.h"

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace octavo {
namespace {

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// Empty when acceptable, else what is wrong with it.
std::string owner_problem(const std::string &path, bool directory) {
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return path + " cannot be inspected";
  if (directory ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
    return path + (directory ? " is not a directory" : " is not a regular file");
  if (st.st_uid != 0 && st.st_uid != geteuid())
    return path + " belongs to user " + std::to_string(st.st_uid) + ", expected root or user " +
           std::to_string(geteuid());
  // The sticky bit keeps others from replacing files in a shared directory such as /tmp.
  const bool sticky = directory && (st.st_mode & S_ISVTX) != 0;
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky)
    return path + " has mode " + octal(st.st_mode) + ", writable by group or others";
  return {};
}

std::string sha256_of(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::array<char, 1 << 16> buffer;
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0)
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char *>(buffer.data()),
                              static_cast<unsigned long long>(in.gcount()));
  if (!in.is_open() || in.bad()) return {};
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, hash);
  char hex[2 * crypto_hash_sha256_BYTES + 1];
  sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
  return hex;
}

}  // namespace

bool check_trust(const Manifest &manifest, const std::string &trust, std::string *sha256,
                 std::vector<Verdict> &verdicts) {
  namespace fs = std::filesystem;
  if (trust != "dev") {
    const std::string manifest_file = fs::weakly_canonical(manifest.path).string();
    std::string problem = owner_problem(manifest.library, false);
    if (problem.empty()) problem = owner_problem(manifest_file, false);
    for (const std::string &file : {manifest.library, manifest_file})
      for (fs::path d = fs::path(file).parent_path(); problem.empty(); d = d.parent_path()) {
        problem = owner_problem(d.string(), true);
        if (d == d.root_path()) break;
      }
    if (!problem.empty()) {
      verdicts.push_back(
          {OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, OCTAVO_REASON_TRUST,
           "plugins.trust = \"owner\" refuses the file", problem,
           "correct owner and mode, or set plugins.trust = \"dev\" while developing"});
      return false;
    }
  }
  *sha256 = sha256_of(manifest.library);
  if (!manifest.sha256.empty() && manifest.sha256 != *sha256) {
    verdicts.push_back(
        {OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, OCTAVO_REASON_TRUST,
         "the library is not the one that its manifest describes",
         manifest.library + ": expected sha256 " + manifest.sha256 + ", found " + *sha256,
         "reinstall the plugin"});
    return false;
  }
  return true;
}

}  // namespace octavo
