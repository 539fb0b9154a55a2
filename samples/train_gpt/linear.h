// One linear layer: through Octavo when the layer was placed there, else the host's own product.
//
// This pair of files is what a host author reads first: everything that an FP8 linear needs from
// its host is here, in the order in which it happens.
#ifndef TRAIN_GPT_LINEAR_H
#define TRAIN_GPT_LINEAR_H

#include <memory>
#include <string>
#include <vector>

#include "gradient_fault.h"
#include "host_linear.h"
#include "octavo_run.h"

namespace gpt {

class Linear {
 public:
  // y[M, outputs] = x[M, inputs] w^T (+ bias). Starts in the host's own precision.
  Linear(std::string name, int64_t inputs, int64_t outputs, bool with_bias, Precision precision,
         const Threads &threads);

  // Octavo, before the seal: describes the weight and the layer, and asks for a placement.
  void add_to(OctavoRun &run);
  // Octavo, after the seal: hands in the native tensors and provides memory for calls with up to
  // max_rows rows. Then, when every layer has done so, fetches the pointer lists.
  void bind_to(OctavoRun &run, int64_t max_rows);
  void fetch_lists();

  // Refreshes the quantized weight. Due after each change of the weight, before the next forward.
  void quantize_weight();
  // x must stay valid until backward. Without training no backward follows and nothing is recorded.
  void forward(const float *x, int64_t rows, float *y, bool training);
  // Whether the norm or activation before this layer goes through the backend: see fused.h.
  bool takes_prologue() const { return fused_ != nullptr; }
  // forward of what the prologue gives; x is a buffer [rows, inputs] for it, written when needed.
  void forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y, bool training);
  // Overwrites the gradients of weight and bias, and dx unless it is null.
  void backward(const float *dy, int64_t rows, float *dx);

  // Every backward call passes its dy through `fault`, which outlives the layer; null: none.
  void set_fault(GradientFault *fault) { fault_ = fault; }

  const std::string &name() const { return name_; }
  Parameter &weight() { return weight_; }
  Parameter *bias() { return bias_.get(); }
  // Where the layer runs and why, for the report.
  const std::string &placement() const { return placement_; }
  const std::string &reason() const { return reason_; }

 private:
  // One call of the backend: linear_forward, or with a prologue that of octavo.fused/1, and then x
  // may be null.
  void call_forward(const float *x, int64_t rows, const octavo_prologue *prologue, float *y,
                    bool training);

  std::string name_;
  Parameter weight_;
  std::unique_ptr<Parameter> bias_;
  HostLinear own_;
  GradientFault *fault_ = nullptr;

  // Set once the layer is placed with Octavo.
  OctavoRun *run_ = nullptr;
  uint32_t linear_ = OCTAVO_NONE;
  uint32_t plan_flags_ = 0;
  uint32_t gradient_ = OCTAVO_GRADIENT_TENSOR;  // who receives dw
  const octavo_fused *fused_ = nullptr;         // null: the program computes prologues
  bool fuses_ = false;                          // in one call with the layer
  const float *x_ = nullptr;
  std::unique_ptr<DeviceBuffer> saved_;
  struct Lists {
    std::vector<void *> weight;
    std::vector<void *> forward;
    std::vector<void *> backward;
  };
  const Lists &lists() const { return run_->samples_casts() ? sampled_ : unsampled_; }
  Lists sampled_;
  Lists unsampled_;  // null where statistics of casts would be recorded
  std::vector<void *> evaluation_slots_;

  std::string placement_;
  std::string reason_;
};

}  // namespace gpt

#endif
