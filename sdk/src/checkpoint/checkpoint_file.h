// Files of tensors: written whole or not at all, read after their header was checked, and every
// tensor against its hash. A checkpoint has one a rank, all in one directory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/checkpoint/checkpoint_header.h"
#include "sdk/src/file/atomic_file.h"

namespace octavo {

// Work on many tensors at once: reading or writing one and hashing it take about as long as each
// other, and one thread hashes more slowly than a disk writes.

// Bytes that go through the cache between reading and hashing.
constexpr uint64_t kPieceBytes = 1 << 18;

// Calls work(i) once for every i below bytes.size(), the largest first, on this thread and, where
// there is enough to do, on others. An exception of one comes out when all have ended.
void work_on_tensors(const std::vector<uint64_t> &bytes, const std::function<void(size_t)> &work);

// Throws Failure(OCTAVO_NO_RESOURCE) about a call that failed with `reason`, an errno.
[[noreturn]] void fail_call(const std::string &path, const char *expected, int reason,
                            const char *remedy);
inline constexpr char kCheckPath[] = "check the path and its permissions";

// The steps of a draft that becomes a file of a checkpoint. They throw Failure(OCTAVO_NO_RESOURCE).
void check_created(const AtomicFile &draft);
[[noreturn]] void fail_write(const AtomicFile &draft, int reason);
// Its bytes and its name, `path`, are on disk afterwards.
void put_in_place(AtomicFile &draft, const std::string &path);

// Writes the tensors of a laid out header; `data` holds the address of each one's bytes. Adds the
// hashes, of the kind that its schema says. The file appears under its name complete and on disk;
// until then the old one, if any, stays as it is. Throws Failure(OCTAVO_NO_RESOURCE) where the
// system refuses.
void write_checkpoint_file(const std::string &path, CheckpointHeader header,
                           const std::map<std::string, const void *> &data);

class CheckpointFile {
 public:
  // Opens the file and checks its header. Throws Failure: OCTAVO_NO_RESOURCE for a file that cannot
  // be read, OCTAVO_INCOMPATIBLE for one of another schema, OCTAVO_INVALID for one that is
  // malformed or whose header has not its hash.
  explicit CheckpointFile(const std::string &path);

  const std::string &path() const { return path_; }
  const CheckpointHeader &header() const { return header_; }
  uint64_t bytes() const { return bytes_; }
  HashKind hash_kind() const { return hash_kind_; }
  // Of the header, which holds the hash of every tensor.
  const std::string &blake2b() const { return *header_.text("octavo.header_blake2b"); }
  // Copies the bytes of a tensor of this file. Throws Failure(OCTAVO_INVALID), naming the tensor,
  // when they have not its hash; `to` holds them then.
  void read(const std::string &tensor, void *to) const;
  // The same without keeping them.
  void verify(const std::string &tensor) const;
  // The hash of its bytes as they are.
  std::string hash(const std::string &tensor, HashKind kind) const;

 private:
  void read_at(uint64_t offset, void *to, uint64_t bytes) const;
  void read_header();
  void check_seal(const std::string &head) const;
  // Reads the bytes to `to`, all of them or piece after piece to the same place.
  std::string hash_of(HashKind kind, const CheckpointTensor &t, char *to, bool keep) const;
  void check_hash(const std::string &tensor, const std::string &found) const;

  std::string path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  uint64_t data_start_ = 0;
  HashKind hash_kind_ = HashKind::kXxh3;
  CheckpointHeader header_;
};

}  // namespace octavo
