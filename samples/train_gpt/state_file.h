// The program's own tensors in a file of the safetensors format, beside the slots that liboctavo
// saves: parameters, moments of AdamW, and texts that say what run they are of.
//
// fp32 only; whatever else stands in such a file is refused.
#ifndef TRAIN_GPT_STATE_FILE_H
#define TRAIN_GPT_STATE_FILE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpt {

// By key; the values are the file's metadata.
using StateTexts = std::map<std::string, std::string>;

struct StateTensor {
  std::string name;
  int64_t rows;
  int64_t cols;
  float *data;
};

// Writes all tensors in this order. The file appears whole or not at all; throws UserError.
void write_state_file(const std::string &path, const StateTexts &texts,
                      const std::vector<StateTensor> &tensors);

// The texts alone. Throws UserError for a file that is missing or malformed.
StateTexts read_state_texts(const std::string &path);

// Fills the tensors, which must be exactly those of the file, in this order, with these shapes.
// Throws UserError before any of them changes.
void read_state_file(const std::string &path, const std::vector<StateTensor> &tensors);

}  // namespace gpt

#endif
