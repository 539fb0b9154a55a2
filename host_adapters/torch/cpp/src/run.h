// One opened Octavo run: settings, device, parameters, slots, and what the core needs of them.
//
// Setup is for one thread; calls of linears may come from any number of threads at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <octavo/octavo.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <octavo/hpp/host/settings.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host_adapters/torch/core/entry.h"
#include "host_adapters/torch/core/view.h"
#include "octavo/draft/gradients.h"
#include "octavo/torch/config.h"

namespace torch::nn {
class Module;
}

namespace octavo::torch {

Settings settings_of(const Config &config, const octavo_device &device);

// For messages: the file, or "the configuration".
std::string name_of(const Config &config);

// Throws with what was said unless the status is OCTAVO_OK.
void check(octavo_status status, const std::string &call, const std::string &object);

// The lines that a function of liboctavo passes on.
template <class Fn>
std::string lines_of(const std::string &call, const std::string &object, Fn fn) {
  Lines lines;
  check(fn(Lines::line, &lines), call, object);
  return lines.take();
}

// Throws Error for a distributed.engine other than "threads": the ranks of this library are
// processes over torch's own backends.
void check_engine(const std::string &engine, const std::string &origin);
// distributed.timeout_s, after check_engine; its default where the configuration is wrong.
std::chrono::seconds timeout_of(const Config &config);

// The device of all parameters; without one the CPU. Throws Error for parameters on several, and on
// a device whose products cannot be intercepted.
at::Device device_of(const ::torch::nn::Module &module);
// The settings with which a run for a model on `device` is opened: on the CPU as configured; on
// cuda:N that GPU; on other types of devices kernels whose kind is the type's name, as "npu" of a
// renamed PrivateUse1, or those that the configuration names.
Settings settings_on(const at::Device &device, const Config &config);
// Throws Error unless a run on `opened` reads tensors of `device`.
void check_device(const at::Device &device, const octavo_device &opened);

// The octavo dtype of a tensor; 0: none of those that parameters and operands may have.
uint32_t dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(uint32_t dtype);
// Whether the slot's memory is the host's own tensor.
inline bool is_native(const octavo_slot &s) {
  return (s.flags & OCTAVO_SLOT_NATIVE) != 0;
}

// The memory of a run's slots, from torch's allocator, which aligns them as the contract wants.
class SlotMemory {
 public:
  explicit SlotMemory(const at::Device &device) : device_(device) {}
  const at::Device &device() const { return device_; }
  // Allocates what the run's slots have that is not allocated yet, filled with initial values.
  void extend(const octavo_run *run);
  // The slot as a tensor [rows, cols]; undefined for a native one.
  const at::Tensor &tensor(uint32_t slot) const { return tensors_.at(slot); }
  size_t size() const { return tensors_.size(); }
  uint64_t bytes() const { return bytes_; }
  // Puts the slot's initial value into it.
  void reset(const octavo_slot &slot);

 private:
  at::Device device_;
  std::vector<at::Tensor> tensors_;
  uint64_t bytes_ = 0;
};

// The handles that the core takes are torch's own tensors. Borrows `t`, the object itself; none for
// an undefined one.
inline core::View handle_of(const at::Tensor &t) {
  return t.defined() ? core::View(::torch::aot_inductor::tensor_pointer_to_tensor_handle(
                           const_cast<at::Tensor *>(&t)))
                     : core::View();
}

// Undefined for none.
inline at::Tensor tensor_of(core::Owned &&t) {
  if (!t) return {};
  const std::unique_ptr<at::Tensor> owned(
      ::torch::aot_inductor::tensor_handle_to_tensor_pointer(t.release()));
  return std::move(*owned);
}

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
  uint32_t dtype = 0;
  // Of a weight in a slot, see in_slots.h: the storage of the tensor.
  std::atomic<const c10::StorageImpl *> placeholder = nullptr;
  c10::Storage placeholder_held;  // so that nothing else has its address
  // Of a gradient in a slot, see in_slots.h.
  std::atomic<bool> gradient_begun = false;
  at::Tensor gradient_factor;  // f32 scalar; undefined: 1

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
  // Allocates the slots and makes the entry.
  void seal();

  // Of a sealed run in FP8; its calls are core/*.h.
  const core::Entry &entry() const { return *entry_; }
  // Called before a boundary that nobody announced: combines the slots over the ranks.
  void on_combine(std::function<void()> combine) { combine_ = std::move(combine); }
  // Derives the next scales, once for what ran since the last time.
  void boundary();
  // Slots have other contents: nothing ran since, and every weight is quantized when a forward
  // needs it.
  void loaded();

  // What casts met since the last boundary: 0, core::kShown, or 1 for Inf or NaN that no result
  // shows.
  float met() const;
  // f32 [1] on the device; undefined: the backend does not look.
  const at::Tensor &nonfinite() const { return nonfinite_; }
  // Slots that ranks combine before the optimizer and a boundary, with OCTAVO_COMBINE_...
  std::vector<std::pair<at::Tensor, uint32_t>> reduced_slots() const;
  // Slots to plain values in the shape of the parameter, and back.
  void read_parameter(const Parameter &p, uint32_t role, at::Tensor &plain) const;
  void write_parameter(const Parameter &p, uint32_t role, const at::Tensor &plain);

  // All parameters of the module's tensor; several when it stacks weights.
  std::vector<Parameter *> parts_of(const at::Tensor &tensor);
  const octavo_slot *slot_of(const Parameter &p, uint32_t role) const;
  std::string report(const std::string &format) const;
  // As text: of the session, or of a linear where it differs; else empty.
  std::string option(const std::string &name, uint32_t linear = OCTAVO_NONE) const;
  // Every option as "name=value", in the backend's order, then "layer.name=value" where a layer's
  // differs.
  std::vector<std::string> options() const;
  std::string backend_id() const;
  // What the backend's optimizer computes, such as "adamw".
  std::string algorithm() const;
  std::string precision() const;

  // The module that was prepared, by identity.
  const void *model = nullptr;
  // Whether the module has plain values in the place of weights in slots, for a while.
  std::atomic<bool> is_plain = false;
  // Whether its Prepared was closed.
  std::atomic<bool> is_closed = false;
  // Of what is slow and may come from several threads.
  std::mutex &mutex() { return mutex_; }
  const at::Device &device() const { return memory_.device(); }
  octavo_run *handle() const { return run_.get(); }
  // Whether anything can run in FP8.
  bool has_backend() const { return octavo_run_backend(handle()) != nullptr; }
  bool has_optimizer() const {
    return static_cast<const octavo_optimizer *>(
               octavo_run_interface(handle(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID))) != nullptr;
  }
  SlotMemory &memory() { return memory_; }
  const SlotMemory &memory() const { return memory_; }
  const std::vector<std::string> &linear_names() const { return linear_names_; }
  std::deque<Parameter> &parameters() { return parameters_; }
  const std::deque<Parameter> &parameters() const { return parameters_; }

 private:
  struct Close {
    void operator()(octavo_run *r) const { octavo_close(r); }
  };

  std::unique_ptr<octavo_run, Close> run_;
  SlotMemory memory_;
  std::deque<Parameter> parameters_;
  std::vector<std::string> linear_names_;    // by id
  std::vector<uint32_t> linear_parameters_;  // by id
  std::function<void()> combine_;
  std::vector<uint8_t> flags_;  // core::SharedFlags
  std::unique_ptr<core::Entry> entry_;
  at::Tensor nonfinite_;
  std::mutex mutex_;
};

// The parameter as a matrix: [N, K] as it is, a vector as one row, more dimensions as rows of the
// first one.
std::pair<int64_t, int64_t> matrix_shape(const at::Tensor &tensor);

}  // namespace octavo::torch
