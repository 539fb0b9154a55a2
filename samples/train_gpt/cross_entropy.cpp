// One pass: the gradient of a row is its softmax minus one at the target, divided by the rows.
#include "cross_entropy.h"

#include "simd.h"
#include "sums.h"

namespace gpt {

double cross_entropy(const Threads &threads, float *logits, const unsigned char *targets,
                     int64_t rows, int64_t classes, Buffer<float> &losses) {
  losses.grow(static_cast<size_t>(rows));
  const float share = 1.0f / static_cast<float>(rows);
  float *loss = losses.data();
  threads.for_ranges(rows, 32, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float *row = logits + i * classes;
      const float wanted = row[targets[i]];
      loss[i] = simd().softmax_row(row, classes) - wanted;
      row[targets[i]] -= 1.0f;
      for (int64_t j = 0; j < classes; ++j) row[j] *= share;
    }
  });
  return sum_of<double>(rows, [&](int64_t i) { return static_cast<double>(loss[i]); }) /
         static_cast<double>(rows);
}

}  // namespace gpt
