// The text: read from files, split into training and validation bytes, cut into batches.
//
// The split depends on the files alone, never on the seed, so validation losses of different seeds
// can be compared.
#ifndef TRAIN_GPT_CORPUS_H
#define TRAIN_GPT_CORPUS_H

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

struct Corpus {
  std::vector<unsigned char> train, validation;
  std::vector<std::string> train_files, validation_files;
  std::string split;             // one sentence on how it was split
  double unigram_entropy = 0.0;  // of all bytes, in nats: what a model without context reaches
};

// Reads files and directories (their regular files, symbolic links left out, sorted by name).
// Throws UserError for what is missing, unreadable, empty, or too short for one context.
Corpus load_corpus(const std::vector<std::string> &paths, int64_t context);

// Sequences side by side: targets[i] is the byte after tokens[i].
struct Batch {
  std::vector<unsigned char> tokens, targets;
  int64_t sequences = 0;
};

// The batch of one step: windows at random places, the same for every run with this seed.
Batch training_batch(const Corpus &corpus, int64_t sequences, int64_t context, uint64_t seed,
                     int64_t step);
// Every window of the validation bytes, or `limit` batches of them, evenly spread.
std::vector<Batch> validation_batches(const Corpus &corpus, int64_t sequences, int64_t context,
                                      int64_t limit);

}  // namespace gpt

#endif
