// Names of runs, opening a run and keeping its memory; the calls of the layers are in
// fp8_linear.cpp.
#include "octavo_run.h"

#include <algorithm>

#include "host_adapters/standalone/error.h"

namespace gpt {
namespace {

bool is_word(const std::string &s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

octavo::Run open_run(const RunSpec &spec, const std::string &config_path, OctavoHost &host,
                     const std::string &device, const RankSettings &rank) {
  // Settings rank above the file: "te:recipe=delayed" changes three keys and keeps the rest.
  octavo::Settings settings;
  if (spec.uses_fp8()) settings.path(config_path);
  if (spec.uses_fp8() && !device.empty()) settings.set("device.kind", device);
  if (spec.uses_fp8() && !rank.run_id.empty()) settings.set("checkpoint.run_id", rank.run_id);
  if (spec.uses_fp8() && rank.device_index >= 0)
    settings.device({OCTAVO_DEVICE_CUDA, rank.device_index});
  if (spec.kind == RunSpec::Kind::kFp32) settings.set("mixed_precision", "no");
  if (spec.kind == RunSpec::Kind::kBf16) settings.set("mixed_precision", "bf16");
  if (spec.kind == RunSpec::Kind::kBackend) {
    settings.set("mixed_precision", "fp8").set("fp8.backend", spec.backend);
    for (const auto &[key, value] : spec.settings)
      settings.parse("fp8." + spec.backend + "." + key, value);
  }
  host.take();
  try {
    octavo::Run run(settings, &host);
    if (run.precision() != "fp16") return run;
  } catch (const octavo::Error &e) {
    if (e.status() == OCTAVO_NO_RESOURCE) throw;
    const std::string words = said(e.diagnostics());
    throw UserError("--run " + spec.name,
                    "fp32, bf16, config, or an FP8 backend that Octavo can open here",
                    "octavo_open answered status " + std::to_string(e.status()) +
                        (words.empty() ? "" : ":") + words,
                    "follow the messages above; `octavo check` shows every candidate");
  }
  throw UserError("--run " + spec.name, "mixed_precision \"no\", \"bf16\" or \"fp8\"", "\"fp16\"",
                  "choose one of the three: this program has no fp16 linear");
}

}  // namespace

RunSpec parse_run(const std::string &name) {
  const auto accept = [&](bool fine, const std::string &found) {
    expect(fine, "--run " + name,
           "fp32, bf16, config, or an FP8 backend with optional settings, such as "
           "reference or te:recipe=current,margin=0",
           found,
           "correct the name; `octavo plugin list` prints the backends that are "
           "installed");
  };
  using Kind = RunSpec::Kind;
  static const std::map<std::string, Kind> without_backend = {
      {"fp32", Kind::kFp32}, {"bf16", Kind::kBf16}, {"config", Kind::kConfig}};
  RunSpec spec;
  spec.name = name;
  const size_t colon = name.find(':');
  spec.backend = name.substr(0, colon);
  accept(is_word(spec.backend), "\"" + spec.backend + "\" as the name of a backend");
  if (const auto found = without_backend.find(spec.backend); found != without_backend.end()) {
    accept(colon == std::string::npos, "settings, which " + spec.backend + " has none of");
    spec.kind = found->second;
  }
  for (size_t begin = colon; begin != std::string::npos;) {
    const size_t end = name.find(',', begin + 1);
    const std::string setting = name.substr(begin + 1, end - begin - 1);
    const size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    accept(equals != std::string::npos && is_word(key) && equals + 1 < setting.size(),
           "\"" + setting + "\" where key=value was expected");
    spec.settings.emplace_back(key, setting.substr(equals + 1));
    begin = end;
  }
  return spec;
}

OctavoRun::OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host,
                     Fused fused, const std::string &device, const RankSettings &rank)
    : Run(open_run(spec, config_path, host, device, rank)), fused_(fused) {}

octavo::Added OctavoRun::add(Parameter &p, uint32_t flags) {
  octavo::Added added = add_parameter({p.name, p.rows, p.cols, flags});  // the name is a key, too
  p.id = added.id;
  return added;
}

void OctavoRun::seal(const Communicator &communicator) {
  communicator_ = communicator;
  collective_.emplace(memory_, communicator.table());
  Run::seal();
  if (backend() == nullptr) return;  // mixed_precision "no" or "bf16": every layer stays here
  bool whole = false;
  for (const octavo_slot &slot : slots()) whole = whole || slot.shard == OCTAVO_SHARD_WHOLE;
  // Without an optimizer of the backend every rank steps every weight, so nothing is shared out.
  sharded_ = whole && optimizer() != nullptr && communicator.world() > 1;
  if (sharded_)
    store_ = std::make_unique<octavo::Store>(*this, communicator.rank(), communicator.world());
  else
    store_ = std::make_unique<octavo::Store>(*this);
  nonfinite_ = store_->nonfinite(*this);
}

std::vector<void *> OctavoRun::list(uint32_t verb, uint32_t owner_kind, uint32_t owner,
                                    Record record) const {
  void *const *given = store_->list(verb, owner_kind, owner);
  std::vector<void *> all;
  for (const octavo_slot_use &use : uses(owner_kind, owner)) {
    const octavo_slot &slot = slots()[use.slot];
    const bool leaves = slot.access[verb] == OCTAVO_ACCESS_ACCUMULATE &&
                        (record == Record::kNothing ||
                         (record == Record::kNoCastStatistics && is_cast_statistic(slot.role)));
    all.push_back(leaves ? nullptr : given[all.size()]);
  }
  all.push_back(nullptr);  // so that a list without uses has an address, too
  return all;
}

void OctavoRun::lend(Parameter &p) {
  // A backend emits a native slot only where it looks at the tensor; without one, nothing to do.
  for (const auto &[role, data] : {std::pair(uint32_t{OCTAVO_ROLE_WEIGHT}, p.value.data()),
                                   std::pair(uint32_t{OCTAVO_ROLE_GRADIENT}, p.grad.data())}) {
    if (slot(OCTAVO_OWNER_PARAMETER, p.id, role) == nullptr || owns(p.id, role)) continue;
    octavo::Twin &twin = lent_.try_emplace({p.id, role}, memory_, data, p.count()).first->second;
    store_->native(p.id, twin.device(), role);
  }
}

void OctavoRun::upload(const Parameter &p, uint32_t role) {
  if (const auto lent = lent_.find({p.id, role}); lent != lent_.end()) lent->second.upload();
}

void OctavoRun::download(const Parameter &p, uint32_t role) {
  if (const auto lent = lent_.find({p.id, role}); lent != lent_.end()) lent->second.download();
}

void OctavoRun::end_step() {
  if (store_) octavo::EndStep(*this, *store_)();
}

}  // namespace gpt
