// octavo estimate: the memory that a model needs, by what the backends themselves describe; with
// --mesh what each rank keeps and sends, for more ranks than this machine has.
#include <cstdio>
#include <memory>
#include <optional>

#include "common.h"
#include "sdk/cli/estimate/ledger.h"
#include "sdk/cli/estimate/model_options.h"
#include "sdk/cli/estimate/print.h"
#include "sdk/cli/plan/ranks.h"
#include "sdk/cli/plan/wire.h"
#include "sdk/cli/text_layout.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

struct Estimate {
  estimate::ModelOptions options;
  std::string mesh, parallel, gather = "values", dtype = "float32", gradients = "all";
};

// On a mesh, what its ranks keep and send.
struct OnMesh {
  plan::Ranks ranks;
  plan::Wire wire;
};
// A way to train: what one process keeps, or the rank that keeps most.
struct Way {
  estimate::Column column;
  std::optional<OnMesh> on = {};
};

struct Estimated {
  estimate::Shapes shapes;
  estimate::Sizes sizes;
  std::optional<plan::Mesh> mesh;
  std::vector<Way> ways;
};

Way on_mesh(const Estimate &e, const std::string &backend, const estimate::Shapes &shapes,
            const plan::Mesh &mesh) {
  Way way;
  const estimate::Model model =
      estimate::seal_model(e.options.request.settings(), estimate::parse_named(backend), shapes);
  const std::string refused =
      model.refused.empty() ? plan::refusal_of(model, mesh, e.gather == "fp8") : model.refused;
  if (refused.empty()) {
    const plan::Gather gather = {e.gather == "fp8", e.dtype == "float32" ? 4u : 2u};
    const plan::GradientPlacement means =
        e.gradients == "owner" ? plan::GradientPlacement::kOwner : plan::GradientPlacement::kAll;
    way.on = {plan::ranks_of(model, mesh, e.options.rows()),
              plan::wire_of(model, mesh, gather, means)};
    way.column = way.on->ranks.of_fullest;
  }
  way.column.name = backend;
  way.column.refused = refused;
  return way;
}

plan::Mesh mesh_of(const Estimate &e) {
  const plan::Mesh mesh = plan::parse_mesh(e.mesh, e.parallel);
  if (!mesh.is_sharded() && (e.gather != "values" || e.dtype != "float32"))
    throw Failure(OCTAVO_INVALID, plan::kPlanDomain, "--gather, --dtype: expected fully_shard, ",
                  "which gathers weights, found ddp; add --parallel fsdp");
  if (mesh.is_sharded() && e.gradients != "all")
    throw Failure(OCTAVO_INVALID, plan::kPlanDomain, "--gradients: expected ddp, where every ",
                  "rank has the whole model, found fully_shard; add --parallel ddp");
  return mesh;
}

Estimated estimated(const Estimate &e) {
  Estimated all;
  if (!e.mesh.empty()) all.mesh = mesh_of(e);
  const std::string &model = e.options.model;
  all.shapes = estimate::read_shapes(model);
  all.sizes = estimate::sizes_of(model, all.shapes, e.options.rows());
  std::vector<std::string> backends = e.options.backends;
  if (backends.empty() && all.mesh && all.mesh->is_sharded()) backends = {"te"};
  if (backends.empty()) backends = estimate::usual_backends();
  if (!all.mesh) {
    all.ways.push_back({estimate::host_column("fp32", all.shapes, e.options.rows(), false)});
    all.ways.push_back({estimate::host_column("bf16", all.shapes, e.options.rows(), true)});
  }
  for (const std::string &text : backends)
    all.ways.push_back(all.mesh ? on_mesh(e, text, all.shapes, *all.mesh)
                                : Way{estimate::backend_column(e.options.request.settings(),
                                                               estimate::parse_named(text),
                                                               all.shapes, e.options.rows())});
  return all;
}

estimate::Json json_of(const estimate::Column &c) {
  estimate::Json j;
  for (size_t i = 0; i < estimate::kParts; ++i) j["bytes"][estimate::kPartNames[i]] = c.bytes[i];
  j["total"] = c.total();
  return j;
}

estimate::Json json_of(const OnMesh &on) {
  estimate::Json j = {{"weights_gathered_as_codes", on.wire.gathered_codes},
                      {"fullest", json_of(on.ranks.of_fullest)},
                      {"least", json_of(on.ranks.of_least)},
                      {"all", json_of(on.ranks.of_all)}};
  j["fullest"]["rank"] = on.ranks.fullest;
  j["least"]["rank"] = on.ranks.least;
  j["wire"] = estimate::Json::array();
  for (const plan::Operation &o : on.wire.operations)
    j["wire"].push_back({{"what", o.what},
                         {"collective", o.collective},
                         {"ranks", o.ranks},
                         {"calls", o.calls},
                         {"given", o.given},
                         {"sent", o.sent}});
  j["sent"] = on.wire.sent();
  return j;
}

void print_json(const Estimate &e, const Estimated &all) {
  estimate::Json j = estimate::json_of_model(e.options, all.shapes);
  j["parameters"] = all.sizes.parameters;
  j["linears"] = all.sizes.linears;
  j["parameters_of_linears"] = all.sizes.in_linears;
  if (all.mesh)
    j["mesh"] = {{"parallel", all.mesh->parallel},
                 {"ranks", all.mesh->world()},
                 {"replicas", all.mesh->replicas},
                 {"shards", all.mesh->shards}};
  j["columns"] = estimate::Json::array();
  for (const Way &way : all.ways) {
    estimate::Json one = {{"name", way.column.name}};
    if (!way.column.refused.empty()) {
      one["refused"] = way.column.refused;
    } else {
      one["linears_in_fp8"] = way.column.in_fp8;
      one.update(way.on ? json_of(*way.on) : json_of(way.column));
    }
    j["columns"].push_back(one);
  }
  put_json(j);
}

void print_wire(const TextLayout &page, const Way &way) {
  page.line(concat("On the wire, bytes of a rank in a step: ", way.column.name));
  char text[160];
  const auto row = [&](const char *what, const char *collective, const std::string &ranks,
                       const std::string &calls, const std::string &given,
                       const std::string &sent) {
    std::snprintf(text, sizeof text, "  %-17s %-18s %5s %6s %13s %13s", what, collective,
                  ranks.c_str(), calls.c_str(), given.c_str(), sent.c_str());
    page.line(text);
  };
  row("of", "collective", "ranks", "calls", "given", "sent");
  for (const plan::Operation &o : way.on->wire.operations)
    row(o.what.c_str(), o.collective.c_str(), std::to_string(o.ranks), std::to_string(o.calls),
        estimate::grouped(o.given), estimate::grouped(o.sent));
  row("sum", "", "", "", "", estimate::grouped(way.on->wire.sent()));
}

void print_mesh(const TextLayout &page, const plan::Mesh &mesh) {
  page.row("mesh", concat(mesh.world(), " ranks, ", mesh.parallel, ": ", mesh.replicas,
                          mesh.replicas == 1 ? " replica" : " replicas", " of ", mesh.shards,
                          mesh.shards == 1 ? " shard" : " shards"));
}

void print_estimate(const Estimate &e, const Estimated &all) {
  const TextLayout page;
  page.row("model", concat(e.options.model, " (", all.shapes.kind, "): ", all.sizes.parameters,
                           " parameters, ", all.sizes.in_linears, " of them in ", all.sizes.linears,
                           " linears"));
  if (all.mesh) print_mesh(page, *all.mesh);
  if (e.options.rows() > 0)
    page.row("batch", e.options.batch_text() + (all.mesh ? " on each rank"
                                                         : "; saved: what linears keep from "
                                                           "forward to backward"));
  page.line();
  if (all.mesh) page.line("Memory of the rank that holds most");
  std::vector<estimate::Column> columns;
  for (const Way &way : all.ways) columns.push_back(way.column);
  estimate::print_table(columns, e.options.rows() > 0,
                        all.mesh ? "refused, see below" : "does not run here");
  if (!all.mesh) {
    page.line();
    estimate::print_bars(columns);
  }
  for (const Way &way : all.ways) {
    if (!way.on) continue;
    page.line();
    print_wire(page, way);
    if (e.gather == "fp8")
      page.more(concat(way.on->wire.gathered_codes, " of ", all.sizes.linears,
                       " weights are gathered as codes, the others as values"));
  }
  for (const estimate::Column &c : columns)
    if (!c.refused.empty()) page.row("refused", c.name + ": " + c.refused);
}

int run_estimate(const Estimate &e) {
  try {
    const Estimated all = estimated(e);
    if (e.options.json)
      print_json(e, all);
    else
      print_estimate(e, all);
    for (const Way &way : all.ways)
      if (!way.column.refused.empty() && !e.options.backends.empty()) return kRefused;
  } catch (const Failure &f) {
    return failed(f);
  }
  return kOk;
}

}  // namespace

void add_estimate(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "estimate", "Show the memory that training a model needs, also on many ranks");
  auto e = std::make_shared<Estimate>();
  e->options.add(*command, "te and the levels of msamp", false);
  const auto mesh = command->add_option("--mesh", e->mesh,
                                        "also what ranks send: as many, as 64, or replicas and "
                                        "shards, as 8x8");
  mesh->check(problem_of_empty);
  const auto add = [&](const char *name, std::string &value, const char *text,
                       std::vector<std::string> choices) {
    command->add_option(name, value, text)->check(CLI::IsMember(std::move(choices)))->needs(mesh);
  };
  add("--parallel", e->parallel,
      "ddp: each rank has the whole model, a backend may share states out; fsdp: fully_shard, HSDP "
      "on a mesh of two dimensions. Usual: ddp of one, fsdp of two",
      {"ddp", "fsdp"});
  add("--gather", e->gather, "what fully_shard gathers of weights: values or fp8",
      {"values", "fp8"});
  add("--gradients", e->gradients,
      "who gets the means of gradients in slots: all ranks, or owner: the rank that steps the "
      "parameter, as shard_optimizer_state of Python. Usual: all",
      {"all", "owner"});
  add("--dtype", e->dtype, "of gathered values: float32, bfloat16 or float16",
      {"float32", "bfloat16", "float16"});
  command->footer(
      "Exit codes: 0 done; 1 a backend that --backend names does not run here or on this mesh; 2 "
      "wrong arguments, model or configuration");
  command->callback([e, &exit] { exit = run_estimate(*e); });
}

}  // namespace octavo::cli
