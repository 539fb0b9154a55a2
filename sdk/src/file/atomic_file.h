// AtomicFile: a file under another name until it is complete. Its own name holds the old file or
// the new one at any time.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace octavo {

// A name in a directory is on disk when the directory is. False: the reason is in errno.
bool sync_parent_directory(const std::string &path);

// What answers false leaves the reason in errno. While it lives, Ctrl-C, SIGTERM and SIGHUP wait on
// its thread: they would end the program and leave the draft.
class AtomicFile {
 public:
  AtomicFile(const std::string &path, mode_t mode);
  // A draft that was not committed goes away.
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  int file() const { return file_; }                 // negative: it could not be created
  const std::string &name() const { return name_; }  // until it is committed
  bool write(const void *from, uint64_t bytes);
  // Several threads may write places of their own at once.
  bool write_at(uint64_t offset, const void *from, uint64_t bytes) const;
  bool close();
  bool commit();
  // After commit.
  bool sync_directory() const { return sync_parent_directory(path_); }

 private:
  const std::string path_;
  std::string name_;
  sigset_t outer_{};  // what the thread blocked before
  int file_;
};

}  // namespace octavo
