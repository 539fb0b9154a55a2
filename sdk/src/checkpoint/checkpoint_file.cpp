// Writing: a temporary file next to the target, fsync, rename, fsync of the directory.
#include "sdk/src/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/draft.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_call(const std::string &path, const char *expected, int reason,
                            const char *remedy) {
  throw Failure(OCTAVO_RESOURCE, kCheckpointDomain, path, ": expected ", expected,
                ", found: ", std::strerror(reason), "; ", remedy);
}

constexpr const char *kReadable = "a file that can be read";
constexpr const char *kCheckPath = "check the path and its permissions";

// The world of a rank file's name; 0: some other file.
uint32_t world_of(const std::string &name) {
  const std::string_view prefix = "rank-", middle = "-of-";
  const char *end = name.data() + name.size();
  uint32_t rank = 0, world = 0;
  if (name.rfind(prefix, 0) != 0) return 0;
  const auto first = std::from_chars(name.data() + prefix.size(), end, rank);
  const std::string_view rest(first.ptr, static_cast<size_t>(end - first.ptr));
  if (first.ec != std::errc() || rest.substr(0, middle.size()) != middle) return 0;
  const auto second = std::from_chars(first.ptr + middle.size(), end, world);
  if (second.ec != std::errc() || rank >= world) return 0;
  return name == rank_file_name(rank, world) ? world : 0;
}

}  // namespace

void write_checkpoint_file(const std::string &path, const CheckpointHeader &header,
                           const std::map<std::string, const void *> &data) {
  const std::string head = write_header(header, path);
  std::vector<std::pair<const CheckpointTensor *, const void *>> order;
  for (const auto &[name, t] : header.tensors) order.emplace_back(&t, data.at(name));
  std::sort(order.begin(), order.end(),
            [](const auto &a, const auto &b) { return a.first->begin < b.first->begin; });
  Draft draft(path, 0666);
  if (draft.file() < 0) fail_call(draft.name(), "a file that can be created", errno, kCheckPath);
  bool written = draft.write(head.data(), head.size());
  for (const auto &[t, bytes] : order) written = written && draft.write(bytes, t->end - t->begin);
  if (!written || fsync(draft.file()) != 0 || !draft.close())
    fail_call(draft.name(), "a file that can be written", errno,
              "free space, or choose a directory of another disk");
  if (!draft.commit()) fail_call(path, "a name that a file can take", errno, kCheckPath);
  if (!draft.sync_directory())
    fail_call(path, "a directory that can be written to disk", errno, kCheckPath);
}

// Without O_NONBLOCK a named pipe would wait for a writer.
CheckpointFile::CheckpointFile(const std::string &path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_.get() < 0) fail_call(path, kReadable, errno, kCheckPath);
  read_header();
}

void CheckpointFile::read_header() {
  const auto malformed = [&](const std::string &text) {
    throw Failure(OCTAVO_INVALID, kCheckpointDomain, path_, ": ", text,
                  "; the file is damaged: restore it");
  };
  struct stat st {};
  if (fstat(file_.get(), &st) != 0) fail_call(path_, kReadable, errno, kCheckPath);
  if (!S_ISREG(st.st_mode)) malformed("expected a regular file, found another kind");
  const auto size = static_cast<uint64_t>(st.st_size);
  unsigned char prefix[8];
  if (size < sizeof(prefix)) malformed(concat("expected at least 8 bytes, found ", size));
  read_at(0, prefix, sizeof(prefix));
  uint64_t length = 0;
  for (size_t i = 0; i < sizeof(prefix); ++i) length |= uint64_t{prefix[i]} << (8 * i);
  const uint64_t most = std::min(kMaxHeaderBytes, size - sizeof(prefix));
  if (length > most)
    malformed(concat("expected a header of at most ", most, " bytes, found a length of ", length));
  std::string json(length, '\0');
  read_at(sizeof(prefix), json.data(), length);
  data_start_ = sizeof(prefix) + length;
  header_ = parse_header(json, size - data_start_, path_);
}

void CheckpointFile::read(const CheckpointTensor &tensor, void *to) const {
  read_at(data_start_ + tensor.begin, to, tensor.end - tensor.begin);
}

void CheckpointFile::read_at(uint64_t offset, void *to, uint64_t bytes) const {
  char *next = static_cast<char *>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call(path_, kReadable, errno, kCheckPath);
    if (got == 0)
      throw Failure(OCTAVO_RESOURCE, kCheckpointDomain, path_, ": expected ", bytes,
                    " more bytes, found the end; ",
                    "the file became shorter while it was read: load again");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

std::string rank_file_name(uint32_t rank, uint32_t world) {
  char name[64];
  std::snprintf(name, sizeof(name), "rank-%04u-of-%04u.safetensors", rank, world);
  return name;
}

uint32_t find_world(const std::string &directory) {
  std::error_code error;
  std::set<uint32_t> worlds;
  fs::directory_iterator next(directory, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error))
    worlds.insert(world_of(next->path().filename().string()));
  if (error)
    throw Failure(OCTAVO_RESOURCE, kCheckpointDomain, directory,
                  ": expected a directory that can be read, found: ", error.message(),
                  "; check the path and its permissions");
  worlds.erase(0);
  if (worlds.size() > 1) {
    std::vector<std::string> found;
    for (const uint32_t world : worlds) found.push_back(std::to_string(world));
    throw Failure(OCTAVO_INVALID, kCheckpointDomain, directory,
                  ": expected the files of one checkpoint, found ranks of worlds of ",
                  enumerate(found), "; remove those that do not belong to it");
  }
  return worlds.empty() ? 0 : *worlds.begin();
}

void expect_all_ranks(const std::string &directory, uint32_t world) {
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::error_code error;
    const std::string name = rank_file_name(rank, world);
    if (fs::exists(fs::path(directory) / name, error)) continue;
    throw Failure(OCTAVO_RESOURCE, kCheckpointDomain, directory, ": expected the files of ", world,
                  " ranks, found no ", name,
                  "; copy the files of all ranks there, or wait until every rank has saved");
  }
}

}  // namespace octavo
