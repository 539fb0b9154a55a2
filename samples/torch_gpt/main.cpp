// torch_gpt: train_gpt on LibTorch. Same model, same text, same report; the linears run in FP8 by
// octavo::torch::prepare, see trainer.cpp.
#include <dlfcn.h>
#include <unistd.h>

#include <iostream>

#include "../train_gpt/run/report.h"
#include "../train_gpt/run/terminal.h"
#include "host_adapters/standalone/ending.h"
#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/files.h"
#include "host_adapters/standalone/text.h"
#include "trainer.h"

namespace {

// Options of train_gpt that this program has no use for are refused, not ignored.
void check(const gpt::Options &options) {
  const auto refuse = [](const char *option) {
    throw gpt::UserError(option, "an option of torch_gpt", "one that train_gpt alone has",
                         "leave it out, or use train_gpt");
  };
  if (options.ranks != 1) refuse("--ranks");
  if (!options.save.empty() || !options.resume.empty() || options.stop_after != 0)
    refuse("--save, --resume and --stop-after");
  if (options.inject_inf != 0) refuse("--inject-inf");
  if (options.nudge) refuse("--nudge");
  if (options.fused != gpt::Fused::kNo) refuse("--fused");
  if (!options.device.empty() && options.device != "cpu" && options.device != "cuda")
    throw gpt::UserError("--device", "cpu or cuda, which torch computes on", options.device,
                         "take one of them, or train_gpt");
  // Linkers drop a library that no symbol is taken from; loaded, it registers what torch knows of
  // GPUs.
  if (options.device == "cuda") dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (options.device == "cuda" && !torch::cuda::is_available())
    throw gpt::UserError("--device cuda", "a GPU that torch can use", "none",
                         "see what nvidia-smi says, or leave --device out");
}

int run(int argc, char **argv) {
  gpt::Options options;
  if (!gpt::parse_options(argc, argv, options)) return gpt::kExitDone;
  check(options);
  const gpt::Corpus corpus = gpt::load_corpus(options.text, options.size.context);
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  for (const gpt::RunSpec &spec : options.runs)
    octavo::torch::explain(torch_gpt::config_of(spec, options));  // throws what cannot run
  gpt::prepare_directory("--out", options.out);

  gpt::catch_interrupts();
  gpt::Progress progress(options.quiet);
  gpt::LineLog log(options.out + "/metrics.jsonl");
  std::vector<gpt::RunResult> results;
  for (size_t i = 0; i < options.runs.size() && !gpt::interrupted(); ++i) {
    progress.start_run(options.runs[i].name, i, options.runs.size(), options.steps);
    results.push_back(torch_gpt::train(options.runs[i], options, corpus, progress, log));
    progress.end_run(results.back());
    gpt::write_atomically(options.out + "/report.html",
                          gpt::report_html(options, corpus, results, gpt::interrupted()));
  }
  std::cout << "\n" << gpt::result_tables(results, gpt::wants_color(STDOUT_FILENO));
  if (!options.quiet)
    std::cout << "\nreport: " << options.out << "/report.html\nmetrics: " << options.out
              << "/metrics.jsonl\n";
  return gpt::exit_code();
}

}  // namespace

int main(int argc, char **argv) {
  gpt::end_without_memory("torch_gpt");
  try {
    const int exit = run(argc, argv);
    gpt::expect_written_output();
    return exit;
  } catch (const octavo::torch::Error &e) {
    if (e.status() == OCTAVO_NO_RESOURCE) return gpt::ended_by_shortage("torch_gpt", e.what());
    std::cerr << "torch_gpt: " << e.what() << "\n";
    return gpt::kExitUser;
  } catch (...) {
    return gpt::ended_by_exception("torch_gpt");
  }
}
