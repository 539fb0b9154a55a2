// What belongs together is decided by the manifest alone; without one, only the message differs.
#include "sdk/src/checkpoint/checkpoint_set.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "octavo/hpp/size_signal.hpp"
#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/json.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_header.h"
#include "sdk/src/file/atomic_file.h"
#include "sdk/src/file/listing.h"

namespace octavo {

// What a name means, and the directory that holds the names.

std::string rank_file_name(uint32_t rank, uint32_t world, bool second) {
  char name[64];
  std::snprintf(name, sizeof(name), "rank-%04u-of-%04u%s.safetensors", rank, world,
                second ? ".b" : "");
  return name;
}

std::optional<RankName> rank_of_name(const std::string &name) {
  const std::string_view prefix = "rank-", middle = "-of-";
  const char *end = name.data() + name.size();
  RankName found{};
  if (name.rfind(prefix, 0) != 0) return {};
  const auto first = std::from_chars(name.data() + prefix.size(), end, found.rank);
  const std::string_view rest(first.ptr, static_cast<size_t>(end - first.ptr));
  if (first.ec != std::errc() || rest.substr(0, middle.size()) != middle) return {};
  const auto second = std::from_chars(first.ptr + middle.size(), end, found.world);
  if (second.ec != std::errc() || found.rank >= found.world) return {};
  for (const bool is_second : {false, true})
    if (name == rank_file_name(found.rank, found.world, is_second)) return found;
  return {};
}

std::vector<std::string> names_in(const std::string &directory) {
  int error = 0;
  std::vector<std::string> names;
  try {
    names = files_in(directory, "", &error);
  } catch (const ResourceUnavailable &s) {
    fail_checkpoint(OCTAVO_NO_RESOURCE, directory, s.message());
  }
  if (error != 0)
    fail_checkpoint(OCTAVO_NO_RESOURCE, directory,
                    "expected a directory that can be read, found: ", std::strerror(error),
                    "; check the path and its permissions");
  for (std::string &name : names) name.erase(0, directory.size() + 1);
  return names;
}

uint32_t find_world(const std::string &directory) {
  std::set<uint32_t> worlds;
  for (const std::string &name : names_in(directory))
    if (const std::optional<RankName> found = rank_of_name(name)) worlds.insert(found->world);
  if (worlds.size() > 1) {
    std::vector<std::string> found;
    for (const uint32_t world : worlds) found.push_back(std::to_string(world));
    fail_checkpoint(OCTAVO_INVALID, directory,
                    "expected the files of one checkpoint, found ranks of worlds of ",
                    enumerate(found), "; remove those that do not belong to it");
  }
  return worlds.empty() ? 0 : *worlds.begin();
}

void make_directory(const std::string &directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> made;
  for (fs::path next = fs::path(directory); !next.empty() && !fs::exists(next, error);
       next = next.parent_path())
    made.push_back(next);
  fs::create_directories(directory, error);
  if (error)
    fail_checkpoint(OCTAVO_NO_RESOURCE, directory,
                    "expected a directory that can be created, found: ", error.message(),
                    "; choose another one, or change the permissions of its parent");
  for (const fs::path &one : made)
    if (!sync_parent_directory(one.string()))
      fail_call(one.string(), "a directory that can be written to disk", errno, kCheckPath);
}

void remove_drafts(const std::string &directory) {
  for (const std::string &name : names_in(directory)) {
    const std::string target = name.substr(0, name.find(".tmp."));
    if (target.size() == name.size() || (target != kManifestName && !rank_of_name(target)))
      continue;
    std::error_code ignored;  // what stays is in nobody's way
    std::filesystem::remove(std::filesystem::path(directory) / name, ignored);
  }
}

// JSON with a hash of itself, as the headers of the files have.

namespace {

constexpr char kManifestMark[] = "\"manifest_blake2b\": \"";
constexpr uint64_t kManifestSchema = 1;
constexpr uint64_t kMostManifestBytes = 64 << 20;  // 65536 ranks take less than 16 MiB

[[noreturn]] void fail_manifest(const std::string &where, const std::string &found) {
  fail_checkpoint(OCTAVO_INVALID, where, "manifest: expected what octavo_store_save writes, found ",
                  found, "; the file is damaged: restore it, or load another checkpoint");
}

// One of the two names of the rank, so that nothing outside of the directory is ever opened.
RankFile file_of(const Json &entry, uint32_t rank, size_t world, const std::string &where) {
  const auto is = [&](const char *key, bool (Json::*kind)() const noexcept) {
    return entry.is_object() && entry.contains(key) && (entry.at(key).*kind)();
  };
  if (!is("name", &Json::is_string) || !is("bytes", &Json::is_number_unsigned) ||
      !is("blake2b", &Json::is_string))
    fail_manifest(where, concat("no name, bytes and blake2b for rank ", rank));
  RankFile file{entry.at("name"), entry.at("bytes"), entry.at("blake2b")};
  const std::optional<RankName> named = rank_of_name(file.name);
  if (!named || named->rank != rank || named->world != world)
    fail_manifest(where, concat("the file \"", file.name, "\" for rank ", rank, " of ", world));
  return file;
}

}  // namespace

std::string manifest_text(const CheckpointManifest &manifest) {
  Json json = {{"manifest", "octavo checkpoint"}, {"schema", kManifestSchema},
               {"run_id", manifest.run_id},       {"step", manifest.step},
               {"world", manifest.files.size()},  {"files", Json::array()},
               {"manifest_blake2b", no_blake2b()}};
  for (const RankFile &f : manifest.files)
    json["files"].push_back({{"name", f.name}, {"bytes", f.bytes}, {"blake2b", f.blake2b}});
  std::string text = json.dump(2) + "\n";
  seal(text, kManifestMark);
  return text;
}

CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string &where) {
  const std::optional<Seal> seal = seal_of(text, kManifestMark);
  if (!seal) fail_manifest(where, "no hash of itself");
  if (!seal->holds())
    fail_manifest(where, "its hash " + seal->computed + " instead of the stated " + seal->stated);
  // Deeper than any manifest: left out, and so refused below.
  const auto shallow = [](int depth, Json::parse_event_t, Json &) { return depth <= 3; };
  const Json json = Json::parse(text, shallow, false);
  if (!json.is_object() || !json.contains("schema") || !json.at("schema").is_number_unsigned())
    fail_manifest(where, "no schema");
  if (const uint64_t schema = json.at("schema"); schema != kManifestSchema)
    fail_checkpoint(OCTAVO_INCOMPATIBLE, where, "manifest: expected schema ", kManifestSchema,
                    ", found ", schema, "; load it with the version of Octavo that wrote it");
  if (!json.contains("run_id") || !json.at("run_id").is_string() || !json.contains("step") ||
      !json.at("step").is_number_unsigned() || !json.contains("files") ||
      !json.at("files").is_array() || json.at("files").empty())
    fail_manifest(where, "no run_id, step and files");
  CheckpointManifest manifest{json.at("run_id"), json.at("step"), {}};
  for (const Json &entry : json.at("files"))
    manifest.files.push_back(file_of(entry, static_cast<uint32_t>(manifest.files.size()),
                                     json.at("files").size(), where));
  return manifest;
}

std::optional<CheckpointManifest> find_checkpoint_manifest(const std::string &directory) {
  const std::string path = (std::filesystem::path(directory) / kManifestName).string();
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  constexpr const char *readable = "a file that can be read";
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) fail_call(path, readable, errno, kCheckPath);
  std::string text;
  char piece[1 << 12];
  for (;;) {
    const ssize_t got = pread(file.get(), piece, sizeof(piece), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call(path, readable, errno, kCheckPath);
    if (got == 0) break;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kMostManifestBytes) fail_manifest(path, "more than 64 MiB");
  }
  return parse_checkpoint_manifest(text, path);
}

void write_checkpoint_manifest(const std::string &directory, const CheckpointManifest &manifest) {
  const std::string path = (std::filesystem::path(directory) / kManifestName).string();
  const std::string text = manifest_text(manifest);
  AtomicFile draft(path, 0666);
  check_created(draft);
  if (!draft.write(text.data(), text.size())) fail_write(draft, errno);
  put_in_place(draft, path);
}

// flock: the system frees it when the process ends, however it ends. The file stays, since a lock
// on a file that was removed would exclude nobody.

namespace {

// A holder is alone for some calls only; who waits longer reports it.
constexpr int kTries = 5000;
constexpr std::chrono::milliseconds kPause(1);
// A run that has just ended may still be named; one that goes on is there again and again.
constexpr int kMostMeetings = 10;

constexpr char kRunLine[] = "run ";

std::string lock_text(const std::string &run_id) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return concat(kRunLine, run_id, "\nprocess ", getpid(), "\nhost ", host, "\n");
}

std::string read_lock(int file) {
  char text[1024];
  const ssize_t got = pread(file, text, sizeof(text), 0);
  return got < 0 ? std::string() : std::string(text, static_cast<size_t>(got));
}

// "process 12, host h, run id": one line a part.
std::string holder_of(std::string text) {
  std::string parts;
  for (size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
    parts = text.substr(0, end) + (parts.empty() ? "" : ", ") + parts;
  return parts.empty() ? "a process that has not yet named itself" : parts;
}

bool has_no_locks(int reason) {
  return reason == ENOLCK || reason == ENOSYS || reason == EOPNOTSUPP || reason == EINVAL;
}

}  // namespace

CheckpointLock::CheckpointLock(const std::string &directory, const std::string &run_id) {
  const std::string path = (std::filesystem::path(directory) / kLockName).string();
  file_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file_.get() < 0) fail_call(path, "a file that can be written", errno, kCheckPath);
  int meetings = 0;
  for (int i = 0; i < kTries && meetings < kMostMeetings; ++i) {
    if (begin(directory, path, run_id) || join(run_id, meetings)) return;
    std::this_thread::sleep_for(kPause);
  }
  fail_checkpoint(OCTAVO_WRONG_STATE, directory, "expected a directory that no other run writes, ",
                  "found ", holder_of(read_lock(file_.get())),
                  "; give every run its own directory, or wait");
}

// Alone for a moment: afterwards other ranks of this run may join.
bool CheckpointLock::begin(const std::string &directory, const std::string &path,
                           const std::string &run_id) {
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    is_held_ = !has_no_locks(errno);
    return !is_held_;
  }
  const std::string text = lock_text(run_id);
  const HeldSizeSignal held;
  if (ftruncate(file_.get(), 0) != 0 ||
      pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail_call(path, "a file that can be written", errno, "free space");
  remove_drafts(directory);
  return false;  // join
}

bool CheckpointLock::join(const std::string &run_id, int &meetings) {
  if (flock(file_.get(), LOCK_SH | LOCK_NB) != 0) return false;
  if (read_lock(file_.get()).rfind(kRunLine + run_id + "\n", 0) == 0) return true;
  flock(file_.get(), LOCK_UN);
  ++meetings;
  return false;
}

namespace {

namespace fs = std::filesystem;

std::string described(uint64_t rank, uint64_t world, const std::string &run_id, uint64_t step,
                      uint64_t bytes, const std::string &blake2b) {
  return concat("rank ", rank, " of ", world, ", step ", step, " of run ", run_id, ", ", bytes,
                " bytes with the header's BLAKE2b hash ", blake2b);
}

std::string described(const CheckpointFile &f) {
  return described(number_text(f.header(), kRank, f.path()),
                   number_text(f.header(), kWorld, f.path()),
                   required_text(f.header(), kRunId, f.path()),
                   number_text(f.header(), kStep, f.path()), f.bytes(), f.blake2b());
}

// Why a directory has no manifest, from the files that are there.
[[noreturn]] void fail_without_manifest(const std::string &directory) {
  const uint32_t world = find_world(directory);
  if (world == 0)
    fail_checkpoint(OCTAVO_NO_RESOURCE, directory, "expected files such as ", rank_file_name(0, 1),
                    " and ", kManifestName,
                    ", found none; pass the directory that was given to octavo_store_save");
  std::set<uint32_t> missing;
  std::set<std::string> runs, steps;
  for (uint32_t rank = 0; rank < world; ++rank) missing.insert(rank);
  for (const std::string &name : names_in(directory)) {
    const std::optional<RankName> found = rank_of_name(name);
    if (!found) continue;
    const CheckpointFile file((fs::path(directory) / name).string());  // of this schema
    missing.erase(found->rank);
    runs.insert(required_text(file.header(), kRunId, file.path()));
    steps.insert(required_text(file.header(), kStep, file.path()));
  }
  std::string found = missing.empty() ? concat("the files of ", world, " ranks without it")
                                      : concat("no ", rank_file_name(*missing.begin(), world));
  if (steps.size() > 1) found += ", steps " + enumerate({steps.begin(), steps.end()});
  if (runs.size() > 1) found += ", runs " + enumerate({runs.begin(), runs.end()});
  fail_checkpoint(OCTAVO_NO_RESOURCE, directory, "expected ", kManifestName,
                  ", which the rank that saves last writes, found ", found,
                  "; the save has not ended or was cut off: wait until every rank has saved, or "
                  "load an earlier checkpoint");
}

// None: there is none, or a damaged one, which protects no file.
std::optional<CheckpointManifest> readable_manifest(const std::string &directory) {
  try {
    return find_checkpoint_manifest(directory);
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_NO_RESOURCE) throw;
    return {};
  }
}

std::string free_name(const std::optional<CheckpointManifest> &manifest, uint32_t rank,
                      uint32_t world) {
  const std::string first = rank_file_name(rank, world);
  const bool is_taken =
      manifest && manifest->files.size() == world && manifest->files[rank].name == first;
  return is_taken ? rank_file_name(rank, world, true) : first;
}

// False: a file of another save, which its rank is still to replace.
bool take_file(const std::string &path, uint32_t rank, const SavedFile &saved, RankFile &to) {
  try {
    const CheckpointFile file(path);
    to.bytes = file.bytes();
    to.blake2b = file.blake2b();
    return number_text(file.header(), kRank, path) == rank &&
           number_text(file.header(), kWorld, path) == saved.world &&
           number_text(file.header(), kStep, path) == saved.step &&
           required_text(file.header(), kRunId, path) == saved.run_id;
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_NO_RESOURCE) throw;
    return false;
  }
}

}  // namespace

CheckpointSet::CheckpointSet(std::string directory) : directory_(std::move(directory)) {
  const uint32_t world = find_world(directory_);
  std::optional<CheckpointManifest> found = find_checkpoint_manifest(directory_);
  if (!found) fail_without_manifest(directory_);
  manifest_ = std::move(*found);
  if (world != 0 && world != this->world())
    fail_checkpoint(OCTAVO_INVALID, directory_, "expected the files of ", this->world(),
                    " ranks, as ", kManifestName, " lists them, found ranks of ", world,
                    "; copy the files of all ranks there");
}

std::string CheckpointSet::path_of(const std::string &name) const {
  return (fs::path(directory_) / name).string();
}

CheckpointFile CheckpointSet::open(uint32_t rank) const {
  const RankFile &listed = manifest_.files[rank];
  std::error_code error;
  if (!fs::exists(path_of(listed.name), error))
    fail_checkpoint(OCTAVO_NO_RESOURCE, directory_, "expected the files of ", world(),
                    " ranks, found no ", listed.name,
                    "; copy the files of all ranks there, or load another checkpoint");
  CheckpointFile file(path_of(listed.name));
  if (file.blake2b() != listed.blake2b || file.bytes() != listed.bytes)
    fail_checkpoint(
        OCTAVO_INVALID, file.path(), "expected ",
        described(rank, world(), manifest_.run_id, manifest_.step, listed.bytes, listed.blake2b),
        ", as ", kManifestName, " lists it, found ", described(file),
        "; put back the file that was saved with this manifest, or load another "
        "checkpoint");
  return file;
}

std::string free_rank_name(const std::string &directory, uint32_t rank, uint32_t world) {
  return free_name(readable_manifest(directory), rank, world);
}

bool commit_if_complete(const std::string &directory, const SavedFile &saved) {
  // Once: the names of all ranks are those that one manifest leaves free.
  const std::optional<CheckpointManifest> old = readable_manifest(directory);
  if (free_name(old, saved.rank, saved.world) != saved.name) return true;  // another rank was here
  std::vector<std::string> paths;
  CheckpointManifest manifest{saved.run_id, saved.step, {}};
  for (uint32_t rank = 0; rank < saved.world; ++rank) {
    manifest.files.push_back({free_name(old, rank, saved.world), 0, {}});
    paths.push_back((fs::path(directory) / manifest.files.back().name).string());
    std::error_code error;
    if (!fs::exists(paths.back(), error) && !error) return false;
  }
  for (uint32_t rank = 0; rank < saved.world; ++rank)
    if (!take_file(paths[rank], rank, saved, manifest.files[rank])) return false;
  write_checkpoint_manifest(directory, manifest);
  return true;
}

}  // namespace octavo
