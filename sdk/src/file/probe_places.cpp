// Paths relative to the file that holds this code.
#include "sdk/src/file/probe_places.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "octavo/octavo.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/file/privilege_mapping.h"
#include "sdk/src/file/privilege_path.h"

namespace octavo {

namespace fs = std::filesystem;

namespace {

// The kernel's name of what is mapped there, which is whole whatever name it was loaded by.
std::string mapped_file(const void *address) {
  const auto lines = mapping_lines({address});
  const size_t name = lines ? (*lines)[0].find('/') : std::string::npos;
  return name == std::string::npos ? std::string() : (*lines)[0].substr(name);
}

}  // namespace

std::string file_holding(const void *address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return {};
  // A library may be loaded, and a program started, by a name that is relative to a directory which
  // the process has left.
  const fs::path file =
      fs::path(info.dli_fname).is_absolute() ? info.dli_fname : mapped_file(address);
  int error = 0;
  return resolved_path(file.string(), &error);
}

const std::string &liboctavo_file() {
  // Once: the file does not move while it is mapped.
  static const std::string path = file_holding(reinterpret_cast<const void *>(&octavo_version));
  return path;
}

std::string probe_helper(std::vector<std::string> *looked) {
  const char *named = privileged() ? nullptr : std::getenv("OCTAVO_PROBE_HELPER");
  if (named != nullptr && *named != '\0') {
    looked->push_back(std::string(named) + " (OCTAVO_PROBE_HELPER)");
    return access(named, X_OK) == 0 ? named : "";
  }
  const std::string directory = fs::path(liboctavo_file()).parent_path().string();
  // Installed next to lib, or lib/<architecture>; in a wheel; in a build tree.
  for (const char *place :
       {"/../libexec/octavo/", "/../../libexec/octavo/", "/octavo/", "/", "/../bin/"}) {
    const std::string path = fs::path(directory + place + "octavo-probe").lexically_normal();
    looked->push_back(path);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

bool belongs_to_liboctavo(const std::string &library, const std::string &own) {
  if (fs::path(library).parent_path() != fs::path(own).parent_path() / "octavo" / "plugins")
    return false;
  struct stat mine {};
  struct stat its {};
  struct stat place {};
  const std::string directory = fs::path(library).parent_path().string();
  return stat(own.c_str(), &mine) == 0 && lstat(library.c_str(), &its) == 0 &&
         lstat(directory.c_str(), &place) == 0 && S_ISREG(its.st_mode) && S_ISDIR(place.st_mode) &&
         its.st_uid == mine.st_uid && place.st_uid == mine.st_uid &&
         ((its.st_mode | place.st_mode) & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace octavo
