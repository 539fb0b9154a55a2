// octavo plan: what each rank of a mesh keeps and sends, for more ranks than this machine has.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/estimate/ledger.h"
#include "sdk/cli/estimate/print.h"
#include "sdk/cli/estimate/sizes.h"
#include "sdk/cli/page.h"
#include "sdk/cli/plan/ranks.h"
#include "sdk/cli/plan/wire.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

struct Plan {
  Request request;
  std::string model, mesh, parallel, gather = "values", dtype = "float32", gradients = "all";
  std::vector<std::string> backends;
  uint64_t batch = 0, sequence = 0;
  bool json = false;
};

// One backend on the mesh.
struct Planned {
  std::string name, refused;
  size_t in_fp8 = 0;
  plan::Ranks ranks;
  plan::Wire wire;
};

Planned planned(const Plan &p, const std::string &backend, const estimate::Shapes &shapes,
                const plan::Mesh &mesh) {
  Planned one;
  one.name = backend;
  const estimate::Model model =
      estimate::seal_model(p.request.settings(), estimate::parse_named(backend), shapes);
  one.refused =
      model.refused.empty() ? plan::refusal_of(model, mesh, p.gather == "fp8") : model.refused;
  if (!one.refused.empty()) return one;
  const plan::Gather gather = {p.gather == "fp8", p.dtype == "float32" ? 4u : 2u};
  one.ranks = plan::ranks_of(model, mesh, p.batch * p.sequence);
  const plan::Means means = p.gradients == "owner" ? plan::Means::kOwner : plan::Means::kAll;
  one.wire = plan::wire_of(model, mesh, gather, means);
  one.in_fp8 = one.ranks.of_fullest.in_fp8;
  return one;
}

estimate::Json json_of(const estimate::Column &c, uint32_t rank) {
  estimate::Json j = {{"rank", rank}};
  for (size_t i = 0; i < estimate::kParts; ++i) j["bytes"][estimate::kPartNames[i]] = c.bytes[i];
  j["total"] = c.total();
  return j;
}

void print_json(const Plan &p, const estimate::Shapes &shapes, const estimate::Sizes &sizes,
                const plan::Mesh &mesh, const std::vector<Planned> &all) {
  estimate::Json j = {{"octavo", octavo::version()}, {"model", p.model},
                      {"kind", shapes.kind},         {"parameters", sizes.parameters},
                      {"linears", sizes.linears},    {"rows", p.batch * p.sequence}};
  j["mesh"] = {{"parallel", mesh.parallel},
               {"ranks", mesh.world()},
               {"replicas", mesh.replicas},
               {"shards", mesh.shards}};
  j["plans"] = estimate::Json::array();
  for (const Planned &one : all) {
    estimate::Json entry = {{"name", one.name}};
    if (!one.refused.empty()) {
      entry["refused"] = one.refused;
    } else {
      entry["linears_in_fp8"] = one.in_fp8;
      entry["weights_gathered_as_codes"] = one.wire.gathered_codes;
      entry["fullest"] = json_of(one.ranks.of_fullest, one.ranks.fullest);
      entry["least"] = json_of(one.ranks.of_least, one.ranks.least);
      estimate::Json sum = json_of(one.ranks.of_all, 0);
      sum.erase("rank");
      entry["all"] = sum;
      entry["wire"] = estimate::Json::array();
      for (const plan::Operation &o : one.wire.operations)
        entry["wire"].push_back({{"what", o.what},
                                 {"collective", o.collective},
                                 {"ranks", o.ranks},
                                 {"calls", o.calls},
                                 {"given", o.given},
                                 {"sent", o.sent}});
      entry["sent"] = one.wire.sent();
    }
    j["plans"].push_back(entry);
  }
  put_json(j);
}

void print_wire(const Page &page, const Planned &one) {
  page.line(concat("On the wire, bytes of a rank in a step: ", one.name));
  char text[160];
  const auto row = [&](const char *what, const char *collective, const std::string &ranks,
                       const std::string &calls, const std::string &given,
                       const std::string &sent) {
    std::snprintf(text, sizeof text, "  %-17s %-18s %5s %6s %13s %13s", what, collective,
                  ranks.c_str(), calls.c_str(), given.c_str(), sent.c_str());
    page.line(text);
  };
  row("of", "collective", "ranks", "calls", "given", "sent");
  for (const plan::Operation &o : one.wire.operations)
    row(o.what.c_str(), o.collective.c_str(), std::to_string(o.ranks), std::to_string(o.calls),
        std::to_string(o.given), std::to_string(o.sent));
  row("sum", "", "", "", "", std::to_string(one.wire.sent()));
}

void print_plan(const Plan &p, const estimate::Shapes &shapes, const estimate::Sizes &sizes,
                const plan::Mesh &mesh, const std::vector<Planned> &all) {
  const Page page;
  page.row("model", concat(p.model, " (", shapes.kind, "): ", sizes.parameters, " parameters, ",
                           sizes.in_linears, " of them in ", sizes.linears, " linears"));
  page.row("mesh", concat(mesh.world(), " ranks, ", mesh.parallel, ": ", mesh.replicas,
                          mesh.replicas == 1 ? " replica" : " replicas", " of ", mesh.shards,
                          mesh.shards == 1 ? " shard" : " shards"));
  if (p.batch > 0)
    page.row("batch", concat(p.batch, " sequences of ", p.sequence,
                             " on each rank: ", p.batch * p.sequence, " rows"));
  page.line();
  page.line("Memory of the rank that holds most");
  std::vector<estimate::Column> columns;
  for (const Planned &one : all) {
    columns.push_back(one.ranks.of_fullest);
    columns.back().name = one.name;
    columns.back().refused = one.refused;
  }
  estimate::print_table(columns, p.batch > 0, "refused, see below");
  for (const Planned &one : all) {
    if (!one.refused.empty()) continue;
    page.line();
    print_wire(page, one);
    if (p.gather == "fp8")
      page.more(concat(one.wire.gathered_codes, " of ", sizes.linears,
                       " weights are gathered as codes, the others as values"));
  }
  for (const Planned &one : all)
    if (!one.refused.empty()) page.row("refused", one.name + ": " + one.refused);
}

int run_plan(const Plan &p) {
  try {
    const plan::Mesh mesh = plan::parse_mesh(p.mesh, p.parallel);
    if (!mesh.is_sharded() && (p.gather != "values" || p.dtype != "float32"))
      throw Failure(OCTAVO_INVALID, plan::kPlanDomain, "--gather, --dtype: expected fully_shard, ",
                    "which gathers weights, found ddp; add --parallel fsdp");
    if (mesh.is_sharded() && p.gradients != "all")
      throw Failure(OCTAVO_INVALID, plan::kPlanDomain, "--gradients: expected ddp, in which every ",
                    "rank has the whole model, found fully_shard; add --parallel ddp");
    const estimate::Shapes shapes = estimate::read_shapes(p.model);
    const estimate::Sizes sizes = estimate::sizes_of(p.model, shapes, p.batch * p.sequence);
    std::vector<std::string> backends = p.backends;
    if (backends.empty()) backends = {"te"};
    if (p.backends.empty() && !mesh.is_sharded()) backends = estimate::usual_backends();
    std::vector<Planned> all;
    for (const std::string &backend : backends) all.push_back(planned(p, backend, shapes, mesh));
    if (p.json)
      print_json(p, shapes, sizes, mesh, all);
    else
      print_plan(p, shapes, sizes, mesh, all);
    for (const Planned &one : all)
      if (!one.refused.empty() && !p.backends.empty()) return kRefused;
  } catch (const Failure &f) {
    return failed(f);
  }
  return kOk;
}

}  // namespace

void add_plan(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "plan", "Show what each rank of a mesh would keep and send, beyond this machine");
  auto p = std::make_shared<Plan>();
  command
      ->add_option("model", p->model,
                   "a config.json of Hugging Face, or a shapes file (docs/estimate.md)")
      ->required()
      ->check(problem_of_empty);
  p->request.add_config_options(*command);
  command->add_option("--mesh", p->mesh, "ranks, as 64, or replicas and shards, as 8x8")
      ->required()
      ->check(problem_of_empty);
  command
      ->add_option("--parallel", p->parallel,
                   "ddp: each rank has the whole model, a backend may share states out; fsdp: "
                   "fully_shard, HSDP on a mesh of two dimensions. Usual: ddp of one, fsdp of two")
      ->check(CLI::IsMember({"ddp", "fsdp"}));
  command->add_option("--gather", p->gather, "what fully_shard gathers of weights: values or fp8")
      ->check(CLI::IsMember({"values", "fp8"}));
  command
      ->add_option("--gradients", p->gradients,
                   "who gets the means of gradients in slots: all ranks, or owner: the rank that "
                   "steps the parameter, as shard_optimizer_state of Python. Usual: all")
      ->check(CLI::IsMember({"all", "owner"}));
  command->add_option("--dtype", p->dtype, "of gathered values: float32, bfloat16 or float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command
      ->add_option("--backend", p->backends,
                   "this backend instead of the usual ones, as in msamp:opt_level=O3; may be given "
                   "several times")
      ->check(problem_of_empty)
      ->allow_extra_args(false);
  CLI::Option *batch =
      command
          ->add_option("--batch", p->batch, "sequences of a rank in a step; adds what linears save")
          ->check(CLI::Range(1, 1 << 20));
  CLI::Option *sequence =
      command->add_option("--sequence", p->sequence, "tokens of a sequence, with --batch")
          ->check(CLI::Range(1, 1 << 24))
          ->needs(batch);
  batch->needs(sequence);
  command->add_flag("--json", p->json, "print JSON");
  command->footer(
      "Exit codes: 0 done; 1 a backend that --backend names does not run here or on this mesh; 2 "
      "wrong arguments, model or configuration");
  command->callback([p, &exit] { exit = run_plan(*p); });
}

}  // namespace octavo::cli
