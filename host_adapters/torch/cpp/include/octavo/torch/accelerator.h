// Accelerator: Hugging Face Accelerate's verbs for a LibTorch training program.
//
//   octavo::torch::Accelerator accelerator("octavo.toml");
//   auto &optimizer = accelerator.prepare(*model, adamw);
//   for (auto &batch : *loader) {
//     auto accumulation = accelerator.accumulate();
//     optimizer.zero_grad();
//     accelerator.backward(loss_of(*model, batch));
//     accelerator.clip_grad_norm_(1.0);
//     optimizer.step();
//   }
//
// With WORLD_SIZE above 1 (torchrun) the processes train one model on their own batches each:
// parameters start with rank 0's values, gradients are averaged before a step. A rank that does not
// answer within distributed.timeout_s ends the others' calls with Error, OCTAVO_FAILED_DEVICE; for
// that, SIGPIPE is ignored from then on in a process that has no handler of it. On GPUs each
// process has its own, and the program gives a backend that connects them:
//
//   model->to(torch::Device(torch::kCUDA, accelerator.local_process_index()));
//   accelerator.set_group(c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "octavo/torch/prepare.h"

namespace c10d {
class Backend;
}

namespace octavo::torch {

// How gradients become their mean over several processes.
struct Averaging {
  int64_t bucket_bytes = int64_t{25} << 20;  // of gradients as f32 that are averaged together
  // A bucket starts during the backward pass, from the second pass on. Without it, results are
  // bit-identical. For models whose use of layers changes from step to step: false.
  bool overlap = true;
};

// One thread; in a group every process makes the same calls in the same order.
class OCTAVO_TORCH_API Accelerator {
 public:
  explicit Accelerator(Config config = {}, int64_t gradient_accumulation_steps = 1);
  ~Accelerator();
  Accelerator(const Accelerator &) = delete;
  Accelerator &operator=(const Accelerator &) = delete;

  // Before prepare(); the same in every process.
  void set_averaging(const Averaging &how);
  // Sets the backend that exchanges tensors on devices, in every process, before prepare(): with
  // the ranks of RANK and WORLD_SIZE. Tensors on the CPU go over gloo, in the Accelerator's own
  // group.
  void set_group(const c10::intrusive_ptr<c10d::Backend> &backend);

  // As octavo::torch::prepare. The result lives until free_memory(). One model an Accelerator.
  Prepared &prepare(::torch::nn::Module &module, ::torch::optim::Optimizer &optimizer);
  // Backward of loss / gradient_accumulation_steps; the last one before a step averages the
  // gradients over the processes, while it goes on.
  void backward(const at::Tensor &loss);

  // For the scope of one batch: step() and zero_grad() act only in every
  // gradient_accumulation_steps-th one, or in the one that is the last of the data.
  class OCTAVO_TORCH_API Accumulation {
   public:
    ~Accumulation();
    Accumulation(const Accumulation &) = delete;
    Accumulation &operator=(const Accumulation &) = delete;

   private:
    friend class Accelerator;
    explicit Accumulation(Accelerator &accelerator) : accelerator_(accelerator) {}
    Accelerator &accelerator_;
  };
  [[nodiscard]] Accumulation accumulate(bool last_batch = false);
  // Whether this batch ends with a step.
  bool sync_gradients() const;

  // The norm of the gradients before they are scaled to max_norm; 0 in a batch without a step.
  double clip_grad_norm_(double max_norm);
  bool optimizer_step_was_skipped() const;

  // Autocast on the prepared model's device for a scope, restored at its end.
  class OCTAVO_TORCH_API Autocast {
   public:
    ~Autocast();
    Autocast(const Autocast &) = delete;
    Autocast &operator=(const Autocast &) = delete;

   private:
    friend class Accelerator;
    Autocast(at::DeviceType type, at::ScalarType dtype);
    at::DeviceType type_;
    bool enabled_;
    at::ScalarType dtype_;
  };
  [[nodiscard]] Autocast autocast(at::ScalarType dtype = at::kBFloat16);

  // The tensors of all processes, joined along the first dimension; a scalar gives [processes].
  at::Tensor gather(const at::Tensor &tensor);
  // Their "sum" or "mean", element by element.
  at::Tensor reduce(const at::Tensor &tensor, const std::string &reduction = "sum");
  void wait_for_everyone();
  bool is_main_process() const { return process_index() == 0; }
  int64_t process_index() const;
  int64_t local_process_index() const;
  int64_t num_processes() const;
  // A line on the standard output of the main process.
  void print(const std::string &line) const;

  // As Prepared's; each process keeps its own random numbers in <directory>/process_<index>, and
  // each also writes what is equal everywhere.
  void save_state(const std::string &directory);
  void load_state(const std::string &directory);
  // Whether a save_state of this process to that directory has ended, also in an earlier program.
  bool has_state(const std::string &directory) const;

  // Closes what prepare() made; the module is plain torch again.
  void free_memory();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octavo::torch
