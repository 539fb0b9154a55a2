// The few numbers and words that are verdicts, and what helps against the others.
#include "sdk/src/base/resource_unavailable.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "sdk/src/base/descriptor.h"

namespace octavo {
namespace {

constexpr std::array kVerdicts = {ENOENT, EACCES, ELOOP, ENOTDIR, ENAMETOOLONG};

// What the system's loader says about the content of a file. Its other words without an error mean
// memory.
constexpr std::array kWordsOfContent = {
    "undefined symbol", "not found (required by", "not defined in file",
    "no version information available", "unsupported version", "invalid ELF header",
    "wrong ELF class", "ELF file", "ELF load command", "nonzero padding in e_ident",
    "file too short", "object file has no", "only ET_DYN and ET_EXEC", "cannot dynamically load",
    "cannot be dlopen()ed", "cannot handle TLS data",
    // A library that wants static TLS cannot have it later either.
    "static TLS", "reloc type", "no PLTREL found", "CPU ISA level",
    "dynamic string token substitution", "DST not allowed"};

struct Cause {
  int error;
  const char *remedy;
};

// What helps, by the error; see open(2), mmap(2), posix_spawn(3) for what each of them means.
constexpr std::array kCauses = {
    Cause{ESTALE, "mount the network's file system again, or try again"},
    Cause{EMFILE, "close files, or raise this process's limit of open files (ulimit -n)"},
    Cause{ENFILE, "end processes that hold many files, or raise fs.file-max"},
    Cause{ENOMEM, "free memory, or raise the limit on it (ulimit -v, the container's memory)"},
    Cause{ENOBUFS, "free memory, and try again"},
    Cause{EAGAIN, "end processes, or raise the limit on their number (ulimit -u, pids.max)"},
    Cause{EINTR, "try again"},
    Cause{ETIMEDOUT, "try again when the file system answers"},
    Cause{EIO, "check the disk or the network that holds the file"},
    Cause{ENOSPC, "free space on the disk"},
    Cause{EPERM, "permit the call in the filter of this sandbox (seccomp), or run outside of it"},
    Cause{ENOSYS, "permit the call in the filter of this sandbox (seccomp), or run outside of it"}};

const Cause *cause_of(int error) {
  for (const Cause &c : kCauses)
    if (c.error == error) return &c;
  return nullptr;
}

}  // namespace

ResourceUnavailable::ResourceUnavailable(const std::string &what, const char *call, int error,
                                         Stage stage)
    : ResourceUnavailable(
          concat(what, ": ", std::strerror(error), " (", call, ", errno ", error, ")"),
          remedy_of(error, "try again"), stage) {}

const char *remedy_of(int error, const char *otherwise) {
  const Cause *cause = cause_of(error);
  return cause == nullptr ? otherwise : cause->remedy;
}

std::string ResourceUnavailable::message() const {
  return verdict_.text + "; " + verdict_.evidence + "; " + verdict_.remedy.text;
}

bool is_verdict(int error) {
  return std::ranges::find(kVerdicts, error) != kVerdicts.end();
}

bool names_verdict(std::string_view words) {
  const auto has = [&](std::string_view part) {
    return words.find(part) != std::string_view::npos;
  };
  if (std::ranges::any_of(kWordsOfContent, has)) return true;
  const auto ends = [&](const char *part, int error) {
    return has(concat(part, ": ", std::strerror(error)));
  };
  return ends("executable stack as shared object requires", EACCES) ||
         ends("executable stack as shared object requires", EINVAL) ||
         std::ranges::any_of(
             kVerdicts, [&](int error) { return ends("cannot open shared object file", error); });
}

void pass_resource(octavo_status status, const std::string &who, Stage stage) {
  if (status == OCTAVO_NO_RESOURCE)
    throw ResourceUnavailable(who + ": memory or another resource is short (OCTAVO_NO_RESOURCE)",
                              "see the messages of the plugin before this one", stage);
}

void pass_shortage(const std::string &what, const char *call, int error) {
  if (!is_verdict(error)) throw ResourceUnavailable(what, call, error);
}

std::ifstream open_lines(const std::string &path) {
  // The stream keeps no reason of its own.
  if (const Descriptor is_there(open(path.c_str(), O_RDONLY | O_CLOEXEC)); is_there.get() < 0) {
    pass_shortage(path + ": cannot be read", "open", errno);
    return {};
  }
  std::ifstream file(path);
  if (!file) throw ResourceUnavailable(path + ": cannot be read", "open", errno);
  file.exceptions(std::ios::badbit);
  return file;
}

}  // namespace octavo
