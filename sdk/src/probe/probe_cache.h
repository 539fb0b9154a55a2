// Remembered probes: one small file per library, valid while everything in its key is the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sdk/src/probe/probe_wire.h"

namespace octavo {

struct RememberedProbe {
  ProbeAnswer answer;
  int timeout_ms = 0;  // what it was given
};

// Device, inode, size and time of the last change of a file; "none": there is no such file.
std::string file_identity(const std::string &path);

// What is remembered, found without making or changing anything.
struct ProbeCacheSurvey {
  std::string directory;  // empty: none is named
  std::string problem;    // why nothing is remembered; empty: it is
  Remedy remedy;          // of the problem
  size_t results = 0;
  size_t stale = 0;  // of these: their library is gone or has changed, or the entry is damaged
};
ProbeCacheSurvey survey_probe_cache();

class ProbeCache {
 public:
  // $XDG_CACHE_HOME/octavo/probe, else $HOME/.cache/octavo/probe; closed to everyone else.
  ProbeCache();
  explicit ProbeCache(const std::string &directory);

  // Why nothing is remembered; empty: it is.
  const std::string &problem() const { return problem_; }

  // Nothing when there is no entry, its key differs, or it is damaged.
  std::optional<RememberedProbe> find(const std::string &library, const std::string &key) const;
  // Replaces the library's entry in one step. False: it could not be written, and none is there.
  bool store(const std::string &library, const std::string &key,
             const RememberedProbe &probe) const;

 private:
  std::string file_of(const std::string &library) const;

  std::string directory_;
  std::string problem_;
};

}  // namespace octavo
