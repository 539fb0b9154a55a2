// AdamW in fp32 with decoupled weight decay, clipping by the global norm, and the learning rate.
#ifndef TRAIN_GPT_ADAMW_H
#define TRAIN_GPT_ADAMW_H

#include <utility>
#include <vector>

#include "parameter.h"
#include "threads.h"

namespace gpt {

struct AdamWOptions {
  double rate = 5e-3;  // at the end of the warm-up
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;
  double clip = 1.0;  // largest global norm of the gradient
};

// Linear warm-up over the first tenth of the steps, then a cosine down to a tenth of `peak`.
double learning_rate(double peak, int64_t step, int64_t steps);

class AdamW {
 public:
  AdamW(std::vector<Parameter *> parameters, const AdamWOptions &options, const Threads &threads)
      : parameters_(std::move(parameters)), options_(options), threads_(threads) {}

  // The norm of all gradients together.
  double gradient_norm() const;
  // One step with gradients whose norm is `norm`; the moments and the step count move, too.
  void step(double rate, double norm);

 private:
  std::vector<Parameter *> parameters_;
  AdamWOptions options_;
  const Threads &threads_;
  int64_t steps_ = 0;
};

}  // namespace gpt

#endif
