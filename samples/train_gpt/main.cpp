// train_gpt: trains one small model in several precisions and says how far FP8 is from fp32.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>

#include "model/error.h"
#include "report/report.h"
#include "run/files.h"
#include "run/state.h"
#include "run/trainer.h"

namespace gpt {
namespace {

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

void print_results(const Options &options, const std::vector<RunResult> &results) {
  std::cout << "\n" << result_tables(results, wants_color(STDOUT_FILENO));
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

  // Everything that can be wrong is found before the first step.
  const Corpus corpus = load_corpus(options.text, options.size.context);
  for (const RunSpec &spec : options.runs) check_run(spec, options, corpus);
  const std::vector<DirectoryLock> locks = lock_saves(options);
  prepare_directory("--out", options.out);

  catch_interrupts();
  Progress progress(options.quiet);
  MetricsLog log(options.out + "/metrics.jsonl");
  describe(options, corpus, progress);

  std::vector<RunResult> results;
  for (size_t i = 0; i < options.runs.size() && !interrupted(); ++i) {
    progress.start_run(options.runs[i].name, i, options.runs.size(), options.steps);
    results.push_back(train(options.runs[i], {options, corpus, progress, log}));
    progress.end_run(results.back());
    write_atomically(options.out + "/report.html",
                     report_html(options, corpus, results, interrupted()));
  }
  print_results(options, results);
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
  try {
    const int exit = gpt::run(argc, argv);
    // A terminal that hung up takes no more text: the signal's code says what happened.
    gpt::expect(static_cast<bool>(std::cout.flush()) || gpt::interrupted(), "standard output",
                "a place that can be written", "that a write failed",
                "free space, or write to another file");
    return exit;
  } catch (const gpt::UserError &e) {
    std::cerr << "train_gpt: " << e.what() << "\n";
    return gpt::kExitUser;
  } catch (const std::exception &e) {
    std::cerr << "train_gpt: internal error: " << e.what() << "\n";
    return gpt::kExitInternal;
  }
}
