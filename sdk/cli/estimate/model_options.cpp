// Sums are made in floating point first, where nothing overflows.
#include "sdk/cli/estimate/model_options.h"

#include "octavo/octavo.hpp"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::estimate {

void ModelOptions::add(CLI::App &command, const std::string &usual, bool needs_batch) {
  command
      .add_option("model", model, "a Hugging Face config.json, or a shapes file (page estimate)")
      ->required()
      ->check(problem_of_empty);
  request.add_config_options(command);
  command
      .add_option("--backend", backends,
                  "this backend instead of " + usual +
                      ", as in msamp:opt_level=O3; may be given several times")
      ->check(problem_of_empty)
      ->allow_extra_args(false);
  CLI::Option *of_batch = command.add_option("--batch", batch, "sequences of a step on one device")
                              ->required(needs_batch)
                              ->check(CLI::Range(1, 1 << 20));
  CLI::Option *of_sequence = command.add_option("--sequence", sequence, "tokens of a sequence")
                                 ->required(needs_batch)
                                 ->check(CLI::Range(1, 1 << 24));
  of_batch->needs(of_sequence);
  of_sequence->needs(of_batch);
  command.add_flag("--json", json, "print JSON");
}

std::string ModelOptions::batch_text() const {
  return concat(batch, batch == 1 ? " sequence of " : " sequences of ", sequence, ": ", rows(),
                " rows");
}

Json json_of_model(const ModelOptions &options, const Shapes &shapes) {
  return {{"octavo", octavo::version()},
          {"model", options.model},
          {"kind", shapes.kind},
          {"rows", options.rows()}};
}

Sizes sizes_of(const std::string &path, const Shapes &shapes, uint64_t rows) {
  constexpr double kMost = 0x1p56;
  double all = 0, widths = 0;  // of what linears read and write
  for (const Tensor &t : shapes.tensors) {
    all += static_cast<double>(t.rows) * static_cast<double>(t.cols);
    if (t.linear.empty()) continue;
    widths += static_cast<double>(t.rows) + static_cast<double>(t.cols);
  }
  if (all > kMost || widths * static_cast<double>(rows) > kMost)
    throw Failure(
        OCTAVO_INVALID, kEstimateDomain, path,
        ": expected fewer than 2^56 elements in tensors and in the rows of linears, found "
        "more");
  Sizes s;
  for (const Tensor &t : shapes.tensors) {
    s.parameters += t.count();
    if (t.linear.empty()) continue;
    ++s.linears;
    s.in_linears += t.count();
  }
  return s;
}

std::vector<std::string> usual_backends() {
  return {"te", "msamp:opt_level=O1", "msamp:opt_level=O2", "msamp:opt_level=O3"};
}

}  // namespace octavo::cli::estimate
