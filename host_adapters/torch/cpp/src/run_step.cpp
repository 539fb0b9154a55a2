// The verbs of a step, and plain values in and out of slots.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "device.h"
#include "run.h"
#include "text.h"

namespace octavo::torch {
namespace {

// Moves a weight that torch allocated to the alignment that the contract promises to backends.
// The tensor, its identity and its version stay.
void align(at::Tensor &tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0) return;
  const at::NoGradGuard no_grad;
  const at::Tensor plain = tensor.detach();
  at::Tensor moved =
      aligned_bytes(plain.nbytes(), plain.device()).view(plain.scalar_type()).view(plain.sizes());
  moved.copy_(plain);
  tensor.set_data(moved);
}

}  // namespace

void *const *Run::fill(const SlotList &list, Addresses *out) const {
  if (list.natives.empty()) return list.fixed.data();
  out->assign(list.fixed.begin(), list.fixed.end());
  for (const SlotList::Native &native : list.natives) {
    const Parameter &p = parameters_[native.parameter];
    const at::Tensor &tensor = native.role == OCTAVO_ROLE_WEIGHT ? p.tensor : p.tensor.grad();
    if (!tensor.defined()) continue;
    if (!tensor.is_contiguous() || dtype_of(tensor.scalar_type()) == 0 ||
        tensor.numel() != p.whole_rows * p.cols)
      throw Error(OCTAVO_INVALID, "parameter \"" + p.name +
                                      "\": expected the contiguous f32, bf16 or f16 tensor that it "
                                      "was when the model was prepared, found another dtype, shape "
                                      "or layout; convert the model before prepare()");
    (*out)[native.position] = static_cast<char *>(const_cast<void *>(tensor.const_data_ptr())) +
                              static_cast<uint64_t>(p.first_row * p.cols) * tensor.element_size();
  }
  return out->data();
}

bool Run::is_stale(const Parameter &p) const {
  if (!p.has_cache) return false;
  if (!p.cached.load(std::memory_order_acquire)) return true;
  if (p.keeps_weight) return false;  // only this library writes it
  const c10::TensorImpl *impl = p.tensor.unsafeGetTensorImpl();
  return impl->version_counter().current_version() != p.version.load(std::memory_order_relaxed) ||
         impl->unsafe_storage().unsafeGetStorageImpl() != p.storage.load(std::memory_order_relaxed);
}

void Run::quantize(Parameter &p, bool always) {
  if (!always && !is_stale(p)) return;
  if (!p.has_cache) return;
  const std::lock_guard<std::mutex> lock(p.mutex);
  if (!always && !is_stale(p)) return;  // another thread was faster
  if (!p.keeps_weight) align(p.tensor);
  at::Tensor workspace = aligned_bytes(p.cache_workspace, device());
  Addresses addresses;
  auto call = make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
  call.stream = current_stream(device());
  call.parameter = p.id;
  call.slots = fill(p.quantize, &addresses);
  call.workspace = workspace.mutable_data_ptr();
  host_->check(table_->quantize_weight(session_, &call), "quantize_weight", p.name);
  if (!p.keeps_weight) {
    c10::TensorImpl *impl = p.tensor.unsafeGetTensorImpl();
    c10::StorageImpl *storage = impl->unsafe_storage().unsafeGetStorageImpl();
    p.version = impl->version_counter().current_version();
    p.storage = storage;
    p.storage_reference = c10::weak_intrusive_ptr<c10::StorageImpl>(
        c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(storage));
  }
  p.cached.store(true, std::memory_order_release);
}

void Run::settle(Parameter &p, bool records) {
  const bool changed = p.cached.load(std::memory_order_acquire);
  if (records && changed && backward_since_.exchange(false)) {
    end_step();
    for (Parameter &each : parameters_) each.cached = false;  // the scales are others now
  }
  quantize(p);
}

void Run::quantize_all() {
  for (Parameter &p : parameters_) quantize(p, true);
}

void Run::end_step() {
  if (table_ == nullptr) return;
  Addresses addresses;
  auto call = make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  call.stream = current_stream(device());
  call.slots = fill(end_step_, &addresses);
  host_->check(table_->end_step(session_, &call), "end_step", backend_id());
  backward_since_ = false;
}

bool Run::saw_nonfinite() const {
  return nonfinite_.defined() && nonfinite_.item<float>() != 0.0f;
}

std::vector<std::pair<at::Tensor, uint32_t>> Run::reduced_slots() const {
  std::vector<std::pair<at::Tensor, uint32_t>> slots;
  for (uint32_t id = 0; id < memory_.size(); ++id) {
    const octavo_slot &slot = *octavo_get_slot(run_, id);
    if ((slot.flags & OCTAVO_SLOT_REDUCE) != 0 && !is_native(slot))
      slots.emplace_back(memory_.tensor(id), slot.combine);
  }
  return slots;
}

void Run::drop_gradients() {
  for (Parameter &p : parameters_) p.has_gradient = false;
}

void Run::move(const Parameter &p, uint32_t role, at::Tensor &plain, bool write) {
  uint64_t bytes = 0;
  host_->check(optimizer()->workspace_bytes(session_, &p.id, 1, &bytes), "workspace_bytes", p.name);
  at::Tensor workspace = aligned_bytes(bytes, device());
  octavo_tensor tensor = {const_cast<void *>(plain.const_data_ptr()),
                          p.rows,
                          p.cols,
                          p.cols,
                          dtype_of(plain.scalar_type()),
                          0};
  Addresses addresses;
  auto call = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
  call.stream = current_stream(device());
  call.parameter = p.id;
  call.role = role;
  call.plain = &tensor;
  call.slots = fill(p.optimizer, &addresses);
  call.workspace = workspace.mutable_data_ptr();
  host_->check(write ? optimizer()->write_parameter(session_, &call)
                     : optimizer()->read_parameter(session_, &call),
               write ? "write_parameter" : "read_parameter", p.name);
}

void Run::read_parameter(const Parameter &p, uint32_t role, at::Tensor &plain) {
  move(p, role, plain, false);
}

void Run::write_parameter(const Parameter &p, uint32_t role, const at::Tensor &plain) {
  at::Tensor contiguous = plain.contiguous();
  move(p, role, contiguous, true);
}

}  // namespace octavo::torch
