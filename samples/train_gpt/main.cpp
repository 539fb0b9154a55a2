// train_gpt: trains one small model in several precisions and says how far FP8 is from fp32.
#include <unistd.h>

#include <iostream>

#include "host_adapters/standalone/ending.h"
#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/files.h"
#include "host_adapters/standalone/simd.h"
#include "host_adapters/standalone/text.h"
#include "run/report.h"
#include "run/state.h"
#include "run/trainer.h"

namespace gpt {
namespace {

std::string program = "train_gpt";  // in messages; ranks as processes add theirs

void describe(const Options &options, const Corpus &corpus, Progress &progress) {
  progress.note("text: " + grouped(corpus.train.size()) + " bytes in training, " +
                grouped(corpus.validation.size()) + " in validation (" + corpus.split + ")");
  for (const std::string &file : corpus.validation_files) progress.note("  held out: " + file);
  progress.note("unigram entropy of the bytes: " + fixed(corpus.unigram_entropy, 3) + " nats");
  progress.note("model: " + std::to_string(options.size.layers) + " layers, width " +
                std::to_string(options.size.width) + ", context " +
                std::to_string(options.size.context) + "; " + std::to_string(options.steps) +
                " steps of " + std::to_string(options.batch) + " sequences");
}

void print_results(const Options &options, const std::vector<RunResult> &results, bool color) {
  std::cout << "\n" << result_tables(results, color);
  for (const RunResult &result : results) {
    if (result.skipped_steps == 0) continue;
    std::cout << "\n" << result.name << ": " << result.skipped_steps;
    std::cout << " steps skipped, since a gradient was not finite";
    if (result.injected > 0) std::cout << "; infinite gradients injected: " << result.injected;
    std::cout << "\n";
  }
  if (!results.empty() && !results.back().sample.empty()) {
    std::cout << "\n" << results.back().name << " continues \"" << options.prompt << "\":\n\n";
    std::cout << options.prompt << results.back().sample << "\n";
  }
}

int run(int argc, char **argv) {
  Options options;
  if (!parse_options(argc, argv, options)) return kExitDone;
  if (options.portable) simd_in_use() = &kSimdBaseline;

  Distributed distributed = read_distributed(options.config);
  if (!options.device.empty()) distributed.on_cuda = options.device == "cuda";
  Team team(distributed, options.ranks_are_given ? static_cast<uint32_t>(options.ranks) : 0);
  options.ranks = team.world();
  if (team.count() < team.world()) program += ": rank " + std::to_string(team.first());
  // Everything that can be wrong is found before the first step.
  Corpus corpus;
  std::vector<DirectoryLock> locks;
  team.together([&] {
    check_ranks(options);
    corpus = load_corpus(options.text, options.size.context);
    for (const RunSpec &spec : options.runs) check_run(spec, options, corpus, team.settings());
    if (!team.has_root()) return;
    locks = lock_saves(options);
    prepare_directory("--out", options.out);
  });

  catch_interrupts();
  Progress progress(options.quiet, team.has_root());
  LineLog log(team.has_root() ? options.out + "/metrics.jsonl" : "");
  describe(options, corpus, progress);

  std::vector<RunResult> results;
  for (size_t i = 0; i < options.runs.size() && !interrupted(); ++i) {
    progress.start_run(options.runs[i].name, i, options.runs.size(), options.steps);
    results.push_back(train(options.runs[i], {options, corpus, progress, log, team}));
    if (!team.has_root()) continue;
    progress.end_run(results.back());
    write_atomically(options.out + "/report.html",
                     report_html(options, corpus, results, interrupted()));
  }
  if (!team.has_root()) return exit_code();
  // mpirun gives its processes terminals that are none.
  print_results(options, results, wants_color(STDOUT_FILENO) && team.count() == team.world());
  if (!options.quiet) {
    std::cout << "\nreport: " << options.out << "/report.html\nmetrics: " << options.out
              << "/metrics.jsonl\n";
  }
  std::cout.flush();
  for (const RunResult &result : results)
    if (!result.without_fp8.empty())
      progress.warn(result.name + " trained in " + result.without_fp8 +
                    ", not in FP8: fp8.fallback took over, see the warning at its start");
  return exit_code();
}

}  // namespace
}  // namespace gpt

int main(int argc, char **argv) {
  gpt::end_without_memory("train_gpt");
  try {
    const int exit = gpt::run(argc, argv);
    gpt::expect_written_output();
    return exit;
  } catch (...) {
    return gpt::ended_by_exception(gpt::program.c_str());
  }
}
