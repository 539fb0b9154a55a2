// Softmax and cross-entropy over bytes.
#ifndef TRAIN_GPT_CROSS_ENTROPY_H
#define TRAIN_GPT_CROSS_ENTROPY_H

#include "buffer.h"
#include "threads.h"

namespace gpt {

// The mean over rows of -ln softmax(logits)[target], in nats. logits [rows, classes] become the
// gradient of that mean. losses is scratch.
double cross_entropy(const Threads &threads, float *logits, const unsigned char *targets,
                     int64_t rows, int64_t classes, Buffer<float> &losses);

}  // namespace gpt

#endif
