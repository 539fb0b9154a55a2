// Looks at names only; what stands in the files is checked where they are read.
#include "state_set.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>

#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr const char *kDomain = "octavo.state";

// The world of a rank file's name; 0: some other file.
uint32_t world_of(const std::string &name) {
  const std::string_view prefix = "rank-", middle = "-of-";
  const char *end = name.data() + name.size();
  uint32_t rank = 0, world = 0;
  if (name.rfind(prefix, 0) != 0) return 0;
  const auto first = std::from_chars(name.data() + prefix.size(), end, rank);
  const std::string_view rest(first.ptr, static_cast<size_t>(end - first.ptr));
  if (first.ec != std::errc() || rest.substr(0, middle.size()) != middle) return 0;
  const auto second = std::from_chars(first.ptr + middle.size(), end, world);
  if (second.ec != std::errc() || rank >= world) return 0;
  return name == rank_file_name(rank, world) ? world : 0;
}

}  // namespace

std::string rank_file_name(uint32_t rank, uint32_t world) {
  char name[64];
  std::snprintf(name, sizeof(name), "rank-%04u-of-%04u.safetensors", rank, world);
  return name;
}

uint32_t find_world(const std::string &directory) {
  std::error_code error;
  std::set<uint32_t> worlds;
  fs::directory_iterator next(directory, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error))
    worlds.insert(world_of(next->path().filename().string()));
  if (error)
    throw Failure(OCTAVO_RESOURCE, kDomain,
                  directory + ": expected a directory that can be read, found: " + error.message() +
                      "; check the path and its permissions");
  worlds.erase(0);
  if (worlds.size() > 1) {
    std::vector<std::string> found;
    for (const uint32_t world : worlds) found.push_back(std::to_string(world));
    throw Failure(OCTAVO_INVALID, kDomain,
                  directory + ": expected the files of one checkpoint, found ranks of worlds of " +
                      enumerate(found) + "; remove those that do not belong to it");
  }
  return worlds.empty() ? 0 : *worlds.begin();
}

void expect_all_ranks(const std::string &directory, uint32_t world) {
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::error_code error;
    const std::string name = rank_file_name(rank, world);
    if (fs::exists(fs::path(directory) / name, error)) continue;
    throw Failure(OCTAVO_RESOURCE, kDomain,
                  directory + ": expected the files of " + std::to_string(world) +
                      " ranks, found no " + name +
                      "; copy the files of all ranks there, or wait until every rank has saved");
  }
}

}  // namespace octavo
