// The memory of a host: slots, tensors, workspaces, pointer lists.
//
// Slots get their initial value and nothing else; native slots are the host's own tensors. Nothing
// here calls a hot verb.
#include <cstring>

#include "host.h"
#include "octavo/octavo.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kWeightBound = 0.5;
constexpr double kXBound = 2;
constexpr double kDyBound = 0.25;
constexpr double kBiasBound = 1;

}  // namespace

uint64_t extent_bytes(const octavo_extent &extent, int64_t rows) {
  return octavo_extent_bytes(&extent, static_cast<uint64_t>(rows));
}

Host::Host(Session &session, uint64_t seed, uint64_t shift)
    : session_(session), seed_(seed), arena_(session.context().target.desc.device, shift) {
  hyper_ = reinterpret_cast<float *>(
      arena_.allocate(OCTAVO_HYPER_COUNT * sizeof(float), Use::kTensor, "hyperparameters"));
  hyper_[OCTAVO_HYPER_LR] = 0.0625F;
  hyper_[OCTAVO_HYPER_BETA1] = 0.875F;
  hyper_[OCTAVO_HYPER_BETA2] = 0.9375F;
  hyper_[OCTAVO_HYPER_EPS] = 0x1p-20F;
  hyper_[OCTAVO_HYPER_WEIGHT_DECAY] = 0.03125F;
  hyper_[OCTAVO_HYPER_GRAD_SCALE] = 1;
  extend();
}

void Host::extend() {
  const auto old_parameters = static_cast<uint32_t>(weights_.size());
  const auto parameters = static_cast<uint32_t>(session_.parameters().size());
  for (uint32_t id = old_parameters; id < parameters; ++id) allocate_parameter(id);
  for (auto id = static_cast<uint32_t>(addresses_.size()); id < session_.slots().size(); ++id) {
    allocate_slot(id);
  }
  weight_workspaces_.resize(parameters);
  weight_workspace_bytes_.resize(parameters);
  for (uint32_t id = 0; id < parameters; ++id) {
    uint64_t bytes = 0;
    for (const uint32_t linear : session_.parameters()[id].linears) {
      bytes = std::max(bytes, session_.linears()[linear].plan.weight_workspace);
    }
    if (weight_workspaces_[id] != nullptr && bytes <= weight_workspace_bytes_[id]) continue;
    weight_workspace_bytes_[id] = bytes;
    weight_workspaces_[id] = arena_.allocate(
        bytes, Use::kWorkspace,
        text("workspace of quantize_weight '", weights_[id].rows(), "x", weights_[id].cols(), "'"));
  }
  if (session_.optimizer() != nullptr) {
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < parameters; ++id) ids.push_back(id);
    uint64_t bytes = 0;
    const octavo_status status =
        session_.optimizer()->workspace_bytes(session_.handle(), ids.data(), ids.size(), &bytes);
    expect(status == OCTAVO_OK, "octavo.optimizer/2 workspace_bytes answered ",
           status_name(status));
    optimizer_workspace_ = arena_.allocate(bytes, Use::kWorkspace, "workspace of the optimizer");
  }
  for (uint32_t id = old_parameters; id < parameters; ++id) write_weight(id);
}

void Host::allocate_parameter(uint32_t id) {
  const ParameterSpec &spec = session_.parameters()[id].spec;
  weights_.push_back(make_matrix(arena_, text("weight '", spec.name, "'"), spec.rows, spec.cols,
                                 spec.dtype, 0, OCTAVO_ROLE_WEIGHT));
  gradients_.push_back(make_matrix(arena_, text("gradient '", spec.name, "'"), spec.rows, spec.cols,
                                   spec.gradient_dtype, 0, OCTAVO_ROLE_GRADIENT));
  fill(weights_.back(), mix(seed_, id), kWeightBound);
}

uint64_t Host::bytes(uint32_t slot) const {
  const octavo_slot &desc = session_.slots()[slot].desc;
  return static_cast<uint64_t>(desc.rows * desc.cols) * element_bytes(desc.dtype);
}

std::string Host::slot_name(uint32_t slot) const {
  const Slot &s = session_.slots()[slot];
  if (s.desc.owner_kind == OCTAVO_OWNER_PARAMETER) {
    return text("slot '", s.name, "' of parameter '", session_.parameters()[s.desc.owner].spec.name,
                "'");
  }
  if (s.desc.owner_kind == OCTAVO_OWNER_LINEAR) {
    return text("slot '", s.name, "' of linear '", session_.linears()[s.desc.owner].name, "'");
  }
  return text("session slot '", s.name, "'");
}

// A scale_inv counts as part of the tensor that it lies beside.
uint32_t Host::region_role(uint32_t id) const {
  for (const Slot &s : session_.slots())
    if (s.desc.scale_slot == id) return s.desc.role;
  return session_.slots()[id].desc.role;
}

void Host::allocate_slot(uint32_t id) {
  const octavo_slot &desc = session_.slots()[id].desc;
  const bool native = (desc.flags & OCTAVO_SLOT_NATIVE) != 0;
  if (native && desc.owner_kind == OCTAVO_OWNER_PARAMETER && desc.role == OCTAVO_ROLE_WEIGHT) {
    addresses_.push_back(static_cast<uint8_t *>(weights_[desc.owner].tensor.data));
    return;
  }
  if (native && desc.owner_kind == OCTAVO_OWNER_PARAMETER && desc.role == OCTAVO_ROLE_GRADIENT) {
    addresses_.push_back(static_cast<uint8_t *>(gradients_[desc.owner].tensor.data));
    return;
  }
  uint8_t *memory =
      arena_.allocate(bytes(id), desc.combine == OCTAVO_COMBINE_SUM ? Use::kSum : Use::kSlot,
                      slot_name(id), region_role(id));
  addresses_.push_back(memory);
  reset_slot(id);
}

void Host::move_slots() {
  elsewhere_.resize(addresses_.size());
  for (uint32_t id = 0; id < addresses_.size(); ++id) {
    if ((session_.slots()[id].desc.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
    uint8_t *&other = elsewhere_[id];
    if (other == nullptr)
      other = arena_.allocate(bytes(id), Use::kSlot, slot_name(id) + ", moved", region_role(id));
    std::memcpy(other, addresses_[id], bytes(id));
    std::memset(addresses_[id], 0xA5, bytes(id));
    std::swap(other, addresses_[id]);
  }
}

void Host::reset_slot(uint32_t id) {
  const octavo_slot &desc = session_.slots()[id].desc;
  uint8_t *memory = addresses_[id];
  std::memset(memory, 0, bytes(id));
  const auto count = static_cast<uint64_t>(desc.rows * desc.cols);
  for (uint64_t i = 0; i < count; ++i) {
    if (desc.dtype == OCTAVO_F32) {
      encode(OCTAVO_F32, desc.initial, memory + i * sizeof(float));
    } else if (desc.dtype == OCTAVO_I32) {
      const auto value = static_cast<int32_t>(desc.initial);
      std::memcpy(memory + i * sizeof value, &value, sizeof value);
    }
  }
}

Batch &Host::add_batch(const BatchSpec &given) {
  const Linear &linear = session_.linears()[given.linear];
  const Matrix &w = weights_[linear.weight];
  BatchSpec spec = given;
  const auto or_else = [](uint32_t dtype, uint32_t usual) { return dtype != 0 ? dtype : usual; };
  const auto taken = [&](uint32_t dtype) { return session_.taken(spec.linear, dtype); };
  spec.x_dtype = taken(spec.x_dtype);
  spec.y_dtype = taken(spec.y_dtype);
  spec.dy_dtype = taken(or_else(spec.dy_dtype, spec.y_dtype));
  spec.dx_dtype = taken(or_else(spec.dx_dtype, spec.x_dtype));
  Batch b{};
  b.spec = spec;
  b.name = text("'", linear.name, "' M=", spec.rows, " ", dtype_name(spec.x_dtype));
  const auto matrix = [&](const char *what, int64_t rows, int64_t cols, uint32_t dtype,
                          int64_t gap) {
    const std::string name = text(what, " of ", b.name);
    if (gap == 0 || rows == 0) return make_matrix(arena_, name, rows, cols, dtype, gap);
    // From the second element of one row more: at a multiple of an element's size alone.
    Matrix m = make_matrix(arena_, name, rows + 1, cols, dtype, gap);
    m.tensor.rows = rows;
    m.tensor.data = static_cast<uint8_t *>(m.tensor.data) + element_bytes(dtype);
    return m;
  };
  b.x = matrix("x", spec.rows, w.cols(), spec.x_dtype, spec.gap);
  b.y = matrix("y", spec.rows, w.rows(), spec.y_dtype, spec.gap);
  b.dy = matrix("dy", spec.rows, w.rows(), spec.dy_dtype, spec.gap);
  b.dx = matrix("dx", spec.rows, w.cols(), spec.dx_dtype, spec.gap);
  b.bias = matrix("bias", 1, w.rows(), or_else(spec.bias_dtype, spec.y_dtype), 0);
  b.db = matrix("db", 1, w.rows(), or_else(spec.db_dtype, OCTAVO_F32), 0);
  fill(b.x, mix(spec.seed, 1), kXBound);
  fill(b.dy, mix(spec.seed, 2), kDyBound);
  fill(b.bias, mix(spec.seed, 3), kBiasBound);
  if (linear.plan.gradient == OCTAVO_GRADIENT_TENSOR) b.dw = gradients_[linear.weight];
  const auto scratch = [&](const char *what, const octavo_extent &extent, Use use) {
    return arena_.allocate(extent_bytes(extent, spec.rows) + spec.slack, use,
                           text(what, " of ", b.name));
  };
  b.saved = scratch("saved", linear.plan.saved, Use::kSaved);
  b.forward_workspace =
      scratch("forward workspace", linear.plan.forward_workspace, Use::kWorkspace);
  b.backward_workspace =
      scratch("backward workspace", linear.plan.backward_workspace, Use::kWorkspace);
  batches_.push_back(std::move(b));
  return batches_.back();
}

void Host::add_standard_batches() {
  for (uint32_t id = 0; id < session_.linears().size(); ++id) {
    const uint32_t narrow = id % 2 == 0 ? OCTAVO_BF16 : OCTAVO_F16;
    add_batch({id, 7 + id, mix(seed_, 100 + id), OCTAVO_F32, OCTAVO_F32, 3, 0});
    add_batch({id, 16, mix(seed_, 200 + id), narrow, narrow, 0, 0});
  }
}

Standard::Standard(const Context &context)
    : session(context),
      host((session.add(standard_model()), session.seal(), session), context.seed) {
  host.add_standard_batches();
}

std::vector<Entry> Host::entries(uint32_t verb, uint32_t owner_kind, uint32_t owner) const {
  std::vector<Entry> entries;
  for (const octavo_slot_use &use : session_.uses(owner_kind, owner)) {
    const octavo_slot &desc = session_.slots()[use.slot].desc;
    Entry entry{use.slot, desc.access[verb], addresses_[use.slot], bytes(use.slot)};
    if (use.count != 0) {  // columns of a pool
      const uint64_t width = element_bytes(desc.dtype);
      entry.address += use.first * width;
      entry.bytes = use.count * width;
    }
    entries.push_back(entry);
  }
  return entries;
}

std::vector<void *> Host::list(uint32_t verb, uint32_t owner_kind, uint32_t owner,
                               const Call &call) const {
  std::vector<void *> pointers;
  for (const Entry &entry : entries(verb, owner_kind, owner)) {
    uint8_t *pointer = entry.address;
    if (entry.access == OCTAVO_ACCESS_NONE) pointer = nullptr;
    if (entry.access == OCTAVO_ACCESS_ACCUMULATE) {
      if (!call.record) pointer = nullptr;
      if (call.own != nullptr) {
        pointer = call.own->at(entry.slot) + (entry.address - addresses_[entry.slot]);
      }
    }
    pointers.push_back(pointer);
  }
  if (pointers.empty()) pointers.push_back(nullptr);  // a list is never a null pointer itself
  return pointers;
}

Accumulators Host::make_accumulators(const std::string &name) {
  Accumulators own;
  for (uint32_t id = 0; id < session_.slots().size(); ++id) {
    for (const uint8_t access : session_.slots()[id].desc.access) {
      if (access != OCTAVO_ACCESS_ACCUMULATE || own.count(id) != 0) continue;
      own[id] = arena_.allocate(bytes(id), Use::kSlot, text(slot_name(id), " of ", name));
    }
  }
  return own;
}

float *Host::nonfinite() const {
  const auto slot = session_.find_slot(OCTAVO_ROLE_NONFINITE);
  return slot ? reinterpret_cast<float *>(addresses_[*slot]) : nullptr;
}

}  // namespace octavo::conformance
