// The names of the files of a checkpoint.
//
// A rank has two names to write under, so that a save into the directory of a checkpoint leaves the
// files of that one alone until the new manifest stands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

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

// The names of all files in a directory. Throws Failure(OCTAVO_RESOURCE) where it cannot be read.
std::vector<std::string> names_in(const std::string &directory);

// The world whose rank files the directory holds, or 0 for none. Files with other names do not
// count. Throws Failure(OCTAVO_INVALID) for files of several worlds, OCTAVO_RESOURCE as names_in.
uint32_t find_world(const std::string &directory);

// Makes the directory and those above it, on disk. Throws Failure(OCTAVO_RESOURCE).
void make_directory(const std::string &directory);

// Removes what writers that died left: files of a draft's name. Nobody else may be writing there.
void remove_drafts(const std::string &directory);

}  // namespace octavo
