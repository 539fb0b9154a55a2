// Continues a prompt, byte by byte.
#ifndef TRAIN_GPT_GENERATE_H
#define TRAIN_GPT_GENERATE_H

#include <string>

#include "model.h"

namespace gpt {

// Draws `count` bytes from the model's distribution, sharpened a little. Bytes that are not
// printable ASCII or line ends come back as '?'.
std::string generate(Model &model, const std::string &prompt, int64_t count, uint64_t seed);

}  // namespace gpt

#endif
