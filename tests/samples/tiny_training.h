// Training a tiny model from a test: 30 thousand parameters, ten words of text, a second or less.
#ifndef TESTS_SAMPLES_TINY_TRAINING_H
#define TESTS_SAMPLES_TINY_TRAINING_H

#include <string>
#include <vector>

#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/child_program.h"

namespace gpt {

inline Options tiny() {
  Options options;
  options.config = gpt_test::test_directory() + "/every_layer.toml";
  gpt_test::write_text(options.config, "layers.skip = []\n");
  options.text = {gpt_test::test_directory() + "/text"};
  options.size = {1, 2, 32, 16};
  options.batch = 4;
  options.steps = 40;
  options.sample_bytes = 20;
  options.prompt = "the ";
  options.quiet = true;
  return options;
}

// For the run "config": three sets of options of te in one model, and the head with the host.
inline std::string mixed_recipes() {
  const std::string path = gpt_test::test_directory() + "/mixed.toml";
  gpt_test::write_text(path,
                       "layers.skip = []\n[fp8]\nbackend = \"te\"\nte.amax_history_len = 4\n"
                       "[[layers.rule]]\nmatch = \"*head*\"\nplace = \"host\"\n"
                       "[[layers.rule]]\nmatch = \"*.fc?\"\nfp8.te.recipe = \"block\"\n"
                       "[[layers.rule]]\nmatch = \"*.qkv\"\nfp8.te.amax_history_len = 3\n");
  return path;
}

inline Corpus tiny_corpus(const Options &options) {
  gpt_test::write_text(options.text[0], gpt_test::some_text(6000));
  return load_corpus(options.text, options.size.context);
}

inline RunResult train_once(const Options &options, const std::string &run,
                            uint32_t threads_count) {
  const Corpus corpus = tiny_corpus(options);
  Options with_threads = options;
  if (options.ranks == 1) with_threads.threads = threads_count;
  Progress progress(true);
  LineLog log(gpt_test::test_directory() + "/metrics.jsonl");
  Team team(Distributed(), static_cast<uint32_t>(options.ranks));
  return train(parse_run(run), {with_threads, corpus, progress, log, team});
}

// Everything that a run computes, without what a clock says.
inline std::vector<double> numbers(const RunResult &result) {
  std::vector<double> all;
  for (const StepRecord &record : result.steps) {
    all.insert(all.end(), {record.loss, record.grad_norm, record.validation.value_or(-1.0)});
    if (!record.telemetry.is_null()) {
      for (const auto &[kind, series] : record.telemetry.items()) {
        for (const auto &[key, value] : series.items()) all.push_back(value.get<double>());
      }
    }
  }
  for (const char c : result.sample) all.push_back(c);
  return all;
}

}  // namespace gpt

#endif
