// Opening a run, describing the model to it, and its report; what happens in a step is in
// run_step.cpp.
#include "run.h"

#include "device.h"
#include "open_request.h"

namespace octavo::torch {
namespace {

std::string reason_of(const octavo_verdict &v) {
  std::string reason = text(v.text);
  if (v.evidence.size > 0) reason += " (" + text(v.evidence) + ")";
  if (v.decision == OCTAVO_DECLINE && v.remedy.size > 0) reason += "; " + text(v.remedy);
  return reason;
}

bool touches_anything(const SlotList &list) {
  for (const void *address : list.fixed)
    if (address != nullptr) return true;
  return !list.natives.empty();
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

std::pair<int64_t, int64_t> matrix_shape(const at::Tensor &tensor) {
  if (tensor.dim() < 2) return {1, tensor.numel()};
  const int64_t rows = tensor.size(0);
  return {rows, rows == 0 ? 0 : tensor.numel() / rows};
}

Run::Run(const Config &config, const at::Device &device) : memory_(device) {
  const OpenRequest request(config, host_->table(), open_device_of(device));
  host_->check(octavo_open(request.desc(), &run_), "octavo_open",
               config.path.empty() ? "the configuration" : config.path);
  table_ = octavo_backend_of(run_);
  session_ = octavo_session_of(run_);
  const octavo_session_desc *desc = octavo_session_desc_of(run_);
  if (desc == nullptr) return;
  try {
    check_device(device, desc->device);
  } catch (...) {
    octavo_close(run_);
    throw;
  }
}

Run::~Run() {
  octavo_close(run_);
}

Parameter *Run::add_parameter(const std::string &name, const at::Tensor &tensor,
                              const std::optional<Rows> &piece, uint32_t flags,
                              Placement *placement) {
  const auto [whole_rows, cols] = matrix_shape(tensor);
  const int64_t rows = piece.has_value() ? piece->count : whole_rows;
  auto desc = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
  desc.name = view(name);
  desc.rows = rows;
  desc.cols = cols;
  desc.dtype = dtype_of(tensor.scalar_type());
  desc.gradient_dtype = desc.dtype;
  desc.flags = flags;
  auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  uint32_t id = OCTAVO_NONE;
  host_->check(octavo_add_parameter(run_, &desc, &verdict, &id), "octavo_add_parameter", name);
  placement->accepted = verdict.decision != OCTAVO_DECLINE;
  placement->reason = reason_of(verdict);
  if (!placement->accepted) return nullptr;
  Parameter &p = parameters_.emplace_back();
  p.name = name;
  p.tensor = tensor;
  p.rows = rows;
  p.cols = cols;
  p.whole_rows = whole_rows;
  p.is_piece = piece.has_value();
  if (p.is_piece) p.first_row = piece->first;
  p.id = id;
  p.flags = flags;
  return &p;
}

uint32_t Run::add_linear(const std::string &name, const Parameter &weight, Placement *placement) {
  auto desc = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
  desc.name = view(name);
  desc.weight = weight.id;
  auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  uint32_t id = OCTAVO_NONE;
  host_->check(octavo_add_linear(run_, &desc, &verdict, &id), "octavo_add_linear", name);
  placement->accepted = verdict.decision != OCTAVO_DECLINE;
  placement->reason = reason_of(verdict);
  if (!placement->accepted) return OCTAVO_NONE;
  linear_names_.push_back(name);  // ids count from 0 in order of success
  return id;
}

void Run::seal() {
  host_->check(octavo_seal(run_), "octavo_seal", backend_id());
  if (table_ == nullptr) return;
  memory_.extend(run_);
  for (Parameter &p : parameters_) {
    auto list = [&](uint32_t verb) {
      return memory_.list(run_, verb, OCTAVO_OWNER_PARAMETER, p.id);
    };
    p.quantize = list(OCTAVO_VERB_QUANTIZE_WEIGHT);
    p.optimizer = list(OCTAVO_VERB_OPTIMIZER_STEP);
    p.reduce = list(OCTAVO_VERB_REDUCE);
    p.has_cache = touches_anything(p.quantize);
    auto kept = [&](uint32_t role) {
      const octavo_slot *slot = slot_of(p, role);
      return slot != nullptr && !is_native(*slot);
    };
    p.keeps_weight = kept(OCTAVO_ROLE_WEIGHT);
    p.keeps_gradient = kept(OCTAVO_ROLE_GRADIENT);
    if ((p.keeps_weight || p.keeps_gradient) && optimizer() == nullptr)
      throw Error(OCTAVO_UNSUPPORTED,
                  "parameter \"" + p.name +
                      "\": expected a backend that steps the weights and gradients it keeps, found "
                      "none of octavo.optimizer/1 in \"" +
                      backend_id() + "\"; choose another backend");
  }
  end_step_ = memory_.list(run_, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  for (uint32_t id = 0; id < octavo_slot_count(run_); ++id)
    if (octavo_get_slot(run_, id)->role == OCTAVO_ROLE_NONFINITE) nonfinite_ = memory_.tensor(id);
}

SlotList Run::linear_list(uint32_t linear, uint32_t verb, SlotMemory::Record record) const {
  return memory_.list(run_, verb, OCTAVO_OWNER_LINEAR, linear, record);
}

const octavo_slot *Run::slot_of(const Parameter &p, uint32_t role) const {
  const uint32_t count = octavo_use_count(run_, OCTAVO_OWNER_PARAMETER, p.id);
  for (uint32_t i = 0; i < count; ++i) {
    const octavo_slot *slot =
        octavo_get_slot(run_, octavo_get_use(run_, OCTAVO_OWNER_PARAMETER, p.id, i)->slot);
    if (slot->role == role && slot->owner_kind == OCTAVO_OWNER_PARAMETER && slot->owner == p.id)
      return slot;
  }
  return nullptr;
}

std::string Run::report(const std::string &format) const {
  std::string all;
  host_->check(octavo_report(run_, view(format), append_line, &all), "octavo_report", format);
  return all;
}

std::string Run::option(const std::string &name) const {
  const octavo_session_desc *desc = octavo_session_desc_of(run_);
  for (uint64_t i = 0; desc != nullptr && i < desc->option_count; ++i)
    if (text(desc->options[i].name) == name) return to_text(desc->options[i].value);
  return {};
}

std::vector<std::string> Run::options() const {
  std::vector<std::string> all;
  const octavo_session_desc *desc = octavo_session_desc_of(run_);
  for (uint64_t i = 0; desc != nullptr && i < desc->option_count; ++i)
    all.push_back(text(desc->options[i].name) + "=" + to_text(desc->options[i].value));
  return all;
}

std::string Run::backend_id() const {
  return text(octavo_backend_id_of(run_));
}

std::string Run::precision() const {
  return text(octavo_precision_of(run_));
}

std::string explain(const Config &config, const std::string &format) {
  Host host;
  const OpenRequest request(config, host.table(), {OCTAVO_DEVICE_AUTO, 0});
  std::string all;
  host.check(octavo_explain(request.desc(), view(format), append_line, &all), "octavo_explain",
             config.path.empty() ? "the configuration" : config.path);
  return all;
}

}  // namespace octavo::torch
