// Reads the command line with CLI11 and checks what its types do not.
#include "options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "error.h"

namespace gpt {
namespace {

constexpr const char *kAbout =
    "Trains a small byte-level GPT in fp32, in bf16 and in FP8 through Octavo, with the same seed\n"
    "and the same batches, and compares the losses.";

constexpr const char *kFooter = R"(Runs (--run):
  fp32, bf16        every linear is the program's own
  config            what octavo.toml says
  BACKEND[:K=V,..]  that FP8 backend, with settings of its table: te:recipe=current,margin=0
                    or msamp:opt_level=O3; --backend names one, too
  Default with octavo.toml: fp32 bf16 config
  Default without:          fp32 bf16 reference te:recipe=delayed te:recipe=current msamp

Ranks (--ranks):
  Data parallel training: each rank is a thread with a model of its own and takes an equal share of
  every batch; gradients are averaged over the ranks. A backend may share optimizer states out.

Checkpoints (--save, --resume):
  --save writes one after the last step of each run, also when it is interrupted or ended early by
  --stop-after. --resume goes on from there, with the same command line but for --ranks, --threads,
  --out and --stop-after: every number is the one that the run would have computed in one go. With
  another --ranks the states are shared out anew. metrics.jsonl begins with the first step after.

Statistics of casts (--telemetry-every):
  A backend that offers them (te:telemetry=true) records in every N-th step and in the last one, for
  x, w and dy of each layer: amax, scale, elements that saturated, elements that became 0, and the
  signal-to-noise ratio of the cast. Each is a line of metrics.jsonl; the report has the worst.

Norms and GELU (--fused):
  no     the program's own loops
  apply  by the backend's octavo.fused/1, a call of its own before each linear
  yes    by the same interface in one call with the linear: the bits of apply, without its tensor
  A layer that cannot be fused takes apply; runs and layers without the interface take no.

Device (--device):
  cpu or cuda, as [device] kind of octavo.toml, which it overrides. On a GPU the calls of the backend
  run there, its states and low-bit weights lie there, and x, y and gradients are copied for each
  call; the loops of this program stay on the CPU. Ranks share the GPU. The numbers are those of the
  CPU where the kernels add up in the CPU's order, which products of cuBLASLt do not.

Faults (--inject-inf):
  Of all backward calls of linear layers one in N, by a generator with --seed, gets a dy with one
  infinite element. Such a step is skipped: no weight changes. The report counts these steps.

Exit codes:
  0    done
  1    a defect of this program or of a backend
  2    the command line, the text, --out or the configuration cannot be used; nothing was trained
  130  interrupted: metrics.jsonl and report.html hold what was done until then
NO_COLOR in the environment turns colours off.)";

void check_range(const char *name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw UserError(name, std::to_string(low) + " to " + std::to_string(high), std::to_string(value),
                  "choose a value in this range");
}

void check(const Options &o) {
  check_range("--steps", o.steps, 1, 10'000'000);
  check_range("--stop-after", o.stop_after, 0, o.steps);
  check_range("--batch", o.batch, 1, 65'536);
  check_range("--context", o.size.context, 2, 65'536);
  check_range("--layers", o.size.layers, 1, 1'000);
  check_range("--width", o.size.width, 8, 65'536);
  check_range("--heads", o.size.heads, 1, o.size.width);
  check_range("--threads", o.threads, 0, 1'024);
  check_range("--ranks", o.ranks, 1, 64);
  check_range("--telemetry-every", o.telemetry_every, 0, 10'000'000);
  check_range("--inject-inf", o.inject_inf, 0, 1'000'000'000);
  check_range("--sample-bytes", o.sample_bytes, 0, 1'000'000);
  if (o.size.width % o.size.heads != 0) {
    throw UserError("--heads", "a divisor of --width " + std::to_string(o.size.width),
                    std::to_string(o.size.heads), "change --heads or --width");
  }
  if (o.batch % o.ranks != 0) {
    throw UserError("--ranks", "a divisor of --batch " + std::to_string(o.batch),
                    std::to_string(o.ranks),
                    "change --ranks or --batch: every rank takes as many "
                    "sequences of a step as the others");
  }
  if (!(o.rate > 0.0 && o.rate <= 1.0)) {
    throw UserError("--rate", "more than 0 and at most 1", std::to_string(o.rate),
                    "choose a learning rate in this range, such as 0.005");
  }
  if (o.prompt.empty()) {
    throw UserError("--prompt", "at least one byte", "an empty text", "give a prompt");
  }
  if (!o.config.empty() && !std::filesystem::is_regular_file(o.config)) {
    throw UserError(o.config, "an octavo.toml", "no regular file of this name",
                    "correct the path of the configuration");
  }
}

Fused parse_fused(const std::string &name) {
  if (name == "no") return Fused::kNo;
  if (name == "apply") return Fused::kApply;
  if (name == "yes") return Fused::kYes;
  throw UserError("--fused", "no, apply or yes", "\"" + name + "\"", "choose one of the three");
}

std::vector<std::string> default_runs(bool with_config) {
  if (with_config) return {"fp32", "bf16", "config"};
  return {"fp32", "bf16", "reference", "te:recipe=delayed", "te:recipe=current", "msamp"};
}

}  // namespace

bool parse_options(int argc, char **argv, Options &options) {
  CLI::App app(kAbout, "train_gpt");
  app.footer(kFooter);
  std::vector<std::string> runs;
  std::vector<std::string> backends;
  app.add_option("config,--config", options.config, "octavo.toml")->type_name("PATH");
  app.add_option(
         "--text", options.text,
         "text files or directories of them; default: " + std::string("/usr/share/common-licenses"))
      ->type_name("PATH ...");
  app.add_option("--run", runs, "runs to compare, see below")->type_name("NAME ...");
  app.add_option("--backend", backends, "runs of FP8 backends, behind those of --run")
      ->type_name("BACKEND[:K=V,..] ...");
  app.add_option("--ranks", options.ranks, "1 to 64, a divisor of --batch")->capture_default_str();
  app.add_option("--steps", options.steps, "optimizer steps of each run")->capture_default_str();
  app.add_option("--save", options.save, "directory of checkpoints, see below")->type_name("DIR");
  app.add_option("--resume", options.resume, "checkpoints to go on from")->type_name("DIR");
  app.add_option("--stop-after", options.stop_after, "end each run after this step; 0: --steps")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of weights and batches")->capture_default_str();
  app.add_option("--threads", options.threads, "0: one per core")->capture_default_str();
  app.add_option("--out", options.out, "directory of metrics.jsonl and report.html")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_flag("--quiet", options.quiet, "print the final tables only");
  app.add_option("--layers", options.size.layers, "blocks")->capture_default_str();
  app.add_option("--heads", options.size.heads, "attention heads")->capture_default_str();
  app.add_option("--width", options.size.width, "of the residual stream")->capture_default_str();
  app.add_option("--context", options.size.context, "bytes of a sequence")->capture_default_str();
  app.add_option("--batch", options.batch, "sequences of a step")->capture_default_str();
  app.add_option("--rate", options.rate, "peak learning rate")->capture_default_str();
  app.add_option("--prompt", options.prompt, "text to continue")->capture_default_str();
  app.add_option("--sample-bytes", options.sample_bytes, "length of the continuation")
      ->capture_default_str();
  app.add_option("--telemetry-every", options.telemetry_every,
                 "steps between samples of cast statistics, see below; 0: none")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--inject-inf", options.inject_inf,
                 "one infinite gradient in N backward calls, see below; 0: none")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--device", options.device, "where the backend computes, see below")
      ->type_name("cpu|cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  std::string fused = "no";
  app.add_option("--fused", fused, "who computes norms and GELU, see below")
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
  options.fused = parse_fused(fused);
  if (options.text.empty()) options.text = {"/usr/share/common-licenses"};
  for (const std::string &name : backends) {
    if (const RunSpec spec = parse_run(name); spec.kind != RunSpec::Kind::kBackend) {
      throw UserError("--backend " + name, "an FP8 backend, such as te or msamp:opt_level=O3",
                      "a run that is none", "write --run " + name);
    }
    runs.push_back(name);
  }
  if (runs.empty()) runs = default_runs(!options.config.empty());
  for (const std::string &name : runs) {
    options.runs.push_back(parse_run(name));
    if (options.runs.back().kind == RunSpec::Kind::kConfig && options.config.empty()) {
      throw UserError("--run config", "a configuration to take it from", "none on the command line",
                      "name an octavo.toml, as in: train_gpt octavo.toml --run config");
    }
  }
  check(options);
  return true;
}

}  // namespace gpt
