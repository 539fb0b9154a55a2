// Sums in a fixed order, eight at a time, so that they are fast and repeat bit for bit.
#ifndef TRAIN_GPT_SUMS_H
#define TRAIN_GPT_SUMS_H

#include <cstdint>

namespace gpt {

// The sum of term(i) for i in [0, count); T is float or double.
template <typename T, typename Term>
T sum_of(int64_t count, Term &&term) {
  T part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) part[lane] += term(i + lane);
  }
  for (; i < count; ++i) part[i % 8] += term(i);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

}  // namespace gpt

#endif
