// One trainable tensor with its gradient and its two Adam moments, all fp32.
//
// A backend may own some of the four in formats of its own; the buffer here is then empty.
#ifndef TRAIN_GPT_PARAMETER_H
#define TRAIN_GPT_PARAMETER_H

#include <algorithm>
#include <string>
#include <utility>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/loops.h"
#include "host_adapters/standalone/random.h"

namespace gpt {

using namespace octavo::standalone;

struct Parameter {
  Parameter(std::string name_, int64_t rows_, int64_t cols_, bool decays_)
      : name(std::move(name_)), rows(rows_), cols(cols_), decays(decays_) {}

  size_t count() const { return static_cast<size_t>(rows * cols); }
  void fill_normal(Random &random, double deviation) {
    for (size_t i = 0; i < count(); ++i) value[i] = static_cast<float>(random.normal() * deviation);
  }
  void fill(float constant) { std::fill_n(value.data(), count(), constant); }

  std::string name;
  int64_t rows, cols;
  bool decays;  // whether weight decay applies: matrices yes, biases and norms no
  Buffer<float> value{count()};
  Buffer<float> grad{count()};        // every backward overwrites it
  Buffer<float> exp_avg, exp_avg_sq;  // both moments belong to AdamW, which allocates them
  uint32_t id = OCTAVO_NONE;          // in the Octavo run, once it was added there
};

}  // namespace gpt

#endif
