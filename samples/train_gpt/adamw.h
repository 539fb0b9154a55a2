// AdamW in fp32 on the program's own tensors; runs whose backend has no optimizer use it.
#ifndef TRAIN_GPT_ADAMW_H
#define TRAIN_GPT_ADAMW_H

#include <vector>

#include "optimizer.h"
#include "parameter.h"
#include "threads.h"

namespace gpt {

class AdamW : public Optimizer {
 public:
  // Allocates both moments of every parameter.
  AdamW(std::vector<Parameter *> parameters, const AdamWOptions &options, const Threads &threads);

  double gradient_norm() override;
  void step(double rate, double norm, bool skip) override;
  int64_t own_steps() const override { return steps_; }
  void restore_steps(int64_t steps) override { steps_ = steps; }

 private:
  std::vector<Parameter *> parameters_;
  AdamWOptions options_;
  const Threads &threads_;
  int64_t steps_ = 0;
};

}  // namespace gpt

#endif
