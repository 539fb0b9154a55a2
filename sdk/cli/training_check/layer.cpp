// Each call of the plugin is announced, so that a crash or a hang is reported with it.
#include "layer.h"

#include <algorithm>
#include <cmath>

#include "sdk/verify/in_flight.h"

namespace octavo::training_check {

using conformance::calling;

octavo::Host &Session::with_threads(octavo::Host &host, const octavo::Threads &threads) {
  host.set_parallel(threads.parallel());
  calling("the plugin's library, its symbol, list_options and check_session, while it is loaded");
  return host;
}

Session::Session(const octavo::Settings &settings)
    : run(settings, &with_threads(host, threads)), memory(run), staging(memory) {}

void Session::seal() {
  calling("seal");
  run.seal();
  store.emplace(run);
  end_step_.emplace(run, *store);
}

bool Session::nonfinite() const {
  const float *flag = store->nonfinite(run);
  return flag != nullptr && memory.read(flag) != 0;
}

Layer::Layer(const std::string &name_, int64_t n_, int64_t k_, uint64_t seed)
    : name(name_),
      n(n_),
      k(k_),
      weight(static_cast<size_t>(n * k)),
      gradient(weight.size()),
      bias(static_cast<size_t>(n)),
      bias_gradient(bias.size()) {
  fill(weight, seed, std::sqrt(3 / static_cast<float>(k)));
  fill(bias, seed + 1, 0.3F);
}

void Layer::add(Session &session) {
  session_ = &session;
  calling("add_parameter of " + name);
  const octavo::Added parameter = session.run.add_parameter({name + ".weight", n, k});
  parameter_ = parameter.id;
  refusal = parameter ? "" : parameter.verdict.text;
  if (!parameter) return;
  calling("add_linear of " + name);
  const octavo::Added linear = session.run.add_linear(name, parameter_);
  linear_ = linear.id;
  refusal = linear ? "" : linear.verdict.text;
}

void Layer::lend() {
  if (parameter_ == OCTAVO_NONE) return;
  weight_there_.emplace(session_->memory, weight.data(), weight.size());
  gradient_there_.emplace(session_->memory, gradient.data(), gradient.size());
  session_->store->lend(session_->run, parameter_, weight_there_->device());
  session_->store->lend(session_->run, parameter_, gradient_there_->device(), OCTAVO_ROLE_GRADIENT);
}

void Layer::bind(int64_t rows) {
  if (parameter_ == OCTAVO_NONE) return;
  Session &s = *session_;
  calling("linear_plan of " + name);
  if (linear_ != OCTAVO_NONE) calls_.emplace(s.run, *s.store, parameter_, linear_, rows);
  if (!s.run.owns(parameter_)) return;
  calling("write_parameter of " + name);
  octavo::write_parameter(s.run, *s.store, parameter_, s.staging.in(weight.data(), n, k));
  s.staging.finish();
}

std::string Layer::call(const char *verb) const {
  return std::string(verb) + " of a weight [" + std::to_string(n) + ", " + std::to_string(k) + "]";
}

void Layer::forward(const Floats &x, int64_t rows, Floats &y) {
  if (!calls_) return training_check::forward(x, weight, bias, rows, n, k, y);
  octavo::Staging &staging = session_->staging;
  upload();
  calling(call("quantize_weight"));
  calls_->quantize_weight();
  octavo::Forward &f = calls_->forward;
  f.x(staging.in(x.data(), rows, k)).y(staging.out(y.data(), rows, n));
  f.bias(staging.in(bias.data(), 1, n));
  calling(call("linear_forward"), rows, OCTAVO_F32, OCTAVO_F32);
  f();
  staging.finish();
}

void Layer::backward(const Floats &x, const Floats &dy, int64_t rows, Floats *dx) {
  if (!calls_)
    return training_check::backward(x, weight, dy, rows, n, k, gradient, bias_gradient, dx);
  octavo::Staging &staging = session_->staging;
  octavo::Backward b = calls_->backward;  // without what an earlier call set
  b.x(staging.in(x.data(), rows, k)).dy(staging.in(dy.data(), rows, n));
  if (dx != nullptr) b.dx(staging.out(dx->data(), rows, k));
  if (calls_->gives_dw()) b.dw(staging.in_out(gradient.data(), n, k));
  b.db(staging.in_out(bias_gradient.data(), 1, n));
  calling(call("linear_backward"), rows, OCTAVO_F32, OCTAVO_F32);
  b();
  staging.finish();
}

void Layer::clear_gradients() {
  gradient.clear();
  bias_gradient.clear();
  if (gradient_there_ && calls_ && !calls_->gives_dw()) gradient_there_->upload();
}

void Layer::read_gradient(Floats &into) {
  into.reset(gradient.size());
  if (!calls_ || calls_->gives_dw() || !session_->run.owns(parameter_, OCTAVO_ROLE_GRADIENT)) {
    if (calls_ && !calls_->gives_dw()) gradient_there_->download();
    std::copy_n(gradient.data(), gradient.size(), into.data());
    return;
  }
  octavo::ParameterCall read(session_->run, *session_->store, parameter_,
                             octavo::ParameterCall::kRead, OCTAVO_ROLE_GRADIENT);
  octavo::DeviceBuffer workspace(session_->memory, read.workspace_bytes());
  calling("read_parameter of the gradient of " + name);
  read.plain(session_->staging.out(into.data(), n, k)).workspace(workspace.data())();
  session_->staging.finish();
}

void Layer::upload() {
  if (weight_there_ && !session_->run.owns(parameter_)) weight_there_->upload();
}

void Layer::upload_for_step() {
  upload();
  const bool here = !calls_ || calls_->gives_dw();  // the gradient was computed into this program
  if (gradient_there_ && here && !session_->run.owns(parameter_, OCTAVO_ROLE_GRADIENT))
    gradient_there_->upload();
}

void Layer::download() {
  if (weight_there_ && !session_->run.owns(parameter_)) weight_there_->download();
}

}  // namespace octavo::training_check
