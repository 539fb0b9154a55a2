// How well the codes of a step represent the values that they were made of, out of the slots that
// the program allocated for a backend.
//
// A backend offers this with slots of the roles SATURATED, UNDERFLOW, SIGNAL and NOISE, for
// instance te with telemetry = true. For people only: nothing in the training depends on it.
#ifndef TRAIN_GPT_CAST_STATISTICS_H
#define TRAIN_GPT_CAST_STATISTICS_H

#include <vector>

#include "metrics.h"
#include "octavo_run.h"

namespace gpt {

class CastStatistics {
 public:
  // Finds the columns of the pools of this run, if it has any.
  explicit CastStatistics(const OctavoRun &run);

  bool empty() const { return columns_.empty(); }
  // One record per operand and tensor of the step, taken before end_step. With several ranks, sums
  // over them once their slots are combined: of `w`, which every rank casts, the count of one rank
  // times their number.
  std::vector<CastRecord> sample() const;

 private:
  // One tensor of one operand, its numbers on the run's device; a null address means that the
  // backend has no such slot.
  struct Column {
    std::string operand;
    std::string tensor;
    const float *amax = nullptr;
    const float *scale = nullptr;
    const float *saturated = nullptr;
    const float *underflow = nullptr;
    const float *signal = nullptr;
    const float *noise = nullptr;
  };
  Column &column(const std::string &operand, const std::string &tensor);
  void read_pool(const OctavoRun &run, uint32_t id);

  const Device &device_;
  std::vector<Column> columns_;
};

}  // namespace gpt

#endif
