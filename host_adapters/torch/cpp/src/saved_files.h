// The files of a checkpoint in one directory: they appear together or not at all, also after a loss
// of power, and no byte of them is believed without its hash.
//
// files.b2sum lists them with their BLAKE2b, as `b2sum --check` reads it. New files get the suffix
// .new; the list files.b2sum.new makes them count, and then all are renamed. A reader takes the
// list .new where there is one, and of each file the one that is still called .new.
//
// All functions throw Error: OCTAVO_RESOURCE for what cannot be read or written, OCTAVO_INVALID for
// damage.
#pragma once

#include <torch/serialize/archive.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "octavo/hpp/regular_file.hpp"

namespace octavo::torch {

// A directory that is open and locked (flock), as long as the object lives.
class LockedDirectory {
 public:
  enum class For { kReading, kWriting };
  // For writing: OCTAVO_WRONG_STATE while another process or thread writes there.
  LockedDirectory(const std::filesystem::path &path, For purpose);
  ~LockedDirectory();
  LockedDirectory(const LockedDirectory &) = delete;
  LockedDirectory &operator=(const LockedDirectory &) = delete;

  void sync() const;
  std::filesystem::path operator/(const std::string &name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
  int descriptor_;
};

// Whether a commit to this directory has ended.
bool has_files(const std::filesystem::path &directory);

class FilesWriter {
 public:
  // Creates the directory.
  explicit FilesWriter(const std::filesystem::path &directory);
  void add(const std::string &name, ::torch::serialize::OutputArchive &archive);
  // Files that were added are the checkpoint. Without it the one before stays.
  void commit();

 private:
  LockedDirectory directory_;
  std::string list_;
};

class FilesReader {
 public:
  explicit FilesReader(const std::filesystem::path &directory);
  // A file of the checkpoint; what is loaded is what was read against its hash.
  ::torch::serialize::InputArchive open(const std::string &name, const at::Device &device) const;

 private:
  std::unique_ptr<RegularFile> proven(const std::string &name) const;

  LockedDirectory directory_;
  std::map<std::string, std::string> hashes_;  // by name
};

}  // namespace octavo::torch
