// An entry carries its own hash, so a torn or edited one is as good as none.
#include "sdk/src/probe/probe_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/remedy.h"
#include "sdk/src/file/atomic_file.h"
#include "sdk/src/file/listing.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/file/privilege_path.h"
#include "sdk/src/plugin/elf_file.h"

namespace octavo {
namespace {

constexpr std::string_view kMagic = "octavo-probe-cache 1\n";

constexpr const char *kNameAnother = "name a folder of this user in XDG_CACHE_HOME";

// Why the directory is not used, and what to do about it; empty: it is.
std::string problem_of(const std::string &path, Remedy *remedy) {
  struct stat st {};
  *remedy = kNameAnother;
  if (lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return path + " is not a directory";
  const bool own = st.st_uid == geteuid();
  if (own && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  if (own) *remedy = run_command("chmod go-w " + shell_word(path));
  return path + " belongs to another user or can be written by others";
}

// The same, after it was made, closed to others, where there was none.
std::string directory_problem(const std::string &path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return path + " cannot be created: " + std::strerror(errno);
  Remedy ignored;
  return problem_of(path, &ignored);
}

// Where caches of this user are; *problem has the reason where that is nowhere.
std::string base_directory(std::string *problem) {
  // The environment of a process with raised privileges is another user's, whose verdicts must not
  // count.
  const char *cache = std::getenv("XDG_CACHE_HOME");
  const char *home = std::getenv("HOME");
  if (privileged())
    *problem = "the process runs with raised privileges";
  else if (cache != nullptr && *cache == '/')
    return cache;
  else if (home != nullptr && *home == '/')
    return std::string(home) + "/.cache";
  else
    *problem = "neither XDG_CACHE_HOME nor HOME names a directory";
  return {};
}

struct Entry {
  int timeout_ms = 0;
  std::string key, records;
};

// Nothing when there is no such file or it is damaged.
std::optional<Entry> read_entry(const std::string &path) {
  std::string bytes;
  try {
    std::string ignored;
    const auto file = ElfFile::open(path, &ignored);
    if (!file || file->size() > 2 * kMaxProbeBytes) return std::nullopt;
    bytes.resize(file->size());
    if (!file->read(0, bytes.data(), bytes.size())) return std::nullopt;
  } catch (const ResourceUnavailable &) {
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
  Entry found;
  size_t key_bytes = 0;
  int header = 0;
  const std::string line(rest.substr(0, 64));
  const int numbers =
      std::sscanf(line.c_str(), "\n%d %zu\n%n", &found.timeout_ms, &key_bytes, &header);
  if (numbers != 2 || rest.size() - static_cast<size_t>(header) < key_bytes) return std::nullopt;
  rest.remove_prefix(static_cast<size_t>(header));
  found.key = rest.substr(0, key_bytes);
  found.records = rest.substr(key_bytes);
  return found;
}

// A key begins with the library's path and its identity, a line each.
bool is_stale(const std::string &file) {
  const std::optional<Entry> entry = read_entry(file);
  const std::vector<std::string> lines =
      entry ? split_lines(entry->key) : std::vector<std::string>();
  return lines.size() < 2 || file_identity(lines[0]) != lines[1];
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

std::string file_identity(const std::string &path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return "none";
  return concat(st.st_dev, ":", st.st_ino, ":", st.st_size, ":", st.st_mtim.tv_sec, ".",
                st.st_mtim.tv_nsec);
}

ProbeCacheSurvey survey_probe_cache() {
  ProbeCacheSurvey survey;
  const std::string base = base_directory(&survey.problem);
  survey.remedy = kNameAnother;
  if (base.empty()) return survey;
  survey.directory = base + "/octavo/probe";
  for (const std::string &part : {base + "/octavo", survey.directory}) {
    struct stat st {};
    if (lstat(part.c_str(), &st) != 0 && errno == ENOENT) return survey;  // nothing is remembered
    survey.problem = problem_of(part, &survey.remedy);
    if (!survey.problem.empty()) return survey;
  }
  int error = 0;
  for (const std::string &file : files_in(survey.directory, "", &error)) {
    ++survey.results;
    if (is_stale(file)) ++survey.stale;
  }
  if (error != 0) survey.problem = survey.directory + " cannot be read: " + std::strerror(error);
  return survey;
}

ProbeCache::ProbeCache() {
  const std::string base = base_directory(&problem_);
  if (base.empty()) return;
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
  const std::optional<Entry> entry = read_entry(file_of(library));
  if (!entry || entry->key != key) return std::nullopt;
  RememberedProbe found;
  found.timeout_ms = entry->timeout_ms;
  ProbeReader reader;
  if (!reader.feed(entry->records) || !reader.answer().complete) return std::nullopt;
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
  AtomicFile draft(target, 0600);
  if (draft.file() >= 0 && draft.write(all.data(), all.size()) && draft.close() && draft.commit())
    return true;
  unlink(target.c_str());
  return false;
}

}  // namespace octavo
