// Opening a run and keeping its memory; the calls of the layers are in linear.cpp.
#include "octavo_run.h"

#include <charconv>
#include <utility>
#include <vector>

#include "error.h"

namespace gpt {
namespace {

// Borrows the string.
octavo_value text_value(octavo_str s) {
  octavo_value value = {};
  value.type = OCTAVO_VALUE_TEXT;
  value.text = s;
  return value;
}

// A setting of the command line as the type that it looks like, as TOML would read it.
octavo_value value_of(const std::string &s) {
  octavo_value value = {};
  const char *end = s.data() + s.size();
  if (s == "true" || s == "false") {
    value.type = OCTAVO_VALUE_BOOL;
    value.integer = s == "true" ? 1 : 0;
  } else if (std::from_chars(s.data(), end, value.integer).ptr == end) {
    value.type = OCTAVO_VALUE_INT;
  } else if (value.integer = 0; std::from_chars(s.data(), end, value.real).ptr == end) {
    value.type = OCTAVO_VALUE_REAL;
  } else {
    return text_value(view(s));
  }
  return value;
}

std::string to_text(const octavo_value &v) {
  switch (v.type) {
    case OCTAVO_VALUE_INT: return std::to_string(v.integer);
    case OCTAVO_VALUE_REAL: return std::to_string(v.real);
    case OCTAVO_VALUE_BOOL: return v.integer != 0 ? "true" : "false";
    case OCTAVO_VALUE_TEXT: return text(v.text);
    default: return {};
  }
}

}  // namespace

octavo_verdict empty_verdict() {
  octavo_verdict verdict = {};
  verdict.size = sizeof verdict;
  verdict.kind = OCTAVO_KIND_VERDICT;
  return verdict;
}

bool is_cast_statistic(uint32_t role) {
  return role == OCTAVO_ROLE_SATURATED || role == OCTAVO_ROLE_UNDERFLOW ||
         role == OCTAVO_ROLE_SIGNAL || role == OCTAVO_ROLE_NOISE;
}

OctavoRun::OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host,
                     Fused fused, const std::string &device)
    : host_(host), fused_(fused) {
  // The overrides rank above the file: "te:recipe=delayed" changes three keys and keeps the rest.
  std::vector<std::string> keys;
  std::vector<octavo_option_value> overrides;
  if (spec.kind == RunSpec::Kind::kBackend) {
    keys.reserve(spec.settings.size());
    overrides.push_back({OCTAVO_STR("mixed_precision"), text_value(OCTAVO_STR("fp8"))});
    overrides.push_back({OCTAVO_STR("fp8.backend"), text_value(view(spec.backend))});
    for (const auto &[key, value] : spec.settings) {
      keys.push_back("fp8." + spec.backend + "." + key);
      overrides.push_back({view(keys.back()), value_of(value)});
    }
  }
  if (!device.empty()) overrides.push_back({OCTAVO_STR("device.kind"), text_value(view(device))});
  octavo_open_desc desc = {};
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_OPEN_DESC;
  desc.config_path = view(config_path);
  desc.overrides = overrides.data();
  desc.override_count = overrides.size();
  desc.device = {OCTAVO_DEVICE_AUTO, 0};  // as device.kind says: tensors are copied where it lies
  desc.host = host.table();

  host.take_diagnostics();
  const octavo_status status = octavo_open(&desc, &run_);
  const std::string said = host.take_diagnostics();
  if (status != OCTAVO_OK) {
    run_ = nullptr;
    throw UserError("--run " + spec.name,
                    "fp32, bf16, config, or an FP8 backend that Octavo can open here",
                    "octavo_open answered status " + std::to_string(status) +
                        (said.empty() ? "" : ":\n" + said),
                    "follow the messages above; `octavo explain` shows every candidate");
  }
  if (precision() == "fp16") {
    octavo_close(run_);
    run_ = nullptr;
    throw UserError("--run " + spec.name, "mixed_precision \"no\", \"bf16\" or \"fp8\"", "\"fp16\"",
                    "choose one of the three: this program has no fp16 linear");
  }
  table_ = octavo_backend_of(run_);
  session_ = octavo_session_of(run_);
  device_ = std::make_unique<Device>(run_, host_);
  workspace_ = std::make_unique<DeviceBuffer>(*device_);
  staging_ = std::make_unique<Staging>(*device_);
}

OctavoRun::~OctavoRun() {
  // Before the run ends, since their memory is its device's.
  lent_.clear();
  staging_.reset();
  workspace_.reset();
  octavo_store_close(store_);
  octavo_close(run_);
}

octavo_verdict OctavoRun::add(Parameter &p, uint32_t flags) {
  octavo_parameter_desc desc = {};
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_PARAMETER_DESC;
  desc.name = view(p.name);  // a checkpoint key
  desc.rows = p.rows;
  desc.cols = p.cols;
  desc.dtype = OCTAVO_F32;  // what this host keeps it in
  desc.gradient_dtype = OCTAVO_F32;
  desc.flags = flags;
  octavo_verdict verdict = empty_verdict();
  check(octavo_add_parameter(run_, &desc, &verdict, &p.id), "octavo_add_parameter", p.name);
  if (verdict.decision == OCTAVO_DECLINE) p.id = OCTAVO_NONE;
  return verdict;
}

void OctavoRun::seal(const Communicator &communicator) {
  collective_ = std::make_unique<DeviceCollective>(*device_, communicator.table());
  check(octavo_seal(run_), "octavo_seal", backend());
  if (table_ == nullptr) return;  // mixed_precision "no" or "bf16": every layer stays here
  const uint32_t count = octavo_slot_count(run_);
  bool whole = false;
  for (uint32_t id = 0; id < count; ++id) {
    const octavo_slot *slot = octavo_get_slot(run_, id);
    const bool tensor = slot->role == OCTAVO_ROLE_WEIGHT || slot->role == OCTAVO_ROLE_GRADIENT;
    if (tensor && (slot->flags & OCTAVO_SLOT_NATIVE) == 0 && optimizer() == nullptr) {
      throw UserError("backend " + backend(),
                      "a backend that steps the weights and gradients that it owns",
                      "slot " + text(slot->name) + " and no octavo.optimizer/1",
                      "choose another backend: the AdamW of this program needs fp32 tensors");
    }
    whole = whole || slot->shard == OCTAVO_SHARD_WHOLE;
  }
  // Without an optimizer of the backend every rank steps every weight, so nothing is shared out.
  sharded_ = whole && optimizer() != nullptr && communicator.world() > 1;
  rank_ = communicator.rank();
  check(sharded_ ? octavo_store_open_sharded(run_, rank_, communicator.world(), &store_)
                 : octavo_store_open(run_, &store_),
        "octavo_store_open", backend());
  for (uint32_t id = 0; id < count; ++id) {
    if (octavo_get_slot(run_, id)->role == OCTAVO_ROLE_NONFINITE) {
      nonfinite_ = static_cast<const float *>(octavo_store_address(store_, id));
    }
  }
}

const octavo_slot *OctavoRun::slot_of(uint32_t parameter, uint32_t role) const {
  const uint32_t uses = octavo_use_count(run_, OCTAVO_OWNER_PARAMETER, parameter);
  for (uint32_t i = 0; i < uses; ++i) {
    const octavo_slot_use *use = octavo_get_use(run_, OCTAVO_OWNER_PARAMETER, parameter, i);
    const octavo_slot *slot = octavo_get_slot(run_, use->slot);
    if (slot->role == role) return slot;
  }
  return nullptr;
}

std::vector<void *> OctavoRun::list(uint32_t verb, uint32_t owner_kind, uint32_t owner,
                                    Record record) const {
  const uint32_t uses = octavo_use_count(run_, owner_kind, owner);
  void *const *given = octavo_store_list(store_, verb, owner_kind, owner);
  std::vector<void *> all(given, given + uses);
  for (uint32_t i = 0; i < uses; ++i) {
    const octavo_slot *slot =
        octavo_get_slot(run_, octavo_get_use(run_, owner_kind, owner, i)->slot);
    const bool accumulates = slot->access[verb] == OCTAVO_ACCESS_ACCUMULATE;
    const bool statistic = is_cast_statistic(slot->role);
    if (accumulates &&
        (record == Record::kNothing || (record == Record::kNoCastStatistics && statistic))) {
      all[i] = nullptr;
    }
  }
  all.push_back(nullptr);  // so that a list without uses has an address, too
  return all;
}

void OctavoRun::lend(Parameter &p) {
  // A backend emits a native slot only where it looks at the tensor; without one, nothing to do.
  for (const auto &[role, data] : {std::pair(uint32_t{OCTAVO_ROLE_WEIGHT}, p.value.data()),
                                   std::pair(uint32_t{OCTAVO_ROLE_GRADIENT}, p.grad.data())}) {
    const octavo_slot *slot = slot_of(p.id, role);
    if (slot == nullptr || (slot->flags & OCTAVO_SLOT_NATIVE) == 0) continue;
    Twin &twin = lent_.try_emplace({p.id, role}, *device_, data, p.count()).first->second;
    check(octavo_store_native(store_, p.id, role, twin.device()), "octavo_store_native", p.name);
  }
}

void OctavoRun::upload(const Parameter &p, uint32_t role) {
  if (const auto lent = lent_.find({p.id, role}); lent != lent_.end()) lent->second.upload();
}

void OctavoRun::download(const Parameter &p, uint32_t role) {
  if (const auto lent = lent_.find({p.id, role}); lent != lent_.end()) lent->second.download();
}

bool OctavoRun::owns(uint32_t parameter) const {
  return !sharded_ || octavo_store_owner(store_, parameter) == rank_;
}

void OctavoRun::end_step() {
  if (table_ == nullptr) return;
  octavo_step_call call = {};
  call.size = sizeof call;
  call.kind = OCTAVO_KIND_STEP_CALL;
  call.slots = octavo_store_list(store_, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  check(table_->end_step(session_, &call), "end_step", backend());
}

bool OctavoRun::saw_nonfinite() const {
  return nonfinite_ != nullptr && device_->read(nonfinite_) != 0.0f;
}

std::string OctavoRun::option(const std::string &name) const {
  const octavo_session_desc *desc = octavo_session_desc_of(run_);
  for (uint64_t i = 0; desc != nullptr && i < desc->option_count; ++i) {
    if (text(desc->options[i].name) == name) return to_text(desc->options[i].value);
  }
  return {};
}

std::string OctavoRun::report() const {
  std::string all;
  auto add = [](void *ctx, octavo_str line) {
    *static_cast<std::string *>(ctx) += text(line) + "\n";
  };
  check(octavo_report(run_, OCTAVO_STR("text"), add, &all), "octavo_report", backend());
  return all;
}

}  // namespace gpt
