// What a plugin must leave alone in the process that loads it, and what it changed.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "sdk/src/file/privilege_file.h"

namespace octavo::probe {

class ProcessState {
 public:
  // As it is now, on this thread. What is open of `library` is its loader's.
  explicit ProcessState(const CheckedFile *library = nullptr);

  // One sentence for each difference.
  std::vector<std::string> changes(const ProcessState &later) const;

 private:
  static constexpr int kSignals = 65;
  struct Handler {
    void *function = nullptr;
    int flags = 0;
  };

  unsigned float_control_ = 0;  // rounding, flush to zero, masks; not the sticky flags
  std::string locale_;
  mode_t umask_ = 0;
  std::string directory_;
  std::array<Handler, kSignals> handlers_{};
  std::map<int, std::string> descriptors_;  // number -> what it is
  size_t threads_ = 0;
  std::map<std::string, std::vector<std::string>> libraries_;  // see open_libraries()
};

}  // namespace octavo::probe
