// The manifest of a checkpoint: which files belong to it. It is written last, so a directory
// without one holds no checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

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

// Throws Failure(OCTAVO_INVALID), or OCTAVO_VERSION for another schema.
CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string &where);

// None: the directory has no such file. Throws Failure as parse_checkpoint_manifest, and
// OCTAVO_RESOURCE where it cannot be read.
std::optional<CheckpointManifest> find_checkpoint_manifest(const std::string &directory);

// Throws Failure(OCTAVO_RESOURCE). Afterwards it is on disk.
void write_checkpoint_manifest(const std::string &directory, const CheckpointManifest &manifest);

}  // namespace octavo
