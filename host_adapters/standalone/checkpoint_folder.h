// The folder with the checkpoints of one run, which one program at a time writes:
//
//   latest             names of the directories below that are complete, the newest first
//   lock               process and host of the program that saves there
//   step-00000012/     one checkpoint
#pragma once

#include <cstdint>
#include <string>

namespace octavo::standalone {

// A lock that ends with the program.
class DirectoryLock {
 public:
  // Takes the lock on DIR/lock and writes process and host into it. Throws UserError that names
  // those of the holder when another program has it, as the value of `option`.
  DirectoryLock(const std::string &option, const std::string &directory);
  DirectoryLock(DirectoryLock &&other) noexcept : file_(other.file_) { other.file_ = -1; }
  DirectoryLock &operator=(DirectoryLock &&) = delete;
  ~DirectoryLock();

 private:
  int file_ = -1;
};

// The directory of a run: its name, with other characters than letters, digits and ._-=:,+ written
// as %XX.
std::string run_directory(const std::string &directory, const std::string &run);
// The name of a checkpoint; attempts after the first, 0, are for names that are taken.
std::string checkpoint_name(int64_t steps, int64_t attempt);
// The newest checkpoint. Throws UserError.
std::string latest_directory(const std::string &directory);
// What to do about a checkpoint, or a file of one, that cannot be read.
std::string checkpoint_remedy(const std::string &path);
// From here on --resume finds the new checkpoint. Removes what is older than the last `keep`, and
// what programs that died have left.
void complete_checkpoint(const std::string &directory, const std::string &name, int64_t keep);

}  // namespace octavo::standalone
