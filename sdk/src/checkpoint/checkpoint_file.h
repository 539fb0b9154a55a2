// Files of tensors: written whole or not at all, read after their header was checked. A checkpoint
// has one a rank, all in one directory.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/checkpoint/checkpoint_header.h"

namespace octavo {

// Writes the tensors of a laid out header; `data` holds the address of each one's bytes. The file
// appears under its name complete and on disk; until then the old one, if any, stays as it is.
// Throws Failure(OCTAVO_RESOURCE) where the system refuses.
void write_checkpoint_file(const std::string &path, const CheckpointHeader &header,
                           const std::map<std::string, const void *> &data);

class CheckpointFile {
 public:
  // Opens the file and checks its header. Throws Failure: OCTAVO_RESOURCE for a file that cannot be
  // read, OCTAVO_INVALID for one that is malformed.
  explicit CheckpointFile(const std::string &path);

  const std::string &path() const { return path_; }
  const CheckpointHeader &header() const { return header_; }
  // Copies the bytes of a tensor of this file.
  void read(const CheckpointTensor &tensor, void *to) const;

 private:
  void read_at(uint64_t offset, void *to, uint64_t bytes) const;
  void read_header();

  std::string path_;
  const Descriptor file_;
  uint64_t data_start_ = 0;
  CheckpointHeader header_;
};

// "rank-0001-of-0004.safetensors": four digits, more where a number needs them.
std::string rank_file_name(uint32_t rank, uint32_t world);

// The world whose rank files the directory holds, or 0 for none. Files with other names do not
// count. Throws Failure: OCTAVO_INVALID for files of several worlds, OCTAVO_RESOURCE for a
// directory that cannot be read.
uint32_t find_world(const std::string &directory);

// Throws Failure(OCTAVO_RESOURCE) naming the first rank whose file is missing.
void expect_all_ranks(const std::string &directory, uint32_t world);

}  // namespace octavo
