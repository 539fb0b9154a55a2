// The files of all ranks in one directory, as one checkpoint: their names, the manifest
// that names them, and the lock on the directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/checkpoint/checkpoint_file.h"

namespace octavo {

// The names of the files of a checkpoint.
//
// A rank has two names to write under, so that a save into the directory of a checkpoint leaves the
// files of that one alone until the new manifest stands.

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kLockName[] = "lock";

// "rank-0001-of-0004.safetensors": four digits, more where a number needs them. The second name:
// "rank-0001-of-0004.b.safetensors".
std::string rank_file_name(uint32_t rank, uint32_t world, bool second = false);

struct RankName {
  uint32_t rank;
  uint32_t world;
};
// None: the name of some other file.
std::optional<RankName> rank_of_name(const std::string &name);

// The names of all files in a directory. Throws Failure(OCTAVO_NO_RESOURCE) where it cannot be
// read.
std::vector<std::string> names_in(const std::string &directory);

// The world whose rank files the directory holds, or 0 for none. Files with other names do not
// count. Throws Failure(OCTAVO_INVALID) for files of several worlds, OCTAVO_NO_RESOURCE as
// names_in.
uint32_t find_world(const std::string &directory);

// Makes the directory and those above it, on disk. Throws Failure(OCTAVO_NO_RESOURCE).
void make_directory(const std::string &directory);

// Removes what writers that died left: files of a draft's name. Nobody else may be writing there.
void remove_drafts(const std::string &directory);

// The manifest of a checkpoint: which files belong to it. It is written last, so a directory
// without one holds no checkpoint.

struct RankFile {
  std::string name;
  uint64_t bytes = 0;
  std::string blake2b;  // of its header, which holds the hash of every tensor
};

struct CheckpointManifest {
  std::string run_id;
  uint64_t step = 0;
  std::vector<RankFile> files;  // by rank
};

std::string manifest_text(const CheckpointManifest &manifest);

// Throws Failure(OCTAVO_INVALID), or OCTAVO_INCOMPATIBLE for another schema.
CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string &where);

// None: the directory has no such file. Throws Failure as parse_checkpoint_manifest, and
// OCTAVO_NO_RESOURCE where it cannot be read.
std::optional<CheckpointManifest> find_checkpoint_manifest(const std::string &directory);

// Throws Failure(OCTAVO_NO_RESOURCE). Afterwards it is on disk.
void write_checkpoint_manifest(const std::string &directory, const CheckpointManifest &manifest);

// A lock on the directory of a checkpoint while it is written: one run at a time. The ranks of a
// run, threads or processes, hold it together.

class CheckpointLock {
 public:
  // Who comes first removes what dead writers left. Throws Failure: OCTAVO_WRONG_STATE, naming
  // process, host and run, when another run holds the lock; OCTAVO_NO_RESOURCE where the file of
  // the lock cannot be written.
  CheckpointLock(const std::string &directory, const std::string &run_id);

  // False: the file system has no locks.
  bool is_held() const { return is_held_; }

 private:
  bool join(const std::string &run_id, int &meetings);
  bool begin(const std::string &directory, const std::string &path, const std::string &run_id);

  Descriptor file_;
  bool is_held_ = true;
};

// Ranks do not wait for each other here: each writes its file, then looks whether it was the last
// one. Who finds the files of all ranks, of this run and step, writes the manifest; when two find
// them at once, both write the same bytes.

class CheckpointSet {
 public:
  // Reads the manifest. Throws Failure: OCTAVO_NO_RESOURCE for a directory without one,
  // OCTAVO_INVALID for files of several worlds and a damaged manifest, OCTAVO_INCOMPATIBLE for
  // another schema.
  explicit CheckpointSet(std::string directory);

  const CheckpointManifest &manifest() const { return manifest_; }
  uint32_t world() const { return static_cast<uint32_t>(manifest_.files.size()); }
  // The file of a rank. Throws Failure as CheckpointFile does; OCTAVO_NO_RESOURCE for a file that
  // is missing, OCTAVO_INVALID for another one than the manifest lists.
  CheckpointFile open(uint32_t rank) const;

 private:
  std::string path_of(const std::string &name) const;

  std::string directory_;
  CheckpointManifest manifest_;
};

// Where the file of a rank goes: under the name that the manifest, if any, does not list.
std::string free_rank_name(const std::string &directory, uint32_t rank, uint32_t world);

// The file that a rank has just written.
struct SavedFile {
  std::string name;
  uint32_t rank;
  uint32_t world;
  std::string run_id;
  uint64_t step;
};
// After that file is on disk. Returns whether the checkpoint is complete. Throws
// Failure(OCTAVO_NO_RESOURCE) where the manifest cannot be written.
bool commit_if_complete(const std::string &directory, const SavedFile &saved);

}  // namespace octavo
