// The optimizer of the backend: steps every parameter of the model, in the backend's own formats.
//
// Over several ranks each steps the parameters whose states it keeps and sends their new weights
// to the others.
#ifndef TRAIN_GPT_BACKEND_OPTIMIZER_H
#define TRAIN_GPT_BACKEND_OPTIMIZER_H

#include <vector>

#include "octavo_run.h"
#include "optimizer.h"

namespace gpt {

class BackendOptimizer : public Optimizer {
 public:
  // After Model::attach to a run with an optimizer. Writes the weights of this rank that the
  // backend owns, and frees the program's own copies of what the backend owns.
  BackendOptimizer(OctavoRun &run, std::vector<Parameter *> parameters, const AdamWOptions &options,
                   const Communicator &communicator);

  // Sends what each rank wrote to the others: after construction, and after each step.
  void publish();

  double gradient_norm() override;
  // Clears the gradients that the backend owns: they are accumulated.
  void step(double rate, double norm, bool skip) override;

  // The current value of a weight as fp32, whoever owns it; only on the rank that steps it.
  std::vector<float> read_weight(const Parameter &p);

 private:
  octavo_parameter_item item(const Parameter &p);
  void hand_over(Parameter &p);
  void move(const Parameter &p, bool write, float *plain);
  void prepare();

  OctavoRun &run_;
  std::vector<Parameter *> parameters_;
  AdamWOptions options_;
  const Communicator communicator_;
  TwinBuffer hyper_;  // of two groups: weights that do not decay, weights that do
  TwinBuffer sums_;   // squares of the gradient of each parameter, 0 where another rank counts
  TwinBuffer skip_;
  std::vector<octavo_parameter_item> items_;  // of the parameters that this rank steps
};

}  // namespace gpt

#endif
