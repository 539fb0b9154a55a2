// octavo bench: which linears of a model FP8 makes faster on this machine, by measuring them.
#include <cstdio>
#include <memory>
#include <set>

#include "common.h"
#include "sdk/cli/bench/advice.h"
#include "sdk/cli/estimate/model_options.h"
#include "sdk/cli/text_layout.h"
#include "sdk/cli/toml_writer.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

struct Advise {
  estimate::ModelOptions options;
  double seconds = 3;
};

// What is measured, and what follows.
struct Advice {
  estimate::Shapes model;
  std::string kernels;
  bool is_emulated = false;
  std::vector<bench::Measured> shapes;
  std::vector<bench::Choice> choices;
  double bf16 = 0;  // seconds of all linears of a step
  size_t linears = 0;
};

std::vector<std::string> advised_backends() {
  return {"te:recipe=delayed", "te:recipe=current", "te:recipe=rowwise",
          "te:recipe=block",   "te:recipe=mx",      "msamp:opt_level=O2"};
}

std::string shape_text(const bench::Shape &s) {
  return concat("[", s.n, ", ", s.k, "]");
}

Advice measure_all(const Advise &a) {
  const estimate::Shapes model = estimate::read_shapes(a.options.model);
  const uint64_t rows = a.options.rows();
  estimate::sizes_of(a.options.model, model, rows);
  std::vector<estimate::Named> backends;
  for (const std::string &text :
       a.options.backends.empty() ? advised_backends() : a.options.backends)
    backends.push_back(estimate::parse_named(text));
  Advice out;
  out.model = model;
  bench::Meter meter(a.options.request.settings(), backends, static_cast<int64_t>(rows), a.seconds);
  const std::vector<bench::Shape> shapes = bench::shapes_of(model);
  for (const bench::Shape &s : shapes) {
    say_error("measuring %s, shape %zu of %zu\n", shape_text(s).c_str(), out.shapes.size() + 1,
              shapes.size());
    out.shapes.push_back(meter.measure(s));
    const bench::Measured &m = out.shapes.back();
    out.linears += s.linears.size();
    out.bf16 += static_cast<double>(s.linears.size()) * bench::median(m.bf16);
  }
  out.kernels = meter.kernels();
  out.is_emulated = meter.is_emulated();
  out.choices = bench::choices(out.shapes);
  return out;
}

std::vector<std::string> skipped(const Advice &all, const bench::Choice &choice) {
  return bench::patterns(all.shapes, choice.faster, all.model.kind == "shapes" ? "" : "*");
}

void print_json(const Advise &a, const Advice &all) {
  estimate::Json j = estimate::json_of_model(a.options, all.model);
  j["kernels"] = all.kernels;
  j["emulated"] = all.is_emulated;
  j["shapes"] = j["choices"] = estimate::Json::array();
  for (const bench::Measured &m : all.shapes) {
    estimate::Json one = {{"n", m.shape.n}, {"k", m.shape.k}, {"linears", m.shape.linears}};
    if (!m.bf16.empty()) one["bf16_seconds"] = bench::median(m.bf16);
    one["backends"] = estimate::Json::array();
    for (const bench::Timed &t : m.backends) {
      estimate::Json timed = {{"name", t.backend}};
      if (!t.refused.empty()) {
        timed["refused"] = t.refused;
      } else {
        timed["seconds"] = bench::median(t.seconds);
        timed["rounds"] = t.seconds.size();
        timed["faster"] = bench::gains(m, t);
      }
      one["backends"].push_back(timed);
    }
    j["shapes"].push_back(one);
  }
  j["bf16_seconds"] = all.bf16;
  for (const bench::Choice &c : all.choices)
    if (c.runs > 0)
      j["choices"].push_back({{"name", c.backend},
                              {"everywhere_seconds", c.everywhere},
                              {"seconds", c.seconds},
                              {"linears", c.linears},
                              {"skip", skipped(all, c)}});
  const bench::Choice *best = bench::best(all.choices);
  j["best"] = best == nullptr ? estimate::Json() : estimate::Json(best->backend);
  put_json(j);
}

std::string line_of(const std::string &name, double seconds, const std::string &rest) {
  char text[64];
  std::snprintf(text, sizeof text, "%10.3f", 1000 * seconds);
  return concat("  ", padded(name, 22), text, rest.empty() ? "" : "  ", rest);
}

std::string times(double slow, double fast) {
  char text[32];
  std::snprintf(text, sizeof text, "%6.2f x", slow / fast);
  return text;
}

void print_shape(const TextLayout &page, const bench::Measured &m) {
  page.line(concat(shape_text(m.shape), "  ", m.shape.linears.size(),
                   m.shape.linears.size() == 1 ? " linear, " : " linears, as ",
                   m.shape.linears.front()));
  const double bf16 = bench::median(m.bf16);
  if (!m.bf16.empty()) page.line(line_of("bf16", bf16, ""));
  for (const bench::Timed &t : m.backends) {
    const double seconds = bench::median(t.seconds);
    if (t.refused.empty())
      page.line(line_of(t.backend, seconds,
                        times(bf16, seconds) + (bench::gains(m, t) ? "  faster" : "")));
    else
      page.line(concat("  ", padded(t.backend, 25), "refused"));
  }
  page.line();
}

// Each reason once, however many shapes it holds for.
void print_refusals(const TextLayout &page, const Advice &all) {
  std::set<std::string> seen;
  for (const bench::Measured &m : all.shapes)
    for (const bench::Timed &t : m.backends)
      if (!t.refused.empty() && seen.insert(t.backend + t.refused).second)
        page.row("refused", concat(t.backend, ": ", t.refused));
}

// A number or a boolean as such, as --backend takes it; a text otherwise.
TomlValue value_of_text(const std::string &text) {
  const estimate::Json j = estimate::Json::parse(text, nullptr, false);
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<int64_t>();
  if (j.is_number()) return j.get<double>();
  return text;
}

// octavo.toml of the choice.
void print_configuration(const Advice &all, const bench::Choice &choice) {
  const estimate::Named named = estimate::parse_named(choice.backend);
  std::vector<TomlLine> lines = {{"schema", int64_t{1}, ""},
                                 {"mixed_precision", std::string("fp8"), ""},
                                 {"fp8.backend", named.backend, ""}};
  for (const auto &[key, value] : named.options)
    lines.push_back({concat("fp8.", named.backend, ".", key), value_of_text(value), ""});
  const std::vector<std::string> skip = skipped(all, choice);
  if (!skip.empty()) lines.push_back({"layers.skip", skip, "Not faster in FP8."});
  lines.push_back({"layers.min_gain", std::string("off"), "Small layers were also measured."});
  say("\n%s", toml_text("", lines).c_str());
}

void print_advice(const Advise &a, const Advice &all) {
  const TextLayout page;
  page.row("model", concat(a.options.model, " (", all.model.kind, "): ", all.linears,
                           " linears of ", all.shapes.size(), " shapes"));
  page.row("batch", a.options.batch_text() + "; x, weights and dy in bf16");
  if (!all.kernels.empty())
    page.row("kernels", concat(all.kernels, all.is_emulated ? ", without units for FP8" : ""));
  page.row("measured",
           "casts, forward and backward of one linear, in milliseconds; medians of rounds that run "
           "every line once");
  page.line();
  for (const bench::Measured &m : all.shapes) print_shape(page, m);
  if (all.kernels.empty()) return print_refusals(page, all);
  page.line("All linears of a step, and how many are faster");
  page.line(line_of("bf16", all.bf16, ""));
  for (const bench::Choice &c : all.choices)
    if (c.runs > 0)
      page.line(
          line_of(c.backend, c.everywhere,
                  concat(times(all.bf16, c.everywhere), "  ", c.linears, " of ", all.linears)));
  page.line();
  print_refusals(page, all);
  const bench::Choice *best = bench::best(all.choices);
  if (best == nullptr) {
    page.row("advice",
             "bf16, if speed is all that counts: FP8 makes no linear of this model faster here. "
             "octavo estimate shows what FP8 saves in memory");
    return;
  }
  page.row("advice",
           concat(best->backend, " for ", best->linears, " of ", all.linears,
                  " linears: with it all linears of a step are ",
                  trimmed(times(all.bf16, best->seconds), " x"), " times as fast as in bf16"));
  print_configuration(all, *best);
}

int run_advise(const Advise &a) {
  try {
    const Advice all = measure_all(a);
    if (a.options.json)
      print_json(a, all);
    else
      print_advice(a, all);
    bool refused = all.kernels.empty();
    for (const bench::Measured &m : all.shapes)
      for (const bench::Timed &t : m.backends)
        refused = refused || (!a.options.backends.empty() && !t.refused.empty());
    return refused ? kRefused : kOk;
  } catch (const Failure &f) {
    return failed(f);
  } catch (const octavo::Error &e) {
    say_error("error: %s\n", e.what());
    return exit_code(e.status());
  }
}

}  // namespace

void add_bench(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "bench", "Measure a model's linears here, in bf16 and by backends, and say what is faster");
  auto a = std::make_shared<Advise>();
  a->options.add(*command, "five recipes of te and msamp's O2", true);
  a->options.request.set_default("layers.min_gain=off");  // small layers are measured, too
  command
      ->add_option("--seconds", a->seconds,
                   "of measuring for each shape of a weight; at least five rounds run")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command->footer(
      "Exit codes: 0 done; 1 nothing that was asked for runs here; 2 wrong arguments, model or "
      "configuration; 3 another failure");
  command->callback([a, &exit] { exit = run_advise(*a); });
}

}  // namespace octavo::cli
