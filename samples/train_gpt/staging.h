// The tensors of one call, where the run's device reads and writes them.
#ifndef TRAIN_GPT_STAGING_H
#define TRAIN_GPT_STAGING_H

#include <vector>

#include "device.h"
#include "fused.h"

namespace gpt {

class Staging {
 public:
  explicit Staging(const Device &device) : device_(device) {}

  // A dense fp32 tensor that the call reads, writes, or adds to. Null stays null.
  octavo_tensor in_matrix(const float *data, int64_t rows, int64_t cols);
  octavo_tensor out_matrix(float *data, int64_t rows, int64_t cols);
  octavo_tensor in_out_matrix(float *data, int64_t rows, int64_t cols);
  // A prologue whose tensors are this program's own.
  void stage(const octavo_prologue &own, Prologue &staged);
  // After the call: what it wrote is in the program's tensors. What the functions above gave is no
  // longer valid.
  void finish();

 private:
  struct Result {
    float *host;
    const float *there;
    size_t count;
  };
  float *place(const float *data, size_t count, bool reads);
  float *out(float *data, size_t count, bool reads);

  const Device &device_;
  std::vector<DeviceBuffer> places_;  // of a call's first tensor, of its second, ...
  size_t used_ = 0;
  std::vector<Result> results_;
};

}  // namespace gpt

#endif
