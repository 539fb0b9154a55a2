// The files of all ranks in one directory, as one checkpoint.
//
// Ranks do not wait for each other here: each writes its file, then looks whether it was the last
// one. Who finds the files of all ranks, of this run and step, writes the manifest; when two find
// them at once, both write the same bytes.
#pragma once

#include <cstdint>
#include <string>

#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_manifest.h"

namespace octavo {

class CheckpointSet {
 public:
  // Reads the manifest. Throws Failure: OCTAVO_RESOURCE for a directory without one, OCTAVO_INVALID
  // for files of several worlds and a damaged manifest, OCTAVO_VERSION for another schema.
  explicit CheckpointSet(std::string directory);

  const CheckpointManifest &manifest() const { return manifest_; }
  uint32_t world() const { return static_cast<uint32_t>(manifest_.files.size()); }
  // The file of a rank. Throws Failure as CheckpointFile does; OCTAVO_RESOURCE for a file that is
  // missing, OCTAVO_INVALID for another one than the manifest lists.
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
// Failure(OCTAVO_RESOURCE) where the manifest cannot be written.
bool commit_if_complete(const std::string &directory, const SavedFile &saved);

}  // namespace octavo
