// A lock on the directory of a checkpoint while it is written: one run at a time. The ranks of a
// run, threads or processes, hold it together.
#pragma once

#include <string>

#include "sdk/src/base/descriptor.h"

namespace octavo {

class CheckpointLock {
 public:
  // Who comes first removes what dead writers left. Throws Failure: OCTAVO_WRONG_STATE, naming
  // process, host and run, when another run holds the lock; OCTAVO_RESOURCE where the file of the
  // lock cannot be written.
  CheckpointLock(const std::string &directory, const std::string &run_id);

  // False: the file system has no locks.
  bool is_held() const { return is_held_; }

 private:
  bool join(const std::string &run_id, int &meetings);
  bool begin(const std::string &directory, const std::string &path, const std::string &run_id);

  Descriptor file_;
  bool is_held_ = true;
};

}  // namespace octavo
