// What a name means, and the directory that holds the names.
#include "sdk/src/checkpoint/checkpoint_names.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "sdk/src/base/shortage.h"
#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_texts.h"
#include "sdk/src/file/draft.h"
#include "sdk/src/file/listing.h"

namespace octavo {

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
  } catch (const Shortage &s) {
    fail_checkpoint(OCTAVO_RESOURCE, directory, s.message());
  }
  if (error != 0)
    fail_checkpoint(OCTAVO_RESOURCE, directory,
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
    fail_checkpoint(OCTAVO_RESOURCE, directory,
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

}  // namespace octavo
