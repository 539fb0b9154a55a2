// An entry carries its own hash, so a torn or edited one is as good as none.
#include "sdk/src/probe/probe_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sdk/src/base/shortage.h"
#include "sdk/src/file/draft.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/file/privilege_path.h"
#include "sdk/src/plugin/elf_file.h"

namespace octavo {
namespace {

constexpr std::string_view kMagic = "octavo-probe-cache 1\n";

// Makes the directory, closed to others, or returns why it is not used.
std::string directory_problem(const std::string &path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return path + " cannot be created: " + std::strerror(errno);
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return path + " is no directory";
  if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return path + " belongs to another user or can be written by others";
  return {};
}

std::string records_of(const RememberedProbe &probe) {
  std::string bytes = hello_record();
  if (probe.answer.stage != ProbeStage::kNone) bytes += stage_record(probe.answer.stage);
  for (const Verdict &v : probe.answer.verdicts) bytes += verdict_record(v);
  for (const std::string &w : probe.answer.warnings) bytes += warning_record(w);
  for (const std::string &n : probe.answer.notes) bytes += note_record(n);
  return bytes + end_record();
}

}  // namespace

ProbeCache::ProbeCache() {
  // Its environment is another user's, whose verdicts must not count.
  if (privileged()) {
    problem_ = "the process runs with raised privileges";
    return;
  }
  const char *cache = std::getenv("XDG_CACHE_HOME");
  const char *home = std::getenv("HOME");
  std::string base;
  if (cache != nullptr && *cache == '/') {
    base = cache;
  } else if (home != nullptr && *home == '/') {
    base = std::string(home) + "/.cache";
  } else {
    problem_ = "neither XDG_CACHE_HOME nor HOME names a directory";
    return;
  }
  *this = ProbeCache(base + "/octavo");
  if (problem_.empty()) return;
  // ~/.cache itself may be missing yet.
  mkdir(base.c_str(), 0700);
  *this = ProbeCache(base + "/octavo");
}

ProbeCache::ProbeCache(const std::string &directory) : directory_(directory + "/probe") {
  problem_ = directory_problem(directory);
  if (problem_.empty()) problem_ = directory_problem(directory_);
}

std::string ProbeCache::file_of(const std::string &library) const {
  return directory_ + "/" + sha256_of(library).substr(0, 32);
}

std::optional<RememberedProbe> ProbeCache::find(const std::string &library,
                                                const std::string &key) const {
  if (!problem_.empty()) return std::nullopt;
  std::string bytes;
  try {
    std::string ignored;
    const auto file = ElfFile::open(file_of(library), &ignored);
    if (!file || file->size() > 2 * kMaxProbeBytes) return std::nullopt;
    bytes.resize(file->size());
    if (!file->read(0, bytes.data(), bytes.size())) return std::nullopt;
  } catch (const Shortage &) {
    return std::nullopt;  // then the probe says what is short
  }
  std::string_view rest = bytes;
  if (rest.size() < kMagic.size() + kSha256Digits || rest.substr(0, kMagic.size()) != kMagic)
    return std::nullopt;
  rest.remove_prefix(kMagic.size());
  const std::string_view hash = rest.substr(0, kSha256Digits);
  rest.remove_prefix(kSha256Digits);
  if (hash != sha256_of(rest)) return std::nullopt;
  // "\n<timeout> <bytes of the key>\n", the key, the records.
  RememberedProbe found;
  size_t key_bytes = 0;
  int header = 0;
  const std::string line(rest.substr(0, 64));
  const int numbers =
      std::sscanf(line.c_str(), "\n%d %zu\n%n", &found.timeout_ms, &key_bytes, &header);
  if (numbers != 2 || rest.size() - static_cast<size_t>(header) < key_bytes) return std::nullopt;
  rest.remove_prefix(static_cast<size_t>(header));
  if (rest.substr(0, key_bytes) != key) return std::nullopt;
  ProbeReader reader;
  if (!reader.feed(rest.substr(key_bytes)) || !reader.answer().complete) return std::nullopt;
  found.answer = reader.answer();
  return found;
}

bool ProbeCache::store(const std::string &library, const std::string &key,
                       const RememberedProbe &probe) const {
  if (!problem_.empty()) return false;
  const std::string body =
      concat("\n", probe.timeout_ms, " ", key.size(), "\n", key, records_of(probe));
  const std::string target = file_of(library);
  const std::string all = std::string(kMagic) + sha256_of(body) + body;
  Draft draft(target, 0600);
  if (draft.file() >= 0 && draft.write(all.data(), all.size()) && draft.close() && draft.commit())
    return true;
  unlink(target.c_str());
  return false;
}

}  // namespace octavo
