// Weights: a storage that refuses access is how torch itself represents tensors without memory.
// Gradients: a tensor of a dispatch key of its own, with kernels for what has a meaning in slots,
// and a fallback that gives every other operator plain values.
#include "in_slots.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <memory>
#include <set>
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

namespace {

// Of the keys that torch leaves to extensions, the last one.
constexpr c10::DispatchKey kKey = c10::DispatchKey::PrivateUse3;

class SlotGradient : public c10::TensorImpl {
 public:
  // parameters: all of the tensor; several when it stacks weights.
  SlotGradient(std::weak_ptr<Run> run, std::vector<Parameter *> parameters, const at::Tensor &of)
      : TensorImpl(c10::DispatchKeySet(kKey), of.dtype(), of.device()),
        run_(std::move(run)),
        parameters_(std::move(parameters)) {
    remove_autograd_key();
    set_storage_access_should_throw();
    set_sizes_contiguous(of.sizes());
  }

  // Throws Error when the run was closed, with which the parameters went.
  const std::vector<Parameter *> &parameters() const {
    run();
    return parameters_;
  }
  const Parameter &first() const { return *parameters().front(); }
  bool is_of(const Run &run, const Parameter &p) const {
    return run_.lock().get() == &run && parameters_.front()->tensor.is_same(p.tensor);
  }
  std::shared_ptr<Run> run() const {
    std::shared_ptr<Run> run = run_.lock();
    if (run == nullptr)
      throw Error(OCTAVO_WRONG_STATE,
                  "a gradient in slots: expected a prepared model, found one that was closed; call "
                  "backward again");
    return run;
  }

  // Clears the slots of parts that no backward reached.
  void complete() const {
    for (Parameter *p : parameters()) {
      if (p->gradient_begun) continue;
      run()->memory().reset(*run()->slot_of(*p, OCTAVO_ROLE_GRADIENT));
      p->gradient_begun = true;
    }
  }
  at::Tensor plain() const {
    const at::NoGradGuard no_grad;
    complete();
    at::Tensor whole = at::empty(sizes(), at::TensorOptions(dtype()).device(device()));
    for (const Parameter *p : parameters()) {
      at::Tensor part = p->part_of(whole);
      run()->read_parameter(*p, OCTAVO_ROLE_GRADIENT, part);
      if (p->gradient_factor.defined()) part.mul_(p->gradient_factor);
    }
    return whole;
  }
  void scale(const at::Tensor &factor) const {
    const at::NoGradGuard no_grad;
    complete();
    const at::Tensor f = factor.reshape({}).to(at::TensorOptions(at::kFloat).device(device()));
    for (Parameter *p : parameters())
      p->gradient_factor = p->gradient_factor.defined() ? p->gradient_factor * f : f.clone();
  }
  // Replaces the gradient by plain values, which are rounded to the backend's format.
  void store(const at::Tensor &whole) const {
    for (Parameter *p : parameters()) {
      run()->write_parameter(*p, OCTAVO_ROLE_GRADIENT, p->part_of(whole));
      p->gradient_begun = true;
      p->gradient_factor = at::Tensor();
    }
  }
  void zero() const {
    for (Parameter *p : parameters()) {
      p->gradient_begun = false;
      p->gradient_factor = at::Tensor();
    }
    complete();
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion &version,
                                                         bool) const override {
    return copy(c10::VariableVersion(version));
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion &&version,
                                                         bool) const override {
    return copy(std::move(version));
  }

 private:
  c10::intrusive_ptr<TensorImpl> copy(c10::VariableVersion &&version) const {
    auto same = c10::make_intrusive<SlotGradient>(run_, parameters_, first().tensor);
    if (!same->is_inference()) same->set_version_counter(std::move(version));
    return same;
  }

  std::weak_ptr<Run> run_;
  std::vector<Parameter *> parameters_;
};

const SlotGradient *as_slot_gradient(const at::Tensor &t) {
  return t.defined() && t.key_set().has_all(c10::DispatchKeySet(kKey))
             ? dynamic_cast<const SlotGradient *>(t.unsafeGetTensorImpl())
             : nullptr;
}

// Whether .grad stands for the slots of p itself. Code may assign one parameter's to another.
bool has_own(const Run &run, const Parameter &p) {
  const SlotGradient *gradient = as_slot_gradient(p.tensor.grad());
  return gradient != nullptr && gradient->is_of(run, p);
}

const SlotGradient &slot_gradient(const at::Tensor &t) {
  return *as_slot_gradient(t);
}

[[noreturn]] void refuse(const SlotGradient &gradient, const std::string &found) {
  throw Error(OCTAVO_UNSUPPORTED,
              "the gradient of parameter \"" + gradient.first().name +
                  "\", which is in slots: expected a factor, add_ or zero_, found " + found +
                  "; read it with .grad().clone(), and change the loss instead");
}

// A plain tensor for one in slots; else the same.
c10::IValue plain_of(const c10::IValue &value) {
  if (value.isTensor()) {
    const SlotGradient *gradient = as_slot_gradient(value.toTensor());
    return gradient != nullptr ? c10::IValue(gradient->plain()) : value;
  }
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor &t : value.toTensorVector()) list.push_back(plain_of(t).toTensor());
  return list;
}

// The first one in an argument; null: there is none.
const SlotGradient *first_in(const c10::IValue &value) {
  if (value.isTensor()) return as_slot_gradient(value.toTensor());
  if (!value.isTensorList()) return nullptr;
  for (const at::Tensor &t : value.toTensorVector())
    if (const SlotGradient *found = as_slot_gradient(t)) return found;
  return nullptr;
}

void fallback(const c10::OperatorHandle &op, c10::Stack *stack) {
  const auto &declared = op.schema().arguments();
  const size_t first = stack->size() - declared.size();
  bool is_ours = false;
  for (size_t i = 0; i < declared.size(); ++i) {
    c10::IValue &value = (*stack)[first + i];
    const bool writes = declared[i].alias_info() != nullptr && declared[i].alias_info()->isWrite();
    const SlotGradient *found = first_in(value);
    if (found == nullptr) continue;
    // Only torch's own operators say reliably what they write to.
    if (writes || op.schema().getNamespace() != "aten") refuse(*found, op.schema().name());
    value = plain_of(value);
    is_ours = true;
  }
  if (!is_ours)
    throw Error(OCTAVO_UNSUPPORTED,
                op.schema().name() +
                    ": expected gradients in slots among tensors of the dispatch key PrivateUse3, "
                    "found another; octavo::torch uses that key in this process");
  op.callBoxed(stack);
}

at::Tensor &mul_tensor(at::Tensor &self, const at::Tensor &factor) {
  if (as_slot_gradient(self) == nullptr) return self.mul_(plain_of(factor).toTensor());
  if (factor.numel() != 1) refuse(slot_gradient(self), "a factor of several elements");
  slot_gradient(self).scale(plain_of(factor).toTensor());
  return self;
}

at::Tensor &mul_scalar(at::Tensor &self, const at::Scalar &factor) {
  slot_gradient(self).scale(at::scalar_tensor(factor, at::kFloat));
  return self;
}

at::Tensor &div_tensor(at::Tensor &self, const at::Tensor &divisor) {
  return mul_tensor(self, plain_of(divisor).toTensor().reciprocal());
}

at::Tensor &div_scalar(at::Tensor &self, const at::Scalar &divisor) {
  return mul_scalar(self, 1.0 / divisor.toDouble());
}

// Also how autograd adds the gradient of torch's own use of a weight.
at::Tensor &add_tensor(at::Tensor &self, const at::Tensor &other, const at::Scalar &alpha) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = plain_of(other).toTensor();
  if (as_slot_gradient(self) == nullptr) return self.add_(values, alpha);
  slot_gradient(self).store(slot_gradient(self).plain().add_(values, alpha));
  return self;
}

at::Tensor detach(const at::Tensor &self) {
  return self.variable_data();
}

at::Tensor &zero(at::Tensor &self) {
  slot_gradient(self).zero();
  return self;
}

at::Tensor &detach_in_place(at::Tensor &self) {
  return self;
}

bool is_for_every_key(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

at::Tensor make_slot_gradient(const std::shared_ptr<Run> &run, const Parameter &p) {
  return at::detail::make_tensor<SlotGradient>(std::weak_ptr<Run>(run), run->parts_of(p.tensor),
                                               p.tensor);
}

}  // namespace

// Not freed once all is registered: calls may be in flight until the process ends. A registration
// that fails takes back what was registered before it.
void enable_slot_gradients() {
  static const bool done = [] {
    using ::torch::Library;
    const auto of = [](const char *name) {
      return std::make_unique<Library>(Library::IMPL, name, kKey, __FILE__, __LINE__);
    };
    std::unique_ptr<Library> any = of("_"), aten = of("aten");
    any->fallback(::torch::CppFunction::makeFromBoxedFunction<&fallback>());
    aten->impl("mul_.Tensor", &mul_tensor);
    aten->impl("mul_.Scalar", &mul_scalar);
    aten->impl("div_.Tensor", &div_tensor);
    aten->impl("div_.Scalar", &div_scalar);
    aten->impl("add_.Tensor", &add_tensor);
    aten->impl("detach", &detach);
    aten->impl("alias", &detach);
    aten->impl("zero_", &zero);
    aten->impl("detach_", &detach_in_place);
    // torch's own kernels for every key would come before the fallback, and read memory.
    const std::set<std::string> own = {"mul_.Tensor", "mul_.Scalar", "div_.Tensor",
                                       "div_.Scalar", "add_.Tensor", "detach",
                                       "alias",       "zero_",       "detach_"};
    c10::Dispatcher &dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
      const std::string op = c10::toString(name);
      if (op.rfind("aten::", 0) != 0 || own.count(op.substr(6)) != 0) continue;
      const auto handle = dispatcher.findOp(name);
      if (handle.has_value() && handle->hasSchema() && is_for_every_key(*handle))
        aten->impl(op.c_str(), ::torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
    any.release();
    aten.release();
    return true;
  }();
  static_cast<void>(done);
}

bool has_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p) {
  if (has_own(*run, p)) return p.gradient_begun;
  const at::Tensor gradient = plain_of(p.tensor.grad()).toTensor();
  for (Parameter *part : run->parts_of(p.tensor)) {
    part->gradient_begun = false;
    part->gradient_factor = at::Tensor();
  }
  if (!gradient.defined()) return false;
  const at::Tensor own = make_slot_gradient(run, p);
  slot_gradient(own).store(gradient.detach());  // which other code put there
  p.tensor.mutable_grad() = own;
  return true;
}

bool adds_to_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p) {
  if (!has_slot_gradient(run, p)) return false;
  if (p.gradient_factor.defined()) {
    const at::NoGradGuard no_grad;
    at::Tensor plain =
        at::empty({p.rows, p.cols}, at::TensorOptions(at::kFloat).device(run->device()));
    run->read_parameter(p, OCTAVO_ROLE_GRADIENT, plain);
    run->write_parameter(p, OCTAVO_ROLE_GRADIENT, plain.mul_(p.gradient_factor));
    p.gradient_factor = at::Tensor();
  }
  return true;
}

void begin_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p) {
  p.gradient_begun = true;
  if (has_own(*run, p)) return;
  p.tensor.mutable_grad() = make_slot_gradient(run, p);
}

void complete_slot_gradient(const std::shared_ptr<Run> &run, Parameter &p) {
  if (!has_slot_gradient(run, p)) run->memory().reset(*run->slot_of(p, OCTAVO_ROLE_GRADIENT));
  begin_slot_gradient(run, p);
}

void drop_slot_gradients(Run &run) {
  for (Parameter &p : run.parameters()) {
    p.gradient_begun = false;
    p.gradient_factor = at::Tensor();
    if (as_slot_gradient(p.tensor.grad()) != nullptr) p.tensor.mutable_grad() = at::Tensor();
  }
}

}  // namespace octavo::torch
