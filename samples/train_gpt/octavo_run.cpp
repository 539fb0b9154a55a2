// Opening a run and keeping its memory; the calls of the layers are in linear.cpp.
#include "octavo_run.h"

#include <charconv>
#include <stdexcept>
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

const std::pair<uint32_t, const char *> kRoles[] = {
    {OCTAVO_ROLE_WEIGHT, "weight"},
    {OCTAVO_ROLE_MASTER_WEIGHT, "master_weight"},
    {OCTAVO_ROLE_GRADIENT, "gradient"},
    {OCTAVO_ROLE_EXP_AVG, "exp_avg"},
    {OCTAVO_ROLE_EXP_AVG_SQ, "exp_avg_sq"},
    {OCTAVO_ROLE_SCALE, "scale"},
    {OCTAVO_ROLE_SCALE_INV, "scale_inv"},
    {OCTAVO_ROLE_AMAX, "amax"},
    {OCTAVO_ROLE_AMAX_HISTORY, "amax_history"},
    {OCTAVO_ROLE_COUNTER, "counter"},
    {OCTAVO_ROLE_WEIGHT_CACHE, "weight_cache"},
    {OCTAVO_ROLE_NONFINITE, "nonfinite"},
    {OCTAVO_ROLE_OTHER, "other"},
};

}  // namespace

octavo_verdict empty_verdict() {
  octavo_verdict verdict = {};
  verdict.size = sizeof verdict;
  verdict.kind = OCTAVO_KIND_VERDICT;
  return verdict;
}

OctavoRun::OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host)
    : host_(host) {
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
  octavo_open_desc desc = {};
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_OPEN_DESC;
  desc.config_path = view(config_path);
  desc.overrides = overrides.data();
  desc.override_count = overrides.size();
  desc.device = {OCTAVO_DEVICE_CPU, 0};  // every tensor of this program lies in host memory
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
}

OctavoRun::~OctavoRun() {
  octavo_store_close(store_);
  octavo_close(run_);
}

void OctavoRun::seal() {
  check(octavo_seal(run_), "octavo_seal", backend());
  if (table_ == nullptr) return;  // mixed_precision "no" or "bf16": every layer stays here
  const uint32_t count = octavo_slot_count(run_);
  for (uint32_t id = 0; id < count; ++id) {
    const octavo_slot *slot = octavo_get_slot(run_, id);
    const bool tensor = slot->role == OCTAVO_ROLE_WEIGHT || slot->role == OCTAVO_ROLE_GRADIENT;
    if (tensor && (slot->flags & OCTAVO_SLOT_NATIVE) == 0) {
      throw UserError("backend " + backend(), "a backend that leaves weights and gradients native",
                      "slot " + text(slot->name) + ", which the backend owns",
                      "choose another backend or option: this program runs its own AdamW");
    }
  }
  check(octavo_store_open(run_, &store_), "octavo_store_open", backend());
  for (uint32_t id = 0; id < count; ++id) {
    if (octavo_get_slot(run_, id)->role == OCTAVO_ROLE_NONFINITE) {
      nonfinite_ = static_cast<const float *>(octavo_store_address(store_, id));
    }
  }
}

void OctavoRun::set_native(uint32_t parameter, uint32_t role, void *data) {
  // A backend emits a native slot only where it looks at the tensor; without one, nothing to do.
  const uint32_t uses = octavo_use_count(run_, OCTAVO_OWNER_PARAMETER, parameter);
  for (uint32_t i = 0; i < uses; ++i) {
    const octavo_slot_use *use = octavo_get_use(run_, OCTAVO_OWNER_PARAMETER, parameter, i);
    const octavo_slot *slot = octavo_get_slot(run_, use->slot);
    if (slot->role == role && (slot->flags & OCTAVO_SLOT_NATIVE) != 0) {
      check(octavo_store_native(store_, parameter, role, data), "octavo_store_native",
            text(slot->name));
      return;
    }
  }
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
  return nonfinite_ != nullptr && *nonfinite_ != 0.0f;
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

std::map<std::string, uint64_t> OctavoRun::bytes_by_role() const {
  std::map<std::string, uint64_t> bytes;
  if (store_ == nullptr) return bytes;
  for (const auto &[role, name] : kRoles) {
    if (const uint64_t b = octavo_store_bytes(store_, role); b > 0) bytes[name] = b;
  }
  return bytes;
}

void OctavoRun::check(octavo_status status, const char *verb, const std::string &object) const {
  if (status == OCTAVO_OK) return;
  const std::string said = host_.take_diagnostics();
  throw std::runtime_error(std::string(verb) + " of " + object + " answered status " +
                           std::to_string(status) + (said.empty() ? "" : ":\n" + said));
}

}  // namespace gpt
