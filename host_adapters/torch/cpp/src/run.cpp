// What a Config says, where a model is, its slots, and the run over all of them.
#include "run.h"

#include <ATen/DLConvertor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <optional>
#include <variant>

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"
#include "host_adapters/torch/core/optimizer.h"
#include "octavo/torch/error.h"
#include "site_registry.h"

namespace octavo::torch {

Settings settings_of(const Config &config, const octavo_device &device) {
  Settings settings;
  settings.path(config.path).device(device);
  if (!config.text.empty()) settings.text(config.text);
  for (const auto &[key, value] : config.overrides)
    std::visit([&, &name = key](const auto &v) { settings.set(name, v); }, value);
  for (const std::string &directory : config.plugin_dirs) settings.plugin_dir(directory);
  return settings;
}

std::string name_of(const Config &config) {
  return config.path.empty() ? "the configuration" : config.path;
}

void check(octavo_status status, const std::string &call, const std::string &object) {
  if (status == OCTAVO_OK) return;
  core::raise(status, call + " of " + object + " answered " + status_name(status));
}

void check_engine(const std::string &engine, const std::string &origin) {
  if (engine == "threads") return;
  throw Error(OCTAVO_INVALID,
              origin +
                  ": distributed.engine: expected \"threads\" in a program on LibTorch, whose "
                  "ranks are processes over torch's own backends, found \"" +
                  engine + "\"; leave the key out, and start the ranks with torchrun");
}

std::chrono::seconds timeout_of(const Config &config) {
  const Configuration found = configuration(settings_of(config, {OCTAVO_DEVICE_AUTO, 0}));
  if (found.status != OCTAVO_OK) return std::chrono::seconds(600);  // octavo_open says why
  const ConfigValue &engine = found.values.at("distributed.engine");
  check_engine(engine.text, engine.origin);
  return std::chrono::seconds(std::stoll(found.values.at("distributed.timeout_s").text));
}

std::string explain(const Config &config, const std::string &format) {
  return settings_of(config, {OCTAVO_DEVICE_AUTO, 0})
      .with_desc(core::host(), [&](const octavo_open_desc &desc) {
        return lines_of("octavo_explain", name_of(config), [&](octavo_line line, void *ctx) {
          return octavo_explain(&desc, borrow(format), line, ctx);
        });
      });
}

namespace {

std::string name_of(const octavo_device &device) {
  switch (device.type) {
    case OCTAVO_DEVICE_CPU: return "cpu";
    case OCTAVO_DEVICE_CUDA: return "cuda:" + std::to_string(device.index);
    default:
      return "device " + std::to_string(device.index) + " of type " + std::to_string(device.type);
  }
}

int32_t index_of(const at::Device &device) {
  return device.is_cpu() || !device.has_index() ? 0 : device.index();
}

}  // namespace

at::Device device_of(const ::torch::nn::Module &module) {
  std::optional<at::Device> device;
  for (const auto &item : module.named_parameters()) {
    const at::Device found = item.value().device();
    if (!can_intercept(found.type()))
      throw Error(OCTAVO_UNSUPPORTED,
                  "parameter \"" + item.key() +
                      "\": expected a tensor on cpu, cuda, xpu or a device of PrivateUse1, found " +
                      found.str() + "; call module->to(torch::kCPU) before");
    if (device.has_value() && *device != found)
      throw Error(OCTAVO_UNSUPPORTED,
                  "parameter \"" + item.key() + "\": expected a tensor on " + device->str() +
                      ", as the ones before it, found " + found.str() +
                      "; bring the whole model there with module->to(...) before");
    device = found;
  }
  return device.value_or(at::Device(at::kCPU));
}

// As octavo/torch/device.py. device.kind is checked for models on the CPU, too: "cuda" with such a
// model is a mistake to report.
Settings settings_on(const at::Device &device, const Config &config) {
  const octavo_device any = {OCTAVO_DEVICE_AUTO, index_of(device)};
  if (device.is_cpu()) return settings_of(config, any);
  if (device.is_cuda()) return settings_of(config, {OCTAVO_DEVICE_CUDA, any.index});
  const auto values = configuration(settings_of(config, {OCTAVO_DEVICE_AUTO, 0})).values;
  const auto said = [&values](const char *key) {
    const auto found = values.find(key);
    return found == values.end() ? "auto" : found->second.text;
  };
  const std::string kind = said("device.kind"), name = c10::DeviceTypeName(device.type(), true);
  if (kind != "auto" && kind != name) return settings_of(config, any);
  const auto type = static_cast<uint32_t>(at::torchDeviceToDLDevice(device).device_type);
  Settings settings = settings_of(config, {type, any.index});
  if (kind == "auto" && said("device.kernels") == "auto") settings.set("device.kind", name);
  return settings;
}

void check_device(const at::Device &device, const octavo_device &opened) {
  const bool on_cpu = opened.type == OCTAVO_DEVICE_CPU;
  if (device.is_cpu() == on_cpu && (on_cpu || opened.index == index_of(device))) return;
  throw Error(
      OCTAVO_UNSUPPORTED,
      "the model: expected its tensors on " + name_of(opened) +
          ", where the configuration runs, found them on " + device.str() +
          (on_cpu ? "; set device.kind to that device, or call module->to(torch::kCPU) "
                    "before"
                  : "; call module->to(...) for that device before, or set device.kind = \"cpu\""));
}

uint32_t dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return OCTAVO_F32;
    case at::kBFloat16: return OCTAVO_BF16;
    case at::kHalf: return OCTAVO_F16;
    default: return 0;
  }
}

at::ScalarType scalar_type_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return at::kFloat;
    case OCTAVO_BF16: return at::kBFloat16;
    case OCTAVO_F16: return at::kHalf;
    case OCTAVO_I32: return at::kInt;
    case OCTAVO_U8: return at::kByte;
    case OCTAVO_E4M3FN: return at::kFloat8_e4m3fn;
    case OCTAVO_E5M2: return at::kFloat8_e5m2;
    case OCTAVO_E8M0FNU: return at::kFloat8_e8m0fnu;
    default:
      throw Error(OCTAVO_UNSUPPORTED, "a slot: expected a dtype that torch has, found dtype " +
                                          std::to_string(dtype) +
                                          "; choose another backend, or a later octavo::torch");
  }
}

void SlotMemory::extend(const octavo_run *run) {
  for (uint32_t id = static_cast<uint32_t>(tensors_.size()); id < octavo_run_slot_count(run);
       ++id) {
    const octavo_slot &slot = *octavo_run_slot(run, id);
    if (is_native(slot)) {
      tensors_.emplace_back();
      continue;
    }
    const at::ScalarType type = scalar_type_of(slot.dtype);
    const uint64_t bytes =
        static_cast<uint64_t>(slot.rows * slot.cols) * (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
    tensors_.push_back(at::empty({slot.rows, slot.cols}, at::TensorOptions(type).device(device_)));
    bytes_ += bytes;
    reset(slot);
  }
}

void SlotMemory::reset(const octavo_slot &slot) {
  at::Tensor &tensor = tensors_.at(slot.id);
  if (!tensor.defined()) return;
  if (OCTAVO_DTYPE_BITS(slot.dtype) == 32) {
    tensor.fill_(slot.initial);
  } else {
    tensor.view(at::kByte).zero_();
  }
}

namespace {

std::string reason_of(const octavo_verdict &v) {
  std::string reason = text(v.text);
  if (v.evidence.size > 0) reason += " (" + text(v.evidence) + ")";
  if (v.decision == OCTAVO_DECLINE && v.remedy.size > 0) reason += "; " + text(v.remedy);
  return reason;
}

// The id of what `add` gave one; OCTAVO_NONE where it was declined.
template <class Add, class Desc>
uint32_t added(Add add, octavo_run *run, const Desc &desc, const char *call,
               Run::Placement *placement) {
  auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  uint32_t id = OCTAVO_NONE;
  check(add(run, &desc, &verdict, &id), call, text(desc.name));
  placement->accepted = verdict.decision != OCTAVO_DECLINE;
  placement->reason = reason_of(verdict);
  return placement->accepted ? id : OCTAVO_NONE;
}

// A function of the host that the core calls: no exception crosses it.
template <class Fn>
int32_t answer(Fn fn) {
  try {
    fn();
    return core::kAnswer + OCTAVO_OK;
  } catch (const Error &e) {
    core::diagnose(e.what());
    return core::kAnswer + e.status();
  } catch (const std::exception &e) {
    core::diagnose(e.what());
    return core::kAnswer + OCTAVO_INTERNAL;
  }
}

}  // namespace

std::pair<int64_t, int64_t> matrix_shape(const at::Tensor &tensor) {
  if (tensor.dim() < 2) return {1, tensor.numel()};
  const int64_t rows = tensor.size(0);
  return {rows, rows == 0 ? 0 : tensor.numel() / rows};
}

Run::Run(const Config &config, const at::Device &device) : memory_(device) {
  octavo_run *run = nullptr;
  check(settings_on(device, config)
            .with_desc(core::host(),
                       [&](const octavo_open_desc &desc) { return octavo_open(&desc, &run); }),
        "octavo_open", name_of(config));
  run_.reset(run);
  const octavo_setting &engine = *octavo_run_setting(run, borrow("distributed.engine"));
  check_engine(text(engine.value), text(engine.origin));
  const octavo_session_desc *desc = octavo_run_session_desc(run);
  if (desc != nullptr) check_device(device, desc->device);
}

Run::~Run() = default;

Parameter *Run::add_parameter(const std::string &name, const at::Tensor &tensor,
                              const std::optional<Rows> &piece, uint32_t flags,
                              Placement *placement) {
  const auto [whole_rows, cols] = matrix_shape(tensor);
  const int64_t rows = piece.has_value() ? piece->count : whole_rows;
  auto desc = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
  desc.name = borrow(name);
  desc.rows = rows;
  desc.cols = cols;
  desc.dtype = dtype_of(tensor.scalar_type());
  desc.gradient_dtype = desc.dtype;
  desc.flags = flags;
  const uint32_t id =
      added(octavo_add_parameter, handle(), desc, "octavo_add_parameter", placement);
  if (id == OCTAVO_NONE) return nullptr;
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
  p.dtype = desc.dtype;
  return &p;
}

uint32_t Run::add_linear(const std::string &name, const Parameter &weight, Placement *placement) {
  auto desc = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
  desc.name = borrow(name);
  desc.weight = weight.id;
  const uint32_t id = added(octavo_add_linear, handle(), desc, "octavo_add_linear", placement);
  if (id == OCTAVO_NONE) return OCTAVO_NONE;
  linear_names_.push_back(name);  // ids count from 0 in order of success
  linear_parameters_.push_back(weight.id);
  return id;
}

void Run::seal() {
  check(octavo_seal(handle()), "octavo_seal", backend_id());
  if (!has_backend()) return;
  memory_.extend(handle());
  std::vector<core::ParameterShape> shapes;
  for (Parameter &p : parameters_) {
    shapes.push_back({borrow(p.name), 0});
    const auto kept = [&](uint32_t role) {
      const octavo_slot *slot = slot_of(p, role);
      return slot != nullptr && !is_native(*slot);
    };
    p.keeps_weight = kept(OCTAVO_ROLE_WEIGHT);
    p.keeps_gradient = kept(OCTAVO_ROLE_GRADIENT);
  }
  std::vector<core::LinearShape> linears;
  for (size_t l = 0; l < linear_names_.size(); ++l) {
    const Parameter &p = parameters_[linear_parameters_[l]];
    linears.push_back({borrow(linear_names_[l]), p.rows, p.cols, p.dtype, p.id});
  }
  const size_t count = parameters_.size();
  flags_.assign(2 * count + core::kSinceCount, 0);
  const std::string device = memory_.device().str();
  core::Registration given = {};
  given.run = handle();
  given.parameters = shapes.data();
  given.linears = linears.data();
  given.flags = {flags_.data(), flags_.data() + count, flags_.data() + 2 * count};
  given.callbacks.host = this;
  given.callbacks.combine = [](void *self) {
    return answer([self] {
      if (const auto &combine = static_cast<Run *>(self)->combine_) combine();
    });
  };
  given.parameter_count = static_cast<uint32_t>(count);
  given.linear_count = static_cast<uint32_t>(linears.size());
  given.device = borrow(device);
  entry_ = core::make_entry(given);
  for (uint32_t id = 0; id < memory_.size(); ++id) {
    const at::Tensor &slot = memory_.tensor(id);
    if (slot.defined()) entry_->hold(id, handle_of(slot));
    if (octavo_run_slot(handle(), id)->role == OCTAVO_ROLE_NONFINITE) nonfinite_ = slot;
  }
}

void Run::boundary() {
  if (entry_ != nullptr && entry_->coupling.has_run()) entry_->coupling.boundary(*entry_);
}

void Run::loaded() {
  if (entry_ != nullptr) entry_->coupling.forget();
}

float Run::met() const {
  return nonfinite_.defined() ? nonfinite_.item<float>() : 0.0F;
}

std::vector<std::pair<at::Tensor, uint32_t>> Run::reduced_slots() const {
  std::vector<std::pair<at::Tensor, uint32_t>> slots;
  for (uint32_t id = 0; id < memory_.size(); ++id) {
    const octavo_slot &slot = *octavo_run_slot(handle(), id);
    if ((slot.flags & OCTAVO_SLOT_REDUCE) != 0 && !is_native(slot))
      slots.emplace_back(memory_.tensor(id), slot.combine);
  }
  return slots;
}

void Run::read_parameter(const Parameter &p, uint32_t role, at::Tensor &plain) const {
  const at::Tensor matrix = plain.view({p.rows, p.cols});
  core::read_parameter(entry(), p.id, role, handle_of(matrix));
}

void Run::write_parameter(const Parameter &p, uint32_t role, const at::Tensor &plain) {
  const at::Tensor matrix = plain.contiguous().view({p.rows, p.cols});
  core::write_parameter(entry(), p.id, role, handle_of(matrix));
}

std::vector<Parameter *> Run::parts_of(const at::Tensor &tensor) {
  std::vector<Parameter *> parts;
  for (Parameter &p : parameters_)
    if (p.tensor.is_same(tensor)) parts.push_back(&p);
  return parts;
}

const octavo_slot *Run::slot_of(const Parameter &p, uint32_t role) const {
  const uint32_t count = octavo_run_use_count(handle(), OCTAVO_OWNER_PARAMETER, p.id);
  for (uint32_t i = 0; i < count; ++i) {
    const octavo_slot *slot =
        octavo_run_slot(handle(), octavo_run_use(handle(), OCTAVO_OWNER_PARAMETER, p.id, i)->slot);
    if (slot->role == role && slot->owner_kind == OCTAVO_OWNER_PARAMETER && slot->owner == p.id)
      return slot;
  }
  return nullptr;
}

std::string Run::report(const std::string &format) const {
  return lines_of("octavo_report", format, [&](octavo_line line, void *ctx) {
    return octavo_report(handle(), borrow(format), line, ctx);
  });
}

std::string Run::option(const std::string &name, uint32_t linear) const {
  for (uint32_t i = 0; i < octavo_run_option_count(handle(), linear); ++i)
    if (const octavo_setting &o = *octavo_run_option(handle(), linear, i); text(o.name) == name)
      return text(o.value);
  return {};
}

std::string Run::algorithm() const {
  const auto *optimizer = static_cast<const octavo_optimizer *>(
      octavo_run_interface(handle(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  if (optimizer == nullptr) return {};
  auto desc = make<octavo_optimizer_desc>(OCTAVO_KIND_OPTIMIZER_DESC);
  core::check(optimizer->describe(octavo_run_session(handle()), &desc), "describe");
  return text(desc.algorithm);
}

std::vector<std::string> Run::options() const {
  std::vector<std::string> all;
  const auto add = [&](uint32_t linear, const std::string &prefix) {
    for (uint32_t i = 0; i < octavo_run_option_count(handle(), linear); ++i) {
      const octavo_setting &o = *octavo_run_option(handle(), linear, i);
      all.push_back(prefix + text(o.name) + "=" + text(o.value));
    }
  };
  add(OCTAVO_NONE, "");
  for (uint32_t id = 0; id < linear_names_.size(); ++id) add(id, linear_names_[id] + ".");
  return all;
}

std::string Run::backend_id() const {
  return text(octavo_run_backend_id(handle()));
}

std::string Run::precision() const {
  return text(octavo_run_precision(handle()));
}

}  // namespace octavo::torch
