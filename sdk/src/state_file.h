// Files of tensors: written whole or not at all, read after their header was checked.
#pragma once

#include <map>
#include <string>

#include "state_header.h"

namespace octavo {

// Writes the tensors of a laid out header; `data` holds the address of each one's bytes. The file
// appears under its name complete and on disk; until then the old one, if any, stays as it is.
// Throws Failure(OCTAVO_RESOURCE) where the system refuses.
void write_state_file(const std::string &path, const StateHeader &header,
                      const std::map<std::string, const void *> &data);

class StateFile {
 public:
  // Opens the file and checks its header. Throws Failure: OCTAVO_RESOURCE for a file that cannot be
  // read, OCTAVO_INVALID for one that is malformed.
  explicit StateFile(const std::string &path);
  ~StateFile();
  StateFile(const StateFile &) = delete;
  StateFile &operator=(const StateFile &) = delete;

  const std::string &path() const { return path_; }
  const StateHeader &header() const { return header_; }
  // Copies the bytes of a tensor of this file.
  void read(const StateTensor &tensor, void *to) const;

 private:
  void read_at(uint64_t offset, void *to, uint64_t bytes) const;
  void read_header();

  std::string path_;
  int file_ = -1;
  uint64_t data_start_ = 0;
  StateHeader header_;
};

}  // namespace octavo
