// The drop-in module: torch::nn::Linear with a place of its own.
#include "octavo/torch/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/init.h>

#include <cmath>

#include "linear_call.h"

namespace octavo::torch {

LinearImpl::LinearImpl(const ::torch::nn::LinearOptions &given) : options(given) {
  LinearImpl::reset();
}

void LinearImpl::reset() {
  place_.reset();
  weight =
      register_parameter("weight", ::torch::empty({options.out_features(), options.in_features()}));
  if (options.bias()) {
    bias = register_parameter("bias", ::torch::empty({options.out_features()}));
  } else {
    bias = register_parameter("bias", {}, /*requires_grad=*/false);
  }
  reset_parameters();
}

// The distribution of torch::nn::Linear, drawn in its order.
void LinearImpl::reset_parameters() {
  ::torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1.0 / std::sqrt(static_cast<double>(options.in_features()));
  ::torch::nn::init::uniform_(bias, -bound, bound);
}

void LinearImpl::pretty_print(std::ostream &stream) const {
  stream << std::boolalpha << "octavo::torch::Linear(in_features=" << options.in_features()
         << ", out_features=" << options.out_features() << ", bias=" << options.bias() << ")";
}

at::Tensor LinearImpl::forward(const at::Tensor &x) {
  const std::shared_ptr<const Place> place = place_.lock();
  if (place == nullptr || place->module != this || is_plain_evaluation(*place->site))
    return ::torch::linear(x, weight, bias);
  const at::DeviceType type = place->site->run->device().type();
  if (!at::autocast::is_autocast_enabled(type)) return call_linear(place->site, x, weight, bias);
  const at::Tensor narrow =
      at::autocast::cached_cast(at::autocast::get_autocast_dtype(type), x, type);
  return call_linear(place->site, narrow, weight, bias);
}

}  // namespace octavo::torch
