// A host in plain C calls, with octavo_store's memory: what octavo::torch must equal bit for bit.
#ifndef TESTS_TORCH_CPP_PLAIN_HOST_H
#define TESTS_TORCH_CPP_PLAIN_HOST_H

#include <octavo/octavo.h>
#include "octavo/draft/gradients.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace testing_torch {

// One linear [n, k] with a bias. Weight and bias are f32, x, y and their gradients of one dtype.
class PlainHost {
 public:
  PlainHost(const std::string &toml, int64_t n, int64_t k, uint32_t dtype,
            const std::vector<float> &weight, const std::vector<float> &bias);
  ~PlainHost();
  PlainHost(const PlainHost &) = delete;
  PlainHost &operator=(const PlainHost &) = delete;

  // x [m, k] and y [m, n] in the dtype; keeps what backward needs.
  void forward(const void *x, int64_t m, void *y);
  // dx [m, k]; dw [n, k] and db [n] are overwritten. With a gradient slot dw stays untouched, and
  // the slot is overwritten unless `adds`.
  void backward(const void *dy, void *dx, float *dw, float *db, bool adds = false);
  // Without a graph and without training.
  void evaluate(const void *x, int64_t m, void *y);
  // The backend's Adam over weight and bias, where there is one.
  void optimizer_step(const std::vector<float> &bias_gradient, const float *hyper);
  void end_step();
  std::vector<float> read(uint32_t role);
  bool has_optimizer() const {
    return static_cast<const octavo_optimizer *>(
               octavo_run_interface(run_, OCTAVO_STR(OCTAVO_OPTIMIZER_ID))) != nullptr;
  }
  const std::vector<float> &bias() const { return bias_; }
  // What an optimizer outside of the backend has written. Equally many values as before.
  void set_parameters(const std::vector<float> &weight, const std::vector<float> &bias) {
    std::copy(weight.begin(), weight.end(), weight_.begin());
    std::copy(bias.begin(), bias.end(), bias_.begin());
  }
  void quantize();

 private:
  static void check(octavo_status status, const char *what);
  bool native(uint32_t parameter, uint32_t role) const;
  octavo_tensor matrix(const void *data, int64_t rows, int64_t cols, uint32_t dtype) const;
  octavo_tensor rounded_bias();

  octavo_run *run_ = nullptr;
  octavo_store *store_ = nullptr;
  const octavo_backend *table_ = nullptr;
  octavo_session *session_ = nullptr;
  const octavo_linear_plan *plan_ = nullptr;
  int64_t n_;
  int64_t k_;
  uint32_t dtype_;
  std::vector<float> weight_;
  std::vector<float> bias_;
  std::vector<uint16_t> rounded_bias_;
  std::vector<float> bias_gradient_;
  uint32_t ids_[2] = {};
  std::vector<unsigned char> saved_;
  std::vector<unsigned char> workspace_;
  const void *x_ = nullptr;
  int64_t m_ = 0;
};

}  // namespace testing_torch

#endif
