// What octavo checkpoint finds out, before it is printed as text or as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/checkpoint/checkpoint_set.h"

namespace octavo::cli::checkpoint {

// Texts come from files that anybody may have written. An empty one: the file has none.

// A tensor in the file of one rank.
struct Listed {
  std::string key, dtype, role, hash;
  std::vector<uint64_t> shape;
  uint32_t rank = 0;
  uint64_t bytes = 0;
};

struct Head {
  std::string directory, run_id, backend, version;
  uint64_t step = 0;
  uint32_t world = 0;
};

struct Damage {
  std::string file, tensor;  // empty: of the whole checkpoint, or of the whole file
  Failure failure;
};

struct Verified {
  std::string directory;
  std::optional<CheckpointManifest> manifest;  // none: it cannot be read
  uint64_t tensors = 0, bytes = 0;             // of the files that could be opened
  std::vector<Damage> failures;
};

struct Shown {
  Head head;
  std::vector<Listed> tensors;
};

// Null on one side: the other alone has the tensor.
struct Difference {
  std::optional<Listed> left, right;
  const Listed &either() const { return left ? *left : *right; }
};

struct Compared {
  Head left, right;
  uint64_t equal = 0;
  std::vector<Difference> different;
};

// Goes on after damage: all of it is worth knowing.
Verified verify(const std::string &directory);
// Throw Failure as CheckpointSet does.
Shown show(const std::string &directory);
Compared compare(const std::string &left, const std::string &right);

}  // namespace octavo::cli::checkpoint
