// Plain calls of the system, in the order that a crash between any two of them permits.
#include "saved_files.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "octavo/hpp/size_signal.hpp"
#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

namespace fs = std::filesystem;

constexpr const char *kList = "files.b2sum";
constexpr const char *kNew = ".new";
constexpr size_t kHashBytes = 32;
constexpr size_t kDigits = 2 * kHashBytes;
constexpr uint64_t kMostListBytes = 1 << 20;

[[noreturn]] void fail(const fs::path &path, const char *verb, int error) {
  throw Error(OCTAVO_RESOURCE, path.string() + ": expected to " + verb +
                                   " it, found: " + std::strerror(error) +
                                   "; check the disk and the permissions, then try again");
}

class Hash {
 public:
  Hash() {
    static const bool is_ready = sodium_init() >= 0;
    static_cast<void>(is_ready);
    crypto_generichash_init(&state_, nullptr, 0, kHashBytes);
  }
  void add(const void *from, size_t bytes) {
    crypto_generichash_update(&state_, static_cast<const unsigned char *>(from), bytes);
  }
  std::string hex() {
    std::array<unsigned char, kHashBytes> hash{};
    crypto_generichash_final(&state_, hash.data(), hash.size());
    std::array<char, kDigits + 1> digits{};
    return sodium_bin2hex(digits.data(), digits.size(), hash.data(), hash.size());
  }

 private:
  crypto_generichash_state state_;
};

// A file that is written from its begin to its end. write never throws, since C code calls it.
class Output {
 public:
  explicit Output(fs::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail(path_, "create", errno);
  }
  ~Output() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Output(const Output &) = delete;
  Output &operator=(const Output &) = delete;

  void write(const void *from, size_t bytes) noexcept {
    const HeldSizeSignal held;
    hash_.add(from, bytes);
    const char *next = static_cast<const char *>(from);
    while (bytes > 0 && error_ == 0) {
      const ssize_t written = ::write(descriptor_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        error_ = written == 0 ? ENOSPC : errno;
      } else {
        next += written;
        bytes -= static_cast<size_t>(written);
      }
    }
  }

  // The hash of what is on disk now.
  std::string finish() {
    if (error_ == 0 && fsync(descriptor_) != 0) error_ = errno;
    if (::close(std::exchange(descriptor_, -1)) != 0 && error_ == 0) error_ = errno;
    if (error_ != 0) fail(path_, "write", error_);
    return hash_.hex();
  }

 private:
  const fs::path path_;
  int descriptor_;
  int error_ = 0;
  Hash hash_;
};

void rename_file(const fs::path &from, const fs::path &to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(from, "rename", errno);
}

std::map<std::string, std::string> read_list(const fs::path &path) {
  RegularFile file(path);
  const std::optional<std::string> text = file.text(kMostListBytes);
  if (!text)
    throw Error(OCTAVO_RESOURCE,
                path.string() + ": expected the list of a checkpoint's files, found " +
                    file.problem() + "; give the directory of a save_state that ended");
  std::istringstream lines(*text);
  std::map<std::string, std::string> hashes;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < kDigits + 3 || line.compare(kDigits, 2, "  ") != 0)
      throw Error(OCTAVO_INVALID, path.string() +
                                      ": expected lines of a hash and a file's name, found \"" +
                                      line.substr(0, 80) + "\"; load another checkpoint");
    hashes.emplace(line.substr(kDigits + 2), line.substr(0, kDigits));
  }
  return hashes;
}

// 0, or the error. EINVAL: a file system whose directories have nothing to write.
int sync_directory(int descriptor) {
  return fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
}

// The name of a directory made here is on disk, and so is what is below it.
fs::path made(const fs::path &directory) {
  std::vector<fs::path> parents;
  for (fs::path next = directory; !next.empty() && !fs::exists(next); next = next.parent_path())
    parents.push_back(next.has_parent_path() ? next.parent_path() : fs::path("."));
  fs::create_directories(directory);
  for (const fs::path &parent : parents) {
    const int descriptor = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = descriptor < 0 ? errno : sync_directory(descriptor);
    if (descriptor >= 0) ::close(descriptor);
    if (error != 0) fail(parent, "write", error);
  }
  return directory;
}

// The list that counts.
fs::path list_in(const LockedDirectory &directory) {
  const fs::path later = directory / (std::string(kList) + kNew);
  return fs::exists(later) ? later : directory / kList;
}

// What commit does once the list .new exists, here or in a process that has ended since.
void rename_new_files(const LockedDirectory &directory) {
  const fs::path list = directory / (std::string(kList) + kNew);
  if (!fs::exists(list)) return;
  for (const auto &[name, hash] : read_list(list))
    if (fs::exists(directory / (name + kNew)))
      rename_file(directory / (name + kNew), directory / name);
  directory.sync();
  rename_file(list, directory / kList);
  directory.sync();
}

}  // namespace

LockedDirectory::LockedDirectory(const fs::path &path, For purpose)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(path, "open", errno);
  const int operation = purpose == For::kWriting ? LOCK_EX | LOCK_NB : LOCK_SH;
  while (flock(descriptor_, operation) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // a file system without locks
    ::close(descriptor_);
    throw Error(OCTAVO_WRONG_STATE, path.string() +
                                        ": expected a directory that nothing else reads or writes, "
                                        "found one in use; give each rank "
                                        "and each run a directory of its own");
  }
}

LockedDirectory::~LockedDirectory() {
  ::close(descriptor_);
}

void LockedDirectory::sync() const {
  if (const int error = sync_directory(descriptor_); error != 0) fail(path_, "write", error);
}

FilesWriter::FilesWriter(const fs::path &directory)
    : directory_(made(directory), LockedDirectory::For::kWriting) {
  rename_new_files(directory_);
}

void FilesWriter::add(const std::string &name, ::torch::serialize::OutputArchive &archive) {
  Output file(directory_ / (name + kNew));
  archive.save_to([&](const void *from, size_t bytes) {
    file.write(from, bytes);
    return bytes;
  });
  list_ += file.finish() + "  " + name + "\n";
}

void FilesWriter::commit() {
  const std::string list = std::string(kList) + kNew;
  Output file(directory_ / (list + ".tmp"));
  file.write(list_.data(), list_.size());
  file.finish();
  directory_.sync();
  rename_file(directory_ / (list + ".tmp"), directory_ / list);
  directory_.sync();
  rename_new_files(directory_);
}

bool has_files(const fs::path &directory) {
  return fs::exists(directory / kList) || fs::exists(directory / (std::string(kList) + kNew));
}

FilesReader::FilesReader(const fs::path &directory)
    : directory_(directory, LockedDirectory::For::kReading),
      hashes_(read_list(list_in(directory_))) {}

std::unique_ptr<RegularFile> FilesReader::proven(const std::string &name) const {
  const fs::path list = list_in(directory_);
  const auto found = hashes_.find(name);
  if (found == hashes_.end())
    throw Error(OCTAVO_INVALID, list.string() + ": expected the file " + name +
                                    " in it, found none; load another checkpoint");
  fs::path path = directory_ / name;
  if (list.extension() == kNew && fs::exists(directory_ / (name + kNew)))
    path = directory_ / (name + kNew);
  auto file = std::make_unique<RegularFile>(path);
  Hash hash;
  std::vector<char> part(1 << 20);
  for (uint64_t at = 0; file->is_open();) {
    const std::optional<size_t> got = file->read_at(at, part.data(), part.size());
    if (!got || *got == 0) break;
    hash.add(part.data(), *got);
    at += *got;
  }
  if (!file->is_open())
    throw Error(OCTAVO_RESOURCE, path.string() + ": expected a file of this checkpoint, found " +
                                     file->problem() + "; check the directory and its permissions");
  if (const std::string computed = hash.hex(); computed != found->second)
    throw Error(OCTAVO_INVALID,
                path.string() + ": expected the bytes with BLAKE2b " + found->second.substr(0, 16) +
                    ", as saved, found " + computed.substr(0, 16) +
                    ": the file is damaged or of another checkpoint; load another one");
  return file;
}

::torch::serialize::InputArchive FilesReader::open(const std::string &name,
                                                   const at::Device &device) const {
  const std::unique_ptr<RegularFile> file = proven(name);
  ::torch::serialize::InputArchive archive;
  archive.load_from(
      [&](uint64_t at, void *to, size_t bytes) { return file->read_at(at, to, bytes).value_or(0); },
      [&] { return static_cast<size_t>(file->size()); }, device);
  return archive;
}

}  // namespace octavo::torch
