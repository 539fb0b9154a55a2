// Data parallel training: after backward every rank gets the average of all ranks' gradients.
//
// Gradients in this program's own tensors are summed in fp32; those that the backend keeps in slots
// are reduced by its own stages (octavo/gradients.h). Ranks end with equal bits either way.
#ifndef TRAIN_GPT_GRADIENT_REDUCTION_H
#define TRAIN_GPT_GRADIENT_REDUCTION_H

#include <memory>
#include <vector>

#include "octavo_run.h"
#include "threads.h"

namespace gpt {

class GradientReduction {
 public:
  // After the optimizer was built, which decides whose gradients are whose. run: null without
  // Octavo. Throws UserError when the backend keeps gradients and cannot reduce them.
  GradientReduction(const std::vector<Parameter *> &parameters, OctavoRun *run,
                    const Communicator &communicator, const Threads &threads);

  // Every rank calls it after its backward.
  void average();

 private:
  // Parameters whose gradients travel together, the last of the model first: in this order backward
  // finishes them.
  struct Bucket {
    std::vector<Parameter *> parameters;
    std::vector<octavo_parameter_item> items;  // of gradients in slots
    uint64_t elements = 0;
  };

  void add(std::vector<Bucket> &buckets, Parameter *p);
  void prepare(Bucket &bucket);
  void average_own(const Bucket &bucket);

  OctavoRun *run_;
  const Communicator communicator_;
  const Threads &threads_;
  std::vector<Bucket> own_;
  std::vector<Bucket> in_slots_;
  Buffer<float> own_sums_;
  struct Messages {
    explicit Messages(const Device &device) : send(device), recv(device), state(device) {}
    DeviceBuffer send;
    DeviceBuffer recv;
    DeviceBuffer state;
  };
  std::unique_ptr<Messages> messages_;  // of gradients in slots; null: there are none
};

}  // namespace gpt

#endif
