// The table of questions. Defaults are those of the keys (docs/config.md).
#include "sdk/cli/wizard/questions.h"

#include <charconv>
#include <cstdlib>

#include "sdk/src/base/failure.h"

namespace octavo::cli::wizard {
namespace {

std::string trim(std::string_view text) {
  return std::string(trimmed(text, " \t\r"));
}

[[noreturn]] void refuse_answer(const Question &q, const char *expected,
                                const std::string &answer) {
  throw Failure(OCTAVO_INVALID, kInitDomain, q.flag, ": expected ", expected, ", found \"", answer,
                "\"");
}

}  // namespace

const std::vector<Question> &questions() {
  static const std::vector<Question> table = {
      {"--device",
       "device.kind",
       "On which device?",
       "Where to run. auto: the device of your model in PyTorch and JAX, the CPU elsewhere.",
       nullptr,
       nullptr,
       std::string("auto"),
       {{"auto", "the device of your model in PyTorch and JAX, the CPU elsewhere"},
        {"cpu", "the CPU"},
        {"cuda", "a GPU of NVIDIA"}}},
      {"--backend",
       "fp8.backend",
       "Which backend?",
       "Whose method of FP8: te as Transformer Engine, msamp as MS-AMP.",
       nullptr,
       nullptr,
       std::string("te"),
       {}},
      {"--recipe",
       "fp8.te.recipe",
       "Which recipe?",
       "How the scales of FP8 tensors are computed.",
       "te",
       nullptr,
       std::string("delayed"),
       {{"delayed", "scales from the amax of earlier steps"},
        {"current", "scales from the tensor at hand"},
        {"block", "a scale for 128 elements"},
        {"mx", "a scale for 32 elements, powers of two"},
        {"nvfp4", "codes of 4 bits, a scale for 16 elements"},
        {"rowwise", "a scale for each row, powers of two, as torchao has it"}}},
      {"--format",
       "fp8.te.fp8_format",
       "Which FP8 format?",
       "HYBRID: E4M3 forward, E5M2 for gradients. default: HYBRID for delayed and current, E4M3 "
       "for block, mx, nvfp4 and rowwise.",
       "te",
       nullptr,
       std::string("default"),
       {{"default", "HYBRID for delayed and current, E4M3 for block, mx, nvfp4 and rowwise"},
        {"HYBRID", "E4M3 forward, E5M2 for gradients"},
        {"E4M3", "one format for everything"},
        {"E5M2", "one format for everything"}}},
      {"--history", "fp8.te.amax_history_len", "How many steps does the amax history have?",
       "Steps that amax looks back, 1 to 65536.", "te", "delayed", int64_t{16}},
      {"--algorithm",
       "fp8.te.amax_compute_algo",
       "Scale from the largest amax in the history, or from the latest one?",
       "The largest amax of the history, or the one from the last step.",
       "te",
       "delayed",
       std::string("max"),
       {{"max", "the largest amax"}, {"most_recent", "the amax of the last step"}}},
      {"--margin", "fp8.te.margin", "Which margin? Scales are divided by 2^margin.",
       "Scales are divided by 2^margin, 0 to 30.", "te", "delayed", int64_t{0}},
      {"--interval",
       "fp8.te.interval",
       "After how many steps are scales computed again?",
       "Scales follow every step; Transformer Engine removed longer intervals.",
       "te",
       "delayed",
       int64_t{1},
       {},
       false},
      {"--eval", "fp8.te.use_autocast_during_eval", "Do evaluations run in FP8?",
       "Whether evaluations also run in FP8, or on the host's own tensors.", "te", nullptr, false},
      {"--level",
       "fp8.msamp.opt_level",
       "Which level?",
       "Which tensors have 8 and 16 bits: page config has the bytes of each.",
       "msamp",
       nullptr,
       std::string("O2"),
       {{"O1", "weights and gradients"},
        {"O2", "weights, gradients and the optimizer's moments"},
        {"O3", "as O2, with weights in FP8 and a master copy"}}},
      {"--history", "fp8.msamp.amax_history_len", "How many steps do scales look back?",
       "Steps that the scales of x and dy look back, 1 to 65536.", "msamp", nullptr, int64_t{16}},
      {"--skip", "layers.skip",
       "Which layers stay out of FP8? Shell patterns, separated by commas, or none",
       "Shell patterns of layers that are not converted. The head has most of the cost of FP8: "
       "page results/equivalence.",
       nullptr, nullptr, std::vector<std::string>{"*head*"}},
      {"--engine",
       "distributed.engine",
       "How should ranks communicate? (PyTorch and JAX ignore this)",
       "The transport between ranks, where a program leaves it to Octavo, as train_gpt does. "
       "PyTorch and JAX bring their own.",
       nullptr,
       nullptr,
       std::string("threads"),
       {{"threads", "ranks are threads of one process"},
        {"mpi", "one process a rank, which mpirun starts: page mpi"},
        {"nccl", "one process a GPU: page nccl"}},
       false},
  };
  return table;
}

TomlValue value_of_answer(const Question &q, const std::string &answer) {
  const std::string text = trim(answer);
  if (std::holds_alternative<int64_t>(q.initial)) {
    int64_t number = 0;
    const char *end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) refuse_answer(q, "a whole number", answer);
    return number;
  }
  if (std::holds_alternative<bool>(q.initial)) {
    for (const char *word : {"yes", "y", "true"})
      if (text == word) return true;
    for (const char *word : {"no", "n", "false"})
      if (text == word) return false;
    refuse_answer(q, "yes or no", answer);
  }
  if (std::holds_alternative<std::vector<std::string>>(q.initial)) {
    std::vector<std::string> patterns;
    if (text == "none") return patterns;
    for (const std::string &part : split(text, ','))
      if (!trim(part).empty()) patterns.push_back(trim(part));
    return patterns;
  }
  for (const Choice &c : q.choices)
    if (c.value == text) return text;
  std::vector<std::string> values;
  for (const Choice &c : q.choices) values.push_back(c.value);
  std::string near;
  throw Failure(OCTAVO_INVALID, kInitDomain, q.flag, ": expected ",
                not_a_choice(answer, values, &near));
}

}  // namespace octavo::cli::wizard
