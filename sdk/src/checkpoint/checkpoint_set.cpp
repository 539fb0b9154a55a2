// What belongs together is decided by the manifest alone; without one, only the message differs.
#include "sdk/src/checkpoint/checkpoint_set.h"

#include <filesystem>
#include <set>

#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_names.h"
#include "sdk/src/checkpoint/checkpoint_texts.h"

namespace octavo {
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
    fail_checkpoint(OCTAVO_RESOURCE, directory, "expected files such as ", rank_file_name(0, 1),
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
  fail_checkpoint(OCTAVO_RESOURCE, directory, "expected ", kManifestName,
                  ", which the rank that saves last writes, found ", found,
                  "; the save has not ended or was cut off: wait until every rank has saved, or "
                  "load an earlier checkpoint");
}

// None: there is none, or a damaged one, which protects no file.
std::optional<CheckpointManifest> readable_manifest(const std::string &directory) {
  try {
    return find_checkpoint_manifest(directory);
  } catch (const Failure &f) {
    if (f.status() == OCTAVO_RESOURCE) throw;
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
    if (f.status() == OCTAVO_RESOURCE) throw;
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
    fail_checkpoint(OCTAVO_RESOURCE, directory_, "expected the files of ", world(),
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
