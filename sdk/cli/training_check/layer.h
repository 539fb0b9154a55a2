// One linear of a trial: by the backend where it takes the layer, else by plain loops.
//
// What must not go wrong is the order: add, seal, lend, bind; then forward and backward of each
// part of a batch, and the optimizer after the last part.
#pragma once

#include <optional>
#include <string>

#include "plain.h"

namespace octavo::training_check {

// The run that is tried, with what its layers share.
class Session {
 public:
  explicit Session(const octavo::Settings &settings);
  // After the layers were added. Slots exist afterwards.
  void seal();
  // Not 0 where a cast of this step met infinity or NaN.
  bool nonfinite() const;
  void end_step() { end_step_->operator()(); }

  // The threads of this machine, for kernels on the CPU.
  octavo::Threads threads;
  octavo::Host host;
  octavo::Run run;
  octavo::Memory memory;
  octavo::Staging staging;
  std::optional<octavo::Store> store;

 private:
  static octavo::Host &with_threads(octavo::Host &host, const octavo::Threads &threads);
  std::optional<octavo::EndStep> end_step_;
};

class Layer {
 public:
  Layer(const std::string &name, int64_t n, int64_t k, uint64_t seed);

  void add(Session &session);
  void lend();
  void bind(int64_t rows);

  void forward(const Floats &x, int64_t rows, Floats &y);
  // Adds to the gradients. A null dx is not computed.
  void backward(const Floats &x, const Floats &dy, int64_t rows, Floats *dx);
  void clear_gradients();
  // The gradient of the weight, wherever it is.
  void read_gradient(Floats &into);

  // Between the tensors of this program and the ones that the backend's optimizer looks at.
  void upload_for_step();
  void download();

  bool in_backend() const { return calls_.has_value(); }
  // Of the run; OCTAVO_NONE: the backend does not know the parameter.
  uint32_t parameter() const { return parameter_; }

  const std::string name;
  const int64_t n, k;
  std::string refusal;  // of the backend or liboctavo; empty: none
  Floats weight, gradient, bias, bias_gradient;

 private:
  std::string call(const char *verb) const;
  void upload();

  Session *session_ = nullptr;
  uint32_t parameter_ = OCTAVO_NONE, linear_ = OCTAVO_NONE;
  std::optional<octavo::Twin> weight_there_, gradient_there_;
  std::optional<octavo::LinearCalls> calls_;
};

}  // namespace octavo::training_check
