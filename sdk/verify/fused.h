// One forward of a linear behind a norm or an activation, in two ways: by octavo.fused/1, and by
// the prologue of the kernels' table followed by the backend's own linear_forward.
//
// Both ways share their memory, so a check runs one, takes a snapshot, goes back and runs the
// other.
#pragma once

#include <string>
#include <vector>

#include "host.h"

namespace octavo::conformance {

struct FusedSpec {
  uint32_t op = OCTAVO_PROLOGUE_LAYER_NORM;
  int64_t rows = 0;
  uint32_t in_dtype = OCTAVO_F32;
  uint32_t x_dtype = OCTAVO_F32;
  uint32_t y_dtype = OCTAVO_F32;
  int64_t gap = 0;       // elements between the rows of in and y
  bool complete = true;  // false: null for bias, beta, mean and rstd
  bool has_nan = false;
  Call call{};  // record, save, evaluates
};

class FusedBatch {
 public:
  // `workspace` is what octavo_fused.workspace stated for this linear.
  FusedBatch(Host &host, uint32_t linear, const FusedSpec &spec, const octavo_extent &workspace,
             uint64_t seed);
  FusedBatch(const FusedBatch &) = delete;
  FusedBatch &operator=(const FusedBatch &) = delete;

  // The raw verbs of octavo.fused/1. A check may change `prologue` and `linear` before.
  octavo_status forward();
  // The same by the table of kernels and linear_forward; each must succeed.
  void prologue_apart();
  void forward_apart();

  // Runs a verb of above that must succeed. Behind the fence it fails when host code of the backend
  // touches memory.
  void run(const std::string &verb, octavo_status (FusedBatch::*call)(), bool fenced);
  // Fills all that a forward overwrites, and the workspace of the fused one, with a byte.
  void scribble(uint8_t pattern);
  // Fails at the first byte that differs, apart from the workspace of the fused forward and, with
  // `outputs`, all that a refused call leaves undefined.
  void expect_same(const Snapshot &expected, const std::string &what, bool outputs = false) const;
  // In `s`: x and the workspace of linear_forward as they are in `start`.
  void forget_apart(const Snapshot &start, Snapshot *s) const;

  const std::string &name() const { return name_; }
  octavo_prologue prologue{};
  uint32_t linear;

 private:
  struct Range {
    uint64_t begin, end;  // offsets in the arena
  };
  Range range(const void *memory, uint64_t bytes) const;
  std::vector<Range> outputs() const;
  octavo_forward_call call_on(const octavo_tensor &x, void *const *slots, void *workspace);
  std::vector<void *> slots() const;

  Host &host_;
  const FusedSpec spec_;
  Batch &batch_;
  Matrix in_, gamma_, beta_;
  Matrix mean_, rstd_;  // [M, 1]
  uint8_t *workspace_;
  uint64_t workspace_bytes_;
  uint64_t apart_bytes_;  // of linear_forward's own workspace
  std::string name_;
};

}  // namespace octavo::conformance
