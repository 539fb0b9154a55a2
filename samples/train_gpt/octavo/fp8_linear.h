// A linear layer that was placed with a backend, and how a model gets there.
//
// This pair of files is what a host author reads first: everything that an FP8 linear needs from
// its host is here, in the order in which it happens.
#ifndef TRAIN_GPT_FP8_LINEAR_H
#define TRAIN_GPT_FP8_LINEAR_H

#include <optional>
#include <vector>

#include "../model/model.h"
#include "octavo_run.h"

namespace gpt {

// Places the linears with Octavo, seals the run and, when the backend steps weights, gives it every
// parameter. `run` outlives the model.
void attach(Model &model, OctavoRun &run, const Communicator &communicator = {});

class Fp8Linear : public Linear::Place {
 public:
  // id: of the layer, which the run has accepted.
  Fp8Linear(Linear &layer, OctavoRun &run, uint32_t id) : layer_(layer), run_(run), id_(id) {}

  // After the seal, when every tensor was lent: memory and calls for up to max_rows rows.
  void build(int64_t max_rows);

  void quantize_weight() override;
  bool takes_prologue() const override { return run_.fused() != nullptr; }
  void forward(const float *x, int64_t rows, float *y, bool training) override;
  void forward(const octavo_prologue &prologue, float *x, int64_t rows, float *y,
               bool training) override;
  void backward(const float *dy, int64_t rows, float *dx) override;

 private:
  void call_forward(const float *x, const octavo_prologue *prologue, int64_t rows, float *y,
                    bool training);
  // Slots of the calls; null where a call must not record.
  struct Lists {
    std::vector<void *> weight, forward, backward;
  };

  Linear &layer_;
  OctavoRun &run_;
  uint32_t id_;
  bool needs_x_ = false, fuses_ = false;  // fuses_: a prologue, in one call with the layer
  const float *x_ = nullptr;              // of the last training forward
  std::optional<octavo::LinearCalls> calls_;
  std::map<OctavoRun::Record, Lists> lists_;
};

}  // namespace gpt

#endif
