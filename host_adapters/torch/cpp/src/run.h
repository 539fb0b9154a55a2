// One opened Octavo run: parameters, slots, and the verbs of a step.
//
// Setup is for one thread; calls of linears may come from any number of threads at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host.h"
#include "octavo/torch/config.h"
#include "slot_memory.h"

namespace octavo::torch {

// A range of rows.
struct Rows {
  int64_t first = 0;
  int64_t count = 0;
};

// A parameter of the module, or one of the matrices stacked in it, as the session sees it: a matrix
// [rows, cols].
struct Parameter {
  std::string name;
  at::Tensor tensor;  // the module's own, by identity
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first_row = 0;   // in the tensor
  bool is_piece = false;   // the tensor stacks others, too
  int64_t whole_rows = 0;  // of the tensor
  uint32_t id = OCTAVO_NONE;
  uint32_t flags = 0;
  bool keeps_weight = false;    // the weight lives in a slot
  bool keeps_gradient = false;  // the gradient lives in a slot
  SlotList quantize;
  SlotList optimizer;
  SlotList reduce;
  bool has_cache = false;  // quantize_weight has something to do
  uint64_t cache_workspace = 0;

  // Which content of the weight the cache was made of. A weak reference keeps the address of a
  // replaced storage from being taken for the old one.
  std::mutex mutex;
  std::atomic<bool> cached = false;
  std::atomic<uint64_t> version = 0;
  std::atomic<const void *> storage = nullptr;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_reference{
      c10::intrusive_ptr<c10::StorageImpl>()};

  std::atomic<bool> has_gradient = false;  // the gradient slot holds something that counts

  bool frozen() const { return (flags & OCTAVO_PARAMETER_FROZEN) != 0; }
  // This parameter's part of a tensor in the shape of the module's.
  at::Tensor part_of(const at::Tensor &whole) const {
    return is_piece ? whole.narrow(0, first_row, rows) : whole;
  }
  bool is(const at::Tensor &other, const std::optional<Rows> &piece) const {
    return tensor.is_same(other) && is_piece == piece.has_value() &&
           (!is_piece || (first_row == piece->first && rows == piece->count));
  }
};

class Run {
 public:
  // device: of the model's tensors, and so of slots and workspaces. Throws Error when nothing that
  // the configuration allows can run there.
  Run(const Config &config, const at::Device &device);
  ~Run();
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

  struct Placement {
    bool accepted = false;
    std::string reason;
  };
  // Before the seal. The tensor is read only here; `piece`: the parameter is these rows of it. A
  // declined parameter is not kept: null.
  Parameter *add_parameter(const std::string &name, const at::Tensor &tensor,
                           const std::optional<Rows> &piece, uint32_t flags, Placement *placement);
  uint32_t add_linear(const std::string &name, const Parameter &weight, Placement *placement);
  // Allocates the slots and builds the lists.
  void seal();

  // The native addresses of this moment in their positions. Returns the list to pass; `out` lives
  // as long as the call.
  void *const *fill(const SlotList &list, Addresses *out) const;
  SlotList linear_list(uint32_t linear, uint32_t verb, SlotMemory::Record record) const;

  // Refreshes the quantized weight if the weight has changed since, or if `always`.
  void quantize(Parameter &p, bool always = false);
  void quantize_all();
  bool is_stale(const Parameter &p) const;
  // Before a forward whose weight is stale. One that records, and finds the weight changed since a
  // backward, is the end of a step that nobody announced: the scales advance first.
  void settle(Parameter &p, bool records);
  void ran_backward() { backward_since_.store(true, std::memory_order_relaxed); }
  // Once a step, after the optimizer: derives the next scales, clears the accumulators.
  void end_step();
  // Whether a gradient that was infinite or NaN went through a cast since the last end_step.
  bool saw_nonfinite() const;
  // Where that is written, on the device; null: the backend does not look.
  const float *nonfinite() const {
    return nonfinite_.defined() ? nonfinite_.const_data_ptr<float>() : nullptr;
  }
  // Slots that ranks combine before the optimizer and end_step, with OCTAVO_COMBINE_...
  std::vector<std::pair<at::Tensor, uint32_t>> reduced_slots() const;
  void drop_gradients();
  // Slots to plain values [rows, cols] of `plain`, and back.
  void read_parameter(const Parameter &p, uint32_t role, at::Tensor &plain);
  void write_parameter(const Parameter &p, uint32_t role, const at::Tensor &plain);

  const octavo_slot *slot_of(const Parameter &p, uint32_t role) const;
  std::string report(const std::string &format) const;
  std::string option(const std::string &name) const;
  // Every option as "name=value", in the backend's order.
  std::vector<std::string> options() const;
  std::string backend_id() const;
  std::string precision() const;

  const at::Device &device() const { return memory_.device(); }
  octavo_run *handle() const { return run_; }
  const octavo_backend *table() const { return table_; }
  octavo_session *session() const { return session_; }
  const octavo_optimizer *optimizer() const { return octavo_optimizer_of(run_); }
  Host &host() const { return *host_; }
  SlotMemory &memory() { return memory_; }
  const SlotMemory &memory() const { return memory_; }
  const std::vector<std::string> &linear_names() const { return linear_names_; }
  std::deque<Parameter> &parameters() { return parameters_; }
  const std::deque<Parameter> &parameters() const { return parameters_; }

 private:
  void move(const Parameter &p, uint32_t role, at::Tensor &plain, bool write);

  std::unique_ptr<Host> host_ = std::make_unique<Host>();
  octavo_run *run_ = nullptr;
  const octavo_backend *table_ = nullptr;
  octavo_session *session_ = nullptr;
  SlotMemory memory_;
  std::deque<Parameter> parameters_;
  std::vector<std::string> linear_names_;  // by id
  SlotList end_step_;
  std::atomic<bool> backward_since_ = false;  // the last end_step
  at::Tensor nonfinite_;
};

// The parameter as a matrix: [N, K] as it is, a vector as one row, more dimensions as rows of the
// first one.
std::pair<int64_t, int64_t> matrix_shape(const at::Tensor &tensor);

}  // namespace octavo::torch
