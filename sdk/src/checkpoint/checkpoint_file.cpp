// Writing: a temporary file next to the target, fsync, rename, fsync of the directory. The data
// goes first: its hashes are in the header, whose length is known before they are.
#include "sdk/src/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_header.h"

namespace octavo {

// Threads take the next tensor from a common count, and end with the call.

namespace {

constexpr uint64_t kBytesOfThread = 2 << 20;  // for less, starting one costs more than it gains
constexpr uint64_t kMostThreads = 8;

}  // namespace

void work_on_tensors(const std::vector<uint64_t> &bytes, const std::function<void(size_t)> &work) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    for (size_t i = next++; i < order.size(); i = next++) {
      try {
        work(order[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = order.size();
      }
    }
  };
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t threads = std::min<uint64_t>(
      {total / kBytesOfThread, cores, kMostThreads, static_cast<uint64_t>(order.size())});
  std::vector<std::thread> others;
  try {
    for (uint64_t i = 1; i < threads; ++i) others.emplace_back(run);
  } catch (const std::system_error &) {
    // No more threads: those that run share the work.
  } catch (const std::bad_alloc &) {
  }
  run();
  for (std::thread &t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

namespace {

constexpr const char *kReadable = "a file that can be read";
// As the header's JSON has it: a quote inside of a text has a backslash before it.
constexpr char kHeaderMark[] = "\"octavo.header_blake2b\":\"";

// Writes a tensor and returns its hash; false: the reason is in errno.
bool write_tensor(const AtomicFile &draft, uint64_t offset, const void *from, uint64_t bytes,
                  HashKind kind, std::string *hex) {
  TensorHash hash(kind);
  const char *next = static_cast<const char *>(from);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = std::min(kPieceBytes, bytes - done);
    hash.add(next + done, piece);
    if (!draft.write_at(offset + done, next + done, piece)) return false;
    // The disk begins while the next piece is hashed. An error comes back from fsync.
    sync_file_range(draft.file(), static_cast<off_t>(offset + done), static_cast<off_t>(piece),
                    SYNC_FILE_RANGE_WRITE);
    done += piece;
  }
  *hex = hash.hex();
  return true;
}

// The header as the file begins, with its own hash.
std::string sealed(const CheckpointHeader &header, const std::string &path) {
  std::string head = write_header(header, path);
  if (!seal(head, kHeaderMark))
    fail_checkpoint(OCTAVO_INTERNAL, path, "expected a place for the hash of the header");
  return head;
}

}  // namespace

void fail_call(const std::string &path, const char *expected, int reason, const char *remedy) {
  fail_checkpoint(OCTAVO_NO_RESOURCE, path, "expected ", expected,
                  ", found: ", std::strerror(reason), "; ", remedy);
}

void check_created(const AtomicFile &draft) {
  if (draft.file() < 0) fail_call(draft.name(), "a file that can be created", errno, kCheckPath);
}

void fail_write(const AtomicFile &draft, int reason) {
  fail_call(draft.name(), "a file that can be written", reason,
            "free space, or choose a directory of another disk");
}

void put_in_place(AtomicFile &draft, const std::string &path) {
  if (fsync(draft.file()) != 0 || !draft.close()) fail_write(draft, errno);
  if (!draft.commit()) fail_call(path, "a name that a file can take", errno, kCheckPath);
  if (!draft.sync_directory())
    fail_call(path, "a directory that can be written to disk", errno, kCheckPath);
}

void write_checkpoint_file(const std::string &path, CheckpointHeader header,
                           const std::map<std::string, const void *> &data) {
  std::vector<std::pair<const std::string *, const CheckpointTensor *>> tensors;
  std::vector<uint64_t> sizes;
  header.metadata[kHeaderBlake2b] = no_blake2b();
  const HashKind kind = hash_kind(header, path);
  const std::string nothing = TensorHash(kind).hex();  // as long as the hashes that follow
  for (const auto &[name, t] : header.tensors) {
    header.metadata[hash_key(kind, name)] = nothing;
    tensors.emplace_back(&name, &t);
    sizes.push_back(t.bytes());
  }
  const uint64_t data_start = write_header(header, path).size();
  AtomicFile draft(path, 0666);
  check_created(draft);
  std::vector<std::string> hashes(tensors.size());
  work_on_tensors(sizes, [&](size_t i) {
    const auto &[name, t] = tensors[i];
    if (!write_tensor(draft, data_start + t->begin, data.at(*name), sizes[i], kind, &hashes[i]))
      fail_write(draft, errno);
  });
  for (size_t i = 0; i < tensors.size(); ++i)
    header.metadata[hash_key(kind, *tensors[i].first)] = hashes[i];
  const std::string head = sealed(header, path);
  if (!draft.write_at(0, head.data(), head.size())) fail_write(draft, errno);
  put_in_place(draft, path);
}

// Without O_NONBLOCK a named pipe would wait for a writer.
CheckpointFile::CheckpointFile(const std::string &path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_.get() < 0) fail_call(path, kReadable, errno, kCheckPath);
  // Each thread reads its tensor from begin to end. Advice alone: a file system may not take it.
  posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  read_header();
}

void CheckpointFile::read_header() {
  const auto malformed = [&](const std::string &text) {
    fail_checkpoint(OCTAVO_INVALID, path_, "header: ", text, "; the file is damaged: restore it");
  };
  struct stat st {};
  if (fstat(file_.get(), &st) != 0) fail_call(path_, kReadable, errno, kCheckPath);
  if (!S_ISREG(st.st_mode)) malformed("expected a regular file, found another kind");
  bytes_ = static_cast<uint64_t>(st.st_size);
  unsigned char prefix[8];
  if (bytes_ < sizeof(prefix)) malformed(concat("expected at least 8 bytes, found ", bytes_));
  read_at(0, prefix, sizeof(prefix));
  uint64_t length = 0;
  for (size_t i = 0; i < sizeof(prefix); ++i) length |= uint64_t{prefix[i]} << (8 * i);
  const uint64_t most = std::min(kMaxHeaderBytes, bytes_ - sizeof(prefix));
  if (length > most)
    malformed(concat("expected a header of at most ", most, " bytes, found a length of ", length));
  data_start_ = sizeof(prefix) + length;
  std::string head(data_start_, '\0');
  read_at(0, head.data(), data_start_);
  check_seal(head);
  header_ = parse_header(std::string_view(head).substr(sizeof(prefix)), bytes_ - data_start_,
                         path_ + ": header");
  hash_kind_ = octavo::hash_kind(header_, path_);
  required_text(header_, kHeaderBlake2b, path_);
  for (const auto &[name, t] : header_.tensors)
    required_text(header_, hash_key(hash_kind_, name), path_);
}

// A file without the place for it is judged by its schema.
void CheckpointFile::check_seal(const std::string &head) const {
  const std::optional<Seal> seal = seal_of(head, kHeaderMark);
  if (seal && !seal->holds())
    fail_checkpoint(OCTAVO_INVALID, path_, "header: expected bytes with the BLAKE2b hash ",
                    seal->stated, ", found ", seal->computed,
                    "; the file is damaged: restore it, or load another checkpoint");
}

void CheckpointFile::read(const std::string &tensor, void *to) const {
  const CheckpointTensor &t = header_.tensors.at(tensor);
  check_hash(tensor, hash_of(hash_kind_, t, static_cast<char *>(to), true));
}

void CheckpointFile::verify(const std::string &tensor) const {
  check_hash(tensor, hash(tensor, hash_kind_));
}

std::string CheckpointFile::hash(const std::string &tensor, HashKind kind) const {
  const CheckpointTensor &t = header_.tensors.at(tensor);
  std::vector<char> piece(std::min(kPieceBytes, t.bytes()));
  return hash_of(kind, t, piece.data(), false);
}

std::string CheckpointFile::hash_of(HashKind kind, const CheckpointTensor &t, char *to,
                                    bool keep) const {
  TensorHash hash(kind);
  for (uint64_t at = t.begin; at < t.end;) {
    const uint64_t piece = std::min(kPieceBytes, t.end - at);
    read_at(data_start_ + at, to, piece);
    hash.add(to, piece);
    at += piece;
    if (keep) to += piece;
  }
  return hash.hex();
}

void CheckpointFile::check_hash(const std::string &tensor, const std::string &found) const {
  const std::string &stated = *header_.text(hash_key(hash_kind_, tensor));
  if (found != stated)
    fail_checkpoint(OCTAVO_INVALID, path_, "tensor \"", tensor, "\": expected bytes with the ",
                    hash_name(hash_kind_), " hash ", stated, ", found ", found,
                    "; the file is damaged: restore it, or load another checkpoint");
}

void CheckpointFile::read_at(uint64_t offset, void *to, uint64_t bytes) const {
  char *next = static_cast<char *>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file_.get(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call(path_, kReadable, errno, kCheckPath);
    if (got == 0)
      fail_checkpoint(OCTAVO_NO_RESOURCE, path_, "expected ", bytes, " more bytes, found the end; ",
                      "the file became shorter while it was read: load again");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace octavo
