// Reads the command line with CLI11 and checks what its types do not.
#include "options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <system_error>
#include <type_traits>

#include "host_adapters/standalone/error.h"

namespace gpt {
namespace {

constexpr const char *kAbout =
    "Trains a small byte-level GPT in fp32, in bf16 "
    "and in FP8 through Octavo, with the same seed\n"
    "and the same batches, and compares the losses.";

constexpr const char *kFooter = R"(Runs (--run, --backend):
  fp32, bf16        every linear is the program's own
  config            what octavo.toml says
  BACKEND[:K=V,..]  that FP8 backend, with settings of its table: te:recipe=current,margin=0
                    or msamp:opt_level=O3
  Default with octavo.toml: fp32 bf16 config
  Default without:          fp32 bf16 reference te:recipe=delayed te:recipe=current msamp

samples/README.md, section train_gpt, has what the other options do.

Exit codes:
  0    done
  1    a defect of this program or of a backend
  2    the command line, the text, --out or the configuration cannot be used; nothing was trained
  3    another rank, a process, was lost; the message says which, and when it was noticed
  4    memory, threads or descriptors were short: the same command works when there are more
  130  interrupted by SIGINT (Ctrl-C): metrics.jsonl, report.html and the checkpoint of --save hold
       what was done until then
  143  the same by SIGTERM
  129  the same by SIGHUP
NO_COLOR in the environment turns colours off.)";

struct Number {
  const char *name;
  int64_t *value;
  int64_t low, high;
  const char *help;
};

void check(const std::vector<Number> &numbers, const Options &o) {
  for (const Number &n : numbers) {
    expect(*n.value >= n.low && *n.value <= n.high, n.name,
           std::to_string(n.low) + " to " + std::to_string(n.high), std::to_string(*n.value),
           "choose a value in this range");
  }
  expect(o.stop_after <= o.steps, "--stop-after", "0 to " + std::to_string(o.steps),
         std::to_string(o.stop_after), "choose a value up to --steps");
  expect((o.save_every == 0 && o.keep == 1) || !o.save.empty(), "--save-every, --keep",
         "--save with the directory of the checkpoints", "none", "add --save DIR");
  expect(o.size.width % o.size.heads == 0, "--heads",
         "a divisor of --width " + std::to_string(o.size.width), std::to_string(o.size.heads),
         "change --heads or --width");
  expect(o.rate > 0.0 && o.rate <= 1.0, "--rate", "more than 0 and at most 1",
         std::to_string(o.rate), "choose a learning rate in this range, such as 0.005");
  expect(o.end_rate >= 0.0 && o.end_rate <= 1.0, "--end-rate", "0 to 1, a share of --rate",
         std::to_string(o.end_rate), "choose a share such as 0.1, or 0 to end at rest");
  expect(!o.prompt.empty(), "--prompt", "at least one byte", "an empty text", "give a prompt");
}

// CLI11 takes "" for 0, and wraps what is below 0 or too large.
template <typename T>
std::string problem_of(const std::string &word) {
  T value{};
  const char *end = word.data() + word.size();
  const auto found = std::from_chars(word.data(), end, value);
  if (found.ec == std::errc() && found.ptr == end) return {};
  return std::string("expected ") + (std::is_floating_point_v<T> ? "a number" : "a whole number") +
         (std::is_unsigned_v<T> ? " from 0 to 2^64 - 1" : "") + ", found \"" + word + "\"";
}

}  // namespace

void check_ranks(const Options &o) {
  expect(o.batch % o.ranks == 0, "--ranks", "a divisor of --batch " + std::to_string(o.batch),
         std::to_string(o.ranks), "change one: every rank takes as many sequences as the others");
}

bool parse_options(int argc, char **argv, Options &options) {
  CLI::App app(kAbout, "train_gpt");
  app.footer(kFooter);
  std::vector<std::string> runs, backends;
  std::string fused = "no";
  const std::vector<Number> numbers = {
      {"--ranks", &options.ranks, 1, 64, "a divisor of --batch"},
      {"--steps", &options.steps, 1, 10'000'000, "optimizer steps of each run"},
      {"--stop-after", &options.stop_after, 0, 10'000'000, "end each run there; 0: --steps"},
      {"--save-every", &options.save_every, 0, 10'000'000, "steps between checkpoints; 0: one"},
      {"--keep", &options.keep, 1, 1'000'000, "checkpoints that stay of each run"},
      {"--threads", &options.threads, 0, 1'024, "0: one per core"},
      {"--layers", &options.size.layers, 1, 1'000, "blocks"},
      {"--heads", &options.size.heads, 1, 65'536, "attention heads"},
      {"--width", &options.size.width, 8, 65'536, "of the residual stream"},
      {"--context", &options.size.context, 2, 65'536, "bytes of a sequence"},
      {"--batch", &options.batch, 1, 65'536, "sequences of a step"},
      {"--sample-bytes", &options.sample_bytes, 0, 1'000'000, "length of the continuation"},
      {"--telemetry-every", &options.telemetry_every, 0, 10'000'000,
       "steps between samples of cast statistics; 0: none"},
      {"--inject-inf", &options.inject_inf, 0, 1'000'000'000,
       "one infinite gradient in N backward calls; 0: none"}};
  for (const Number &n : numbers)
    app.add_option(n.name, *n.value, n.help)
        ->type_name("N")
        ->check(problem_of<int64_t>)
        ->capture_default_str();
  app.add_option("config,--config", options.config, "octavo.toml")
      ->type_name("PATH")
      ->check(CLI::ExistingFile);
  app.add_option("--text", options.text, "text files or directories of them")
      ->type_name("PATH ...")
      ->capture_default_str();
  app.add_option("--run", runs, "runs to compare, see below")->type_name("NAME ...");
  app.add_option("--backend", backends, "runs of FP8 backends, after the others of --run")
      ->type_name("BACKEND[:K=V,..] ...");
  // "" is what a shell makes of a variable that is not set.
  const auto not_empty = [](const std::string &path) {
    return path.empty() ? "expected a directory, found an empty argument" : std::string();
  };
  app.add_option("--save", options.save, "directory of checkpoints")
      ->type_name("DIR")
      ->check(not_empty);
  app.add_option("--resume", options.resume, "checkpoints to go on from")
      ->type_name("DIR")
      ->check(not_empty);
  app.add_option("--seed", options.seed, "of weights and batches")
      ->check(problem_of<uint64_t>)
      ->capture_default_str();
  app.add_option("--out", options.out, "directory of metrics.jsonl and report.html")
      ->type_name("DIR")
      ->check(not_empty)
      ->capture_default_str();
  app.add_flag("--quiet", options.quiet, "print the final tables only");
  app.add_option("--rate", options.rate, "peak learning rate")
      ->check(problem_of<double>)
      ->capture_default_str();
  app.add_option("--end-rate", options.end_rate, "where the schedule ends, as a share of --rate")
      ->type_name("SHARE")
      ->check(problem_of<double>)
      ->capture_default_str();
  app.add_flag("--nudge", options.nudge, "move one weight by one unit in the last place at first");
  app.add_flag("--portable", options.portable, "the same bits on every processor");
  app.add_option("--prompt", options.prompt, "text to continue")->capture_default_str();
  app.add_option("--device", options.device, "where the backend computes, over [device] kind")
      ->type_name("KIND");
  app.add_option("--fused", fused, "who computes norms and GELU")
      ->type_name("no|apply|yes")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError &e) {
    throw UserError("command line", "the options that --help lists", e.what(),
                    "run train_gpt --help");
  }
  options.ranks_are_given = app.count("--ranks") > 0;
  const std::map<std::string, Fused> ways = {
      {"no", Fused::kNo}, {"apply", Fused::kApply}, {"yes", Fused::kYes}};
  expect(ways.count(fused) > 0, "--fused", "no, apply or yes", "\"" + fused + "\"",
         "choose one of the three");
  options.fused = ways.at(fused);
  for (const std::string &name : backends) {
    expect(parse_run(name).kind == RunSpec::Kind::kBackend, "--backend " + name,
           "an FP8 backend, such as te or msamp:opt_level=O3", "a run that is none",
           "write --run " + name);
    runs.push_back(name);
  }
  if (runs.empty() && options.config.empty())
    runs = {"fp32", "bf16", "reference", "te:recipe=delayed", "te:recipe=current", "msamp"};
  if (runs.empty()) runs = {"fp32", "bf16", "config"};
  for (const std::string &name : runs) {
    options.runs.push_back(parse_run(name));
    expect(options.runs.back().kind != RunSpec::Kind::kConfig || !options.config.empty(),
           "--run config", "a configuration to take it from", "none on the command line",
           "name an octavo.toml, as in: train_gpt octavo.toml --run config");
  }
  check(numbers, options);
  return true;
}

}  // namespace gpt
