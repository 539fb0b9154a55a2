// The program as it was built, and the system that it runs on.
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "octavo/octavo.hpp"
#include "sdk/cli/doctor/doctor.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::doctor {
namespace {

std::string system_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=\"") && line.ends_with("\""))
      return line.substr(13, line.size() - 14);
  return "unknown";
}

std::string c_library() {
  char text[64] = {};
  return confstr(_CS_GNU_LIBC_VERSION, text, sizeof text) > 0 ? text : "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

bool has_assertions() {
#if defined(NDEBUG)
  return false;
#else
  return true;
#endif
}

}  // namespace

Json versions_and_system() {
  utsname system{};
  uname(&system);
  return {
      {"octavo", octavo::version()},
      {"abi", concat(OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR)},
      {"headers", OCTAVO_ABI_HEADERS},
      {"build",
       {{"compiler", compiler()},
        {"type", OCTAVO_BUILD_TYPE},
        {"assertions", has_assertions()},
        {"sanitizer", *OCTAVO_BUILD_SANITIZER == '\0' ? Json() : Json(OCTAVO_BUILD_SANITIZER)}}},
      {"system", system_name()},
      {"kernel", concat(system.sysname, " ", system.release, " ", system.machine)},
      {"libc", c_library()},
      {"variables", variables()}};
}

}  // namespace octavo::cli::doctor
