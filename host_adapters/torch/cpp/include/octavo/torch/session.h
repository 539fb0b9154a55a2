// A look at a run: what was chosen, and the slots that it keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/torch/error.h"

namespace octavo::torch {

class Run;

// One slot. The tensor is the memory itself, [rows, cols]: read it between steps, never write it.
struct Slot {
  std::string owner;                // name of the parameter or linear; empty: the session
  std::string name;                 // "x/amax_history"
  std::string key;                  // in checkpoints, as octavo_run_slot_key
  uint32_t role = 0;                // OCTAVO_ROLE_...
  uint32_t flags = 0;               // OCTAVO_SLOT_...
  at::Tensor tensor;                // undefined: the module's own tensor
  std::vector<std::string> labels;  // of the columns of a pooled slot
};

// Cheap to copy; keeps the run's memory alive.
class OCTAVO_TORCH_API Session {
 public:
  explicit Session(std::shared_ptr<Run> run);

  std::string backend() const;    // "te"; empty without one
  std::string precision() const;  // "no", "fp16", "bf16" or "fp8"
  // An option of the backend as text: option("recipe"). Empty: there is no such option.
  std::string option(const std::string &name) const;
  std::vector<Slot> slots() const;
  // Steps that have ended: after each of them the scales advanced.
  uint64_t steps() const;
  // Bytes that slots take, by role; what torch's allocator was asked for, without alignment.
  std::map<uint32_t, uint64_t> bytes_by_role() const;
  uint64_t bytes() const;
  // The stored value of a parameter [rows, cols] as f32: role OCTAVO_ROLE_WEIGHT, GRADIENT,
  // EXP_AVG, EXP_AVG_SQ or MASTER_WEIGHT. Throws Error for one that no slot holds.
  at::Tensor read(const std::string &parameter, uint32_t role) const;

 private:
  std::shared_ptr<Run> run_;
};

}  // namespace octavo::torch
