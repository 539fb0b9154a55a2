// How calls of an unmodified torch::nn::Linear reach the backend.
//
// LinearImpl::forward is not virtual and typed members cannot be exchanged, so the call itself
// cannot be changed. What it does is public, though, and inline in torch's headers:
// addmm(bias, x, weight.t()) for two dimensions and a bias, else matmul(x, weight.t()) and a sum.
// This file gives these two operators, and at::linear, kernels of its own for the device of a
// prepared model. They look whether the operand is the transpose of a prepared weight, or of some
// rows of one as nn::MultiheadAttention uses them, and otherwise go on to the very kernel that
// torch would have called: nothing about other tensors changes.
//
// Why not a dispatch key on the weights: torch has no key to lend, a load (set_data) would drop it
// unseen, and the optimizer's operators would pass through it, too.
#include "site_registry.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/matmul_native.h>
#include <torch/library.h>

#include <memory>
#include <mutex>

namespace octavo::torch {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor value_of(const OptionalTensor &tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

// Whether the backend computes a product with x. An evaluation in the host's precision is torch's
// own, whose operands have one dtype.
bool is_ours(const Hit &hit, const at::Tensor &x) {
  if (!hit) return false;
  const at::ScalarType own = hit.first_site().weight->tensor.scalar_type();
  const bool is_torchs = x.scalar_type() == own || dtype_of(x.scalar_type()) == 0;
  return !is_torchs || !is_plain_evaluation(hit.first_site());
}

// Whether autocast leaves the weight as it is.
bool is_cast_here(const Hit &hit) {
  return hit && !is_plain_evaluation(hit.first_site());
}

// Whether addmm(bias, x, weight.t()) is the one of a linear.
Hit find_addmm(const at::Tensor &bias, const at::Tensor &weight_t, const at::Scalar &beta,
               const at::Scalar &alpha) {
  Hit hit = SiteRegistry::instance().find_transposed(weight_t);
  if (!hit || bias.dim() != 1 || bias.size(0) != weight_t.size(1) || !beta.equal(1) ||
      !alpha.equal(1))
    return {};
  return hit;
}

// The keys of a device type.
template <at::DeviceType>
struct Keys;
template <>
struct Keys<at::kCPU> {
  static constexpr auto kBackend = c10::DispatchKey::CPU;
  static constexpr auto kAutograd = c10::DispatchKey::AutogradCPU;
  static constexpr auto kAutocast = c10::DispatchKey::AutocastCPU;
};
template <>
struct Keys<at::kCUDA> {
  static constexpr auto kBackend = c10::DispatchKey::CUDA;
  static constexpr auto kAutograd = c10::DispatchKey::AutogradCUDA;
  static constexpr auto kAutocast = c10::DispatchKey::AutocastCUDA;
};
template <>
struct Keys<at::kXPU> {
  static constexpr auto kBackend = c10::DispatchKey::XPU;
  static constexpr auto kAutograd = c10::DispatchKey::AutogradXPU;
  static constexpr auto kAutocast = c10::DispatchKey::AutocastXPU;
};
template <>
struct Keys<at::kPrivateUse1> {
  static constexpr auto kBackend = c10::DispatchKey::PrivateUse1;
  static constexpr auto kAutograd = c10::DispatchKey::AutogradPrivateUse1;
  static constexpr auto kAutocast = c10::DispatchKey::AutocastPrivateUse1;
};

// linear and matmul are composite: torch has one kernel for all keys, which it exports.
at::Tensor linear(const at::Tensor &x, const at::Tensor &weight, const OptionalTensor &bias) {
  const Hit hit = SiteRegistry::instance().find(weight);
  return is_ours(hit, x) ? call(hit, x, value_of(bias)) : at::native::linear(x, weight, bias);
}

at::Tensor matmul(const at::Tensor &x, const at::Tensor &other) {
  const Hit hit = SiteRegistry::instance().find_transposed(other);
  return is_ours(hit, x) ? call(hit, x, at::Tensor()) : at::native::matmul(x, other);
}

// addmm's derivative is registered for all autograd keys alike, so it still comes after
// AutogradOther.
template <at::DeviceType kType>
at::Tensor autograd_addmm(c10::DispatchKeySet keys, const at::Tensor &self, const at::Tensor &a,
                          const at::Tensor &b, const at::Scalar &beta, const at::Scalar &alpha) {
  const Hit hit = find_addmm(self, b, beta, alpha);
  if (is_ours(hit, a)) return call(hit, a, self);
  return at::_ops::addmm::redispatch(
      keys.remove(Keys<kType>::kAutograd).add(c10::DispatchKey::AutogradOther), self, a, b, beta,
      alpha);
}

// Reached below autograd, and directly in inference mode.
at::Tensor cpu_addmm(const at::Tensor &self, const at::Tensor &a, const at::Tensor &b,
                     const at::Scalar &beta, const at::Scalar &alpha) {
  const Hit hit = find_addmm(self, b, beta, alpha);
  if (is_ours(hit, a)) return call(hit, a, self);
  return at::cpu::addmm(self, a, b, beta, alpha);
}

// The kernel that torch had for addmm on a device before this file gave it one.
template <at::DeviceType kType>
const c10::SafeKernelFunction &torch_addmm() {
  static const c10::SafeKernelFunction kernel =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("aten::addmm", "")
          .getComputedKernelForDispatchKey(Keys<kType>::kBackend);
  return kernel;
}

// As cpu_addmm. The libraries of other devices are not linked, so their kernel is called boxed,
// which costs about a microsecond of the host's time.
template <at::DeviceType kType>
at::Tensor device_addmm(c10::DispatchKeySet keys, const at::Tensor &self, const at::Tensor &a,
                        const at::Tensor &b, const at::Scalar &beta, const at::Scalar &alpha) {
  const Hit hit = find_addmm(self, b, beta, alpha);
  if (is_ours(hit, a)) return call(hit, a, self);
  c10::Stack stack = {self, a, b, beta, alpha};
  const c10::SafeKernelFunction &kernel = torch_addmm<kType>();
  kernel.callBoxed(kernel.opHandle(), keys, &stack);
  return stack.at(0).toTensor();
}

// torch's rule casts every operand. A prepared weight stays what it is, or it would not be
// recognized below; the backend reads it in its own dtype.
template <at::DeviceType kType, class Op, Op *op, class... Args>
at::Tensor torch_rule(const Args &...args) {
  return at::autocast::WrapFunction<at::autocast::CastPolicy::lower_precision_fp, kType, Op, Op,
                                    op>::type::call(args...);
}

template <at::DeviceType kType>
at::Tensor cast(const at::Tensor &x) {
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(kType), x, kType);
}

template <at::DeviceType kType>
at::Tensor autocast_linear(const at::Tensor &x, const at::Tensor &weight,
                           const OptionalTensor &bias) {
  if (!is_cast_here(SiteRegistry::instance().find(weight)))
    return torch_rule<kType, decltype(ATEN_FN(linear)), &ATEN_FN(linear)>(x, weight, bias);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(Keys<kType>::kAutocast);
  return at::linear(cast<kType>(x), weight, bias);
}

template <at::DeviceType kType>
at::Tensor autocast_matmul(const at::Tensor &x, const at::Tensor &other) {
  if (!is_cast_here(SiteRegistry::instance().find_transposed(other)))
    return torch_rule<kType, decltype(ATEN_FN(matmul)), &ATEN_FN(matmul)>(x, other);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(Keys<kType>::kAutocast);
  return at::matmul(cast<kType>(x), other);
}

template <at::DeviceType kType>
at::Tensor autocast_addmm(const at::Tensor &self, const at::Tensor &a, const at::Tensor &b,
                          const at::Scalar &beta, const at::Scalar &alpha) {
  if (!is_cast_here(find_addmm(self, b, beta, alpha)))
    return torch_rule<kType, decltype(ATEN_FN(addmm)), &ATEN_FN(addmm)>(self, a, b, beta, alpha);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(Keys<kType>::kAutocast);
  return at::addmm(self, cast<kType>(a), b, beta, alpha);
}

// torch warns when a kernel is replaced; here that is meant, see above.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning &) override {}
};

template <at::DeviceType kType>
void register_kernels() {
  using ::torch::Library;
  if constexpr (kType != at::kCPU) torch_addmm<kType>();  // before it is replaced
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  // Not freed once all is registered: calls may be in flight until the process ends. A registration
  // that fails takes back what was registered before it.
  const auto at_key = [](c10::DispatchKey key) {
    return std::make_unique<Library>(Library::IMPL, "aten", key, __FILE__, __LINE__);
  };
  std::unique_ptr<Library> backend = at_key(Keys<kType>::kBackend);
  backend->impl("linear", &linear);
  backend->impl("matmul", &matmul);
  if constexpr (kType == at::kCPU) {
    backend->impl("addmm", &cpu_addmm);
  } else {
    backend->impl("addmm", &device_addmm<kType>);
  }
  std::unique_ptr<Library> autograd = at_key(Keys<kType>::kAutograd);
  autograd->impl("linear", &linear);
  autograd->impl("matmul", &matmul);
  autograd->impl("addmm", &autograd_addmm<kType>);
  std::unique_ptr<Library> autocast = at_key(Keys<kType>::kAutocast);
  autocast->impl("linear", &autocast_linear<kType>);
  autocast->impl("matmul", &autocast_matmul<kType>);
  autocast->impl("addmm", &autocast_addmm<kType>);
  for (std::unique_ptr<Library> *library : {&backend, &autograd, &autocast}) library->release();
}

// null for a device type of which this file has no kernels.
void (*registration_of(at::DeviceType type))() {
  switch (type) {
    case at::kCPU: return register_kernels<at::kCPU>;
    case at::kCUDA: return register_kernels<at::kCUDA>;
    case at::kXPU: return register_kernels<at::kXPU>;
    case at::kPrivateUse1: return register_kernels<at::kPrivateUse1>;
    default: return nullptr;
  }
}

}  // namespace

bool can_intercept(at::DeviceType type) {
  return registration_of(type) != nullptr;
}

void intercept(const std::vector<SitePointer> &sites, at::DeviceType type) {
  static std::once_flag once[at::COMPILE_TIME_MAX_DEVICE_TYPES];
  std::call_once(once[static_cast<size_t>(type)], registration_of(type));
  SiteRegistry::instance().add(sites);
}

void release(const std::vector<SitePointer> &sites) {
  SiteRegistry::instance().remove(sites);
}

}  // namespace octavo::torch
