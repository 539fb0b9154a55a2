// The calls of the system by which liboctavo finds out about files. A wrapper returns what was
// found, or the error that says something about the path (is_verdict); for any other error it
// throws a ResourceUnavailable with the call, the path and the error.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "sdk/src/base/descriptor.h"

namespace octavo {

// Negative: nothing, and *error has the verdict. `shown`: the path for messages, where `path`
// counts from the directory `at`.
Descriptor open_path(const std::string &path, int flags, int *error, int at = AT_FDCWD,
                     const std::string &shown = {});

// 0, or the verdict.
int find_status(const std::string &path, struct stat *to);
// Whether `path` leads to a regular file.
bool is_regular_file(const std::string &path);

// Of what is open.
struct stat status_of(const Descriptor &file, const std::string &path);
// Up to `bytes` bytes; fewer only at the end of the file.
size_t read_at(const Descriptor &file, const std::string &path, void *to, size_t bytes,
               uint64_t offset);

// The path without links and dots; empty: *error has the verdict.
std::string resolved_path(const std::string &path, int *error);

}  // namespace octavo
