// A storage that refuses access is how torch itself represents tensors without memory.
#include "placeholder.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>

#include <sstream>

#include "octavo/torch/error.h"

namespace octavo::torch {
namespace {

const c10::StorageImpl *storage_of(const at::Tensor &t) {
  return t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

at::Tensor placeholder(const Parameter &p) {
  const at::Tensor &t = p.tensor;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), t.nbytes(), at::DataPtr(nullptr, t.device()), nullptr,
      /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "parameter \"" + p.name +
      "\": expected no access to its values, which the backend keeps in slots, found one; read and "
      "write them within Prepared::with_plain_weights, and step with Prepared::step");
  at::Tensor empty = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(c10::computeDispatchKey(t.scalar_type(), at::kStrided, t.device())),
      t.dtype());
  empty.unsafeGetTensorImpl()->set_sizes_contiguous(t.sizes());
  return empty;
}

void keep_placeholder(Parameter &p) {
  p.placeholder_held = p.tensor.storage();
  p.placeholder = storage_of(p.tensor);
}

void check_replacement(const Parameter &p) {
  const at::Tensor &t = p.tensor;
  const auto [rows, cols] = matrix_shape(t);
  if (rows == p.whole_rows && cols == p.cols && dtype_of(t.scalar_type()) == p.dtype) return;
  std::ostringstream text;
  text << "parameter \"" << p.name << "\": expected the shape and dtype of prepare(), found "
       << t.sizes() << " of " << t.scalar_type() << "; close the Prepared, and prepare again";
  throw Error(OCTAVO_INVALID, text.str());
}

}  // namespace

void put_placeholders(Run &run) {
  const c10::InferenceMode off(false);  // set_data takes the keys of the new tensor
  for (Parameter &p : run.parameters())
    if (p.keeps_weight) p.tensor.set_data(placeholder(p));
  for (Parameter &p : run.parameters())  // pieces of one tensor have the last one's
    if (p.keeps_weight) keep_placeholder(p);
  run.is_plain = false;
}

void take_replaced(Run &run, Parameter &p) {
  if (!p.keeps_weight || run.is_plain || storage_of(p.tensor) == p.placeholder) return;
  const std::lock_guard<std::mutex> lock(run.mutex());
  if (storage_of(p.tensor) == p.placeholder) return;  // another thread was faster
  const c10::InferenceMode off(false);
  const at::NoGradGuard no_grad;
  check_replacement(p);
  const std::vector<Parameter *> all = run.parts_of(p.tensor);
  for (Parameter *each : all)
    run.write_parameter(*each, OCTAVO_ROLE_WEIGHT, each->part_of(p.tensor.detach()));
  p.tensor.unsafeGetTensorImpl()->bump_version();
  p.tensor.set_data(placeholder(p));
  for (Parameter *each : all) keep_placeholder(*each);
}

}  // namespace octavo::torch
