// The keys of the metadata of a checkpoint's files, and the texts that every reader needs.
#pragma once

#include <cstdint>
#include <string>

#include "sdk/src/base/failure.h"
#include "sdk/src/checkpoint/checkpoint_hash.h"
#include "sdk/src/checkpoint/checkpoint_header.h"

namespace octavo {

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

// The schema of a file says how its tensors are hashed. Throws Failure(OCTAVO_VERSION) for a schema
// that this version does not know.
std::string schema_of(HashKind kind);
HashKind hash_kind(const CheckpointHeader &header, const std::string &where);
// The metadata's key of the hash of a tensor.
std::string hash_key(HashKind kind, const std::string &tensor);

}  // namespace octavo
