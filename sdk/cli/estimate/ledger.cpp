// The backend is asked as by a host: parameters and linears are added, and its seal describes the
// slots. What it leaves to the host is the host's own fp32 tensors and AdamW.
#include "sdk/cli/estimate/ledger.h"

#include <set>

#include "sdk/src/base/failure.h"

namespace octavo::cli::estimate {
namespace {

constexpr uint64_t kBf16 = 2;

// x of the linears that need it, each tensor once; another width of a shared one is another tensor.
class Inputs {
 public:
  explicit Inputs(uint64_t rows) : rows_(rows) {}
  uint64_t bytes_of(const Tensor &weight, uint64_t element) {
    const bool first = seen_.insert(concat(weight.input, " ", weight.cols)).second;
    return first ? rows_ * static_cast<uint64_t>(weight.cols) * element : 0;
  }

 private:
  const uint64_t rows_;
  std::set<std::string> seen_;
};

// What stands in the report of a run that cannot be opened.
std::string refusal_of(const octavo::Error &e) {
  for (const octavo::Diagnostic &d : e.diagnostics())
    if (d.severity == OCTAVO_SEVERITY_ERROR) return d.text;
  return e.what();
}

// In the order in which hosts add: linears first, the rest where the backend steps weights.
std::vector<Placed> place(octavo::Run &run, const Shapes &shapes) {
  std::vector<Placed> all;
  for (const Tensor &t : shapes.tensors) {
    Placed p{&t};
    const auto ask = [&p](const octavo::Added &answer, uint32_t &id) {
      id = answer.id;
      if (!answer) p.refused = answer.verdict.text;
    };
    if (!t.linear.empty())
      ask(run.add_parameter({.name = t.name, .rows = t.rows, .cols = t.cols, .dtype = t.dtype}),
          p.parameter);
    if (p.parameter != OCTAVO_NONE) ask(run.add_linear(t.linear, p.parameter), p.linear);
    all.push_back(p);
  }
  const bool steps = run.optimizer() != nullptr;
  for (Placed &p : all)
    if (steps && p.parameter == OCTAVO_NONE)
      p.parameter = run.add_parameter({p.tensor->name, p.tensor->rows, p.tensor->cols, 0}).id;
  run.seal();
  return all;
}

}  // namespace

constexpr std::array<const char *, kParts> kPartNames = {"weight",       "gradient",      "exp_avg",
                                                         "exp_avg_sq",   "master_weight", "step",
                                                         "weight_cache", "fp8_state",     "saved"};

uint64_t Column::total() const {
  uint64_t sum = 0;
  for (const uint64_t part : bytes) sum += part;
  return sum;
}

Named parse_named(const std::string &text) {
  const size_t colon = text.find(':');
  Named named{text, text.substr(0, colon), {}};
  if (colon == std::string::npos) return named;
  for (const std::string &one : split(text.substr(colon + 1), ',')) {
    const size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Failure(OCTAVO_INVALID, kEstimateDomain, "--backend ", text,
                    ": expected NAME or NAME:KEY=VALUE,KEY=VALUE, as in msamp:opt_level=O3, found "
                    "\"",
                    one, "\" where KEY=VALUE was expected");
    named.options.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return named;
}

Column host_column(const std::string &name, const Shapes &shapes, uint64_t rows, bool bf16) {
  Column c;
  c.name = name;
  Inputs inputs(rows);
  for (const Tensor &t : shapes.tensors) {
    for (const Part part : {kWeight, kGradient, kExpAvg, kExpAvgSq})
      c.bytes[part] += t.count() * kF32;
    if (t.linear.empty()) continue;
    if (bf16) c.bytes[kWeightCache] += t.count() * kBf16;
    c.bytes[kSaved] += inputs.bytes_of(t, bf16 ? kBf16 : kF32);
  }
  return c;
}

Model seal_model(const octavo::Settings &settings, const Named &named, const Shapes &shapes,
                 octavo::Host *host) {
  octavo::Settings own = settings;
  own.set("mixed_precision", "fp8").set("fp8.backend", named.backend);
  for (const auto &[key, value] : named.options)
    own.parse("fp8." + named.backend + "." + key, value);
  Model m;
  try {
    m.run.emplace(own, host);
    if (m.run->backend_id() == named.backend)
      m.placed = place(*m.run, shapes);
    else
      m.refused = named.backend + " does not run here; octavo check shows why";
  } catch (const octavo::Error &e) {
    if (e.status() != OCTAVO_UNSUPPORTED) throw Failure(e.status(), kEstimateDomain, refusal_of(e));
    m.refused = refusal_of(e);
  }
  return m;
}

HostTensors host_tensors(const octavo::Run &run, const Placed &p) {
  const bool known = p.parameter != OCTAVO_NONE;
  return {!known || !run.owns(p.parameter), !known || !run.owns(p.parameter, OCTAVO_ROLE_GRADIENT),
          !known || run.optimizer() == nullptr};
}

void add_host_tensors(const HostTensors &host, uint64_t elements, Column &c) {
  if (host.weight) c.bytes[kWeight] += elements * kF32;
  if (host.gradient) c.bytes[kGradient] += elements * kF32;
  if (!host.moments) return;
  c.bytes[kExpAvg] += elements * kF32;
  c.bytes[kExpAvgSq] += elements * kF32;
}

void add_linears(const Model &model, uint64_t rows, Column &c) {
  Inputs inputs(rows);
  for (const Placed &p : model.placed) {
    if (p.tensor->linear.empty()) continue;
    bool needs_x = true;
    if (p.linear != OCTAVO_NONE) {
      const octavo_linear_plan &plan = model.run->plan(p.linear);
      ++c.in_fp8;
      needs_x = (plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0;
      if (rows > 0) c.bytes[kSaved] += octavo_extent_bytes(&plan.saved, rows);
    }
    if (needs_x) c.bytes[kSaved] += inputs.bytes_of(*p.tensor, kBf16);
  }
}

Part part_of(const octavo_slot &slot) {
  switch (slot.role) {
    case OCTAVO_ROLE_WEIGHT: return kWeight;
    case OCTAVO_ROLE_GRADIENT: return kGradient;
    case OCTAVO_ROLE_EXP_AVG: return kExpAvg;
    case OCTAVO_ROLE_EXP_AVG_SQ: return kExpAvgSq;
    case OCTAVO_ROLE_MASTER_WEIGHT: return kMasterWeight;
    case OCTAVO_ROLE_WEIGHT_CACHE: return kWeightCache;
    case OCTAVO_ROLE_COUNTER: return slot.owner_kind == OCTAVO_OWNER_PARAMETER ? kStep : kFp8State;
    default: return kFp8State;
  }
}

uint64_t bytes_of(const octavo_slot &slot) {
  return static_cast<uint64_t>(slot.rows) * static_cast<uint64_t>(slot.cols) *
         OCTAVO_DTYPE_BITS(slot.dtype) / 8;
}

Column backend_column(const octavo::Settings &settings, const Named &named, const Shapes &shapes,
                      uint64_t rows) {
  const Model model = seal_model(settings, named, shapes);
  Column c;
  c.name = named.text;
  c.refused = model.refused;
  if (!c.refused.empty()) return c;
  for (const Placed &p : model.placed)
    add_host_tensors(host_tensors(*model.run, p), p.tensor->count(), c);
  add_linears(model, rows, c);
  for (const octavo_slot &slot : model.run->slots())
    if ((slot.flags & OCTAVO_SLOT_NATIVE) == 0) c.bytes[part_of(slot)] += bytes_of(slot);
  return c;
}

}  // namespace octavo::cli::estimate
