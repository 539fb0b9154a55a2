// The header of a file of a checkpoint, in safetensors' format: hashes, tensors and texts.
#pragma once

#include <sodium.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/failure.h"

namespace octavo {

// Hashes of tensors, and texts that carry a hash of themselves.

inline constexpr size_t kBlake2bDigits = 64;

// With 256 bits, as `b2sum -l 256` and hashlib.blake2b(data, digest_size=32) compute it.
class Blake2b {
 public:
  Blake2b();
  void add(const void *from, uint64_t bytes);
  std::string hex();  // once, at the end

 private:
  crypto_generichash_state state_;
};

std::string blake2b_of(std::string_view bytes);

enum class HashKind {
  kXxh3,    // XXH3 with 128 bits, as `xxhsum -H2` and Python's xxhash.xxh3_128 compute it
  kBlake2b  // Blake2b
};

// "XXH3" or "BLAKE2b".
const char *hash_name(HashKind kind);

// Of the bytes of a tensor. XXH3 is as fast as memory, and finds what happens by accident; BLAKE2b
// also withstands who looks for other bytes with the same hash.
class TensorHash {
 public:
  explicit TensorHash(HashKind kind);
  ~TensorHash();
  TensorHash(const TensorHash &) = delete;
  TensorHash &operator=(const TensorHash &) = delete;

  void add(const void *from, uint64_t bytes);
  std::string hex();  // once, at the end; 32 or 64 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The digits of a hash that is not known yet.
std::string no_blake2b();

// A sealed text has `mark` once and then 64 digits: the hash of the text with digits 0 in their
// place. Puts them there; false: there is no such place.
bool seal(std::string &text, std::string_view mark);

struct Seal {
  std::string stated;
  std::string computed;
  bool holds() const { return stated == computed; }
};
// None: the text has no such place.
std::optional<Seal> seal_of(std::string_view text, std::string_view mark);

// The header of a safetensors file: which tensors it holds, where, and its texts.
//
// File: 8 bytes of header length (little-endian), the header as JSON, the data. A header that this
// parser accepts names every data byte exactly once, so nothing after it checks offsets again.

// Of every Failure of this room.
inline constexpr char kCheckpointDomain[] = "octavo.state";

struct CheckpointTensor {
  std::string dtype;            // "F32", "F8_E4M3", ...
  std::vector<uint64_t> shape;  // row-major, innermost last
  uint64_t begin = 0;           // bytes, counted from the first data byte
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct CheckpointHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, CheckpointTensor> tensors;

  uint64_t data_bytes() const;
  // The text of a metadata key; null: none.
  const std::string *text(const std::string &key) const;
};

// As the format's own library: a longer header is refused before memory is taken for it.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxShape = 8;  // dimensions

// The name of a dtype in the format, or null when the format has none.
const char *checkpoint_dtype(uint32_t dtype);
// Bytes of one element, or 0 for a name that is unknown here.
uint64_t checkpoint_dtype_bytes(std::string_view name);

// Lays the tensors out without gaps, wide dtypes first, so that each is aligned to its own width;
// fills begin and end. Equal widths go by name.
void lay_out(CheckpointHeader &header);

// Length and JSON, padded with spaces so that the data starts at a multiple of 8 bytes. Throws
// Failure(OCTAVO_INVALID) for a name that is not UTF-8, and for a header that is too long.
std::string write_header(const CheckpointHeader &header, const std::string &where);

// Parses the JSON of a file in which `data_bytes` bytes follow it. Throws Failure(OCTAVO_INVALID)
// that names `where`: malformed JSON, unknown or duplicate keys, a size that is not dtype x shape,
// tensors that overlap, leave gaps or do not end with the file.
CheckpointHeader parse_header(std::string_view json, uint64_t data_bytes, const std::string &where);

// The keys of the metadata of a checkpoint's files, and the texts that every reader needs.

inline constexpr char kSchema[] = "octavo.schema";
inline constexpr char kVersion[] = "octavo.version";
inline constexpr char kRunId[] = "octavo.run_id";
inline constexpr char kRank[] = "octavo.rank";
inline constexpr char kWorld[] = "octavo.world";
inline constexpr char kStep[] = "octavo.step";
inline constexpr char kRole[] = "octavo.role.";  // with the key of a tensor
inline constexpr char kHeaderBlake2b[] = "octavo.header_blake2b";

// Throws Failure("octavo.state") with "where: text".
template <typename... Part>
[[noreturn]] void fail_checkpoint(octavo_status status, const std::string &where,
                                  const Part &...text) {
  throw Failure(status, kCheckpointDomain, where, ": ", text...);
}

// Throws Failure(OCTAVO_INVALID) when the file's metadata has no such text.
const std::string &required_text(const CheckpointHeader &header, const std::string &key,
                                 const std::string &where);

// A number that the checkpoint itself needs: kRank, kWorld, kStep.
uint64_t number_text(const CheckpointHeader &header, const char *key, const std::string &where);

// The schema of a file says how its tensors are hashed. Throws Failure(OCTAVO_INCOMPATIBLE) for a
// schema that this version does not know.
std::string schema_of(HashKind kind);
HashKind hash_kind(const CheckpointHeader &header, const std::string &where);
// The metadata's key of the hash of a tensor.
std::string hash_key(HashKind kind, const std::string &tensor);

}  // namespace octavo
