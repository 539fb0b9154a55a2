// What the training loop needs of an optimizer, whoever owns weights and states; and AdamW in fp32
// on the program's own tensors, for runs whose backend has no optimizer.
#ifndef TRAIN_GPT_OPTIMIZER_H
#define TRAIN_GPT_OPTIMIZER_H

#include <memory>
#include <vector>

#include "parameter.h"

namespace gpt {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;  // decoupled; of matrices alone
  double clip = 1.0;   // largest global norm of the gradient
};

// Linear warm-up over the first tenth of the steps, then a cosine down to peak * end.
double learning_rate(double peak, double end, int64_t step, int64_t steps);

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The norm of all gradients together, after they were averaged over the ranks. Every rank calls
  // it and gets the same number; every parameter counts once.
  virtual double gradient_norm() = 0;
  // One step with gradients whose norm is `norm`, clipped to AdamWOptions::clip. With `skip`
  // nothing changes, neither a state nor the count of steps.
  virtual void step(double rate, double norm, bool skip) = 0;
  // For checkpoints: the count of steps that the program keeps; 0 when the backend counts.
  virtual int64_t own_steps() const { return 0; }
  virtual void restore_steps(int64_t /*steps*/) {}
  // Once before the first step: over several ranks, what one wrote goes to the others.
  virtual void start() {}
};

// Allocates both moments of every parameter.
std::unique_ptr<Optimizer> make_adamw(std::vector<Parameter *> parameters, const Threads &threads);

}  // namespace gpt

#endif
