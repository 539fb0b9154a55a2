// Trains one model and reports it as train_gpt does.
#ifndef TORCH_GPT_TRAINER_H
#define TORCH_GPT_TRAINER_H

#include <octavo/torch/prepare.h>

#include "../train_gpt/model/corpus.h"
#include "../train_gpt/run/metrics.h"
#include "../train_gpt/run/options.h"
#include "../train_gpt/run/terminal.h"
#include "host_adapters/standalone/files.h"
#include "model.h"

namespace torch_gpt {

// What a run name asks for: "fp32", "bf16", "config", or a backend with its settings.
octavo::torch::Config config_of(const gpt::RunSpec &spec, const gpt::Options &options);

gpt::RunResult train(const gpt::RunSpec &spec, const gpt::Options &options,
                     const gpt::Corpus &corpus, gpt::Progress &progress, gpt::LineLog &log);

// Bytes of weights, gradients, moments and slots of a prepared model.
gpt::RankMemory memory_of(Model &model, octavo::torch::Prepared &optimizer);
// Bytes in slots by the name of their role.
std::map<std::string, uint64_t> slot_bytes(const octavo::torch::Session &session);

}  // namespace torch_gpt

#endif
