// The calls of a plain C host, one function a verb.
#include "plain_host.h"

#include <cstring>
#include <stdexcept>

#include "kernels/format/float16.h"

namespace testing_torch {
namespace {

template <class T>
T make(uint32_t kind) {
  T t = {};
  t.size = sizeof t;
  t.kind = kind;
  return t;
}

octavo_str view(const std::string &s) {
  return {s.data(), s.size()};
}

void *aligned(std::vector<unsigned char> &bytes, uint64_t count) {
  bytes.resize(count + 256);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return reinterpret_cast<void *>((address + 255) / 256 * 256);
}

}  // namespace

void PlainHost::check(octavo_status status, const char *what) {
  if (status != OCTAVO_OK)
    throw std::runtime_error(std::string(what) + " answered " + std::to_string(status));
}

PlainHost::PlainHost(const std::string &toml, int64_t n, int64_t k, uint32_t dtype,
                     const std::vector<float> &weight, const std::vector<float> &bias)
    : n_(n),
      k_(k),
      dtype_(dtype),
      weight_(weight),
      bias_(bias),
      bias_gradient_(static_cast<size_t>(n)) {
  auto desc = make<octavo_open_desc>(OCTAVO_KIND_OPEN_DESC);
  desc.config_text = view(toml);
  check(octavo_open(&desc, &run_), "octavo_open");
  const std::string names[] = {"weight", "bias"};
  for (uint32_t i = 0; i < (has_optimizer() ? 2u : 1u); ++i) {
    auto parameter = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    parameter.name = view(names[i]);
    parameter.rows = i == 0 ? n : 1;
    parameter.cols = i == 0 ? k : n;
    parameter.dtype = parameter.gradient_dtype = OCTAVO_F32;
    parameter.flags = i == 0 ? OCTAVO_PARAMETER_LINEAR_WEIGHT : 0;
    auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    check(octavo_add_parameter(run_, &parameter, &verdict, &ids_[i]), "octavo_add_parameter");
  }
  auto linear = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
  linear.name = OCTAVO_STR("linear");
  auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  uint32_t id = 0;
  check(octavo_add_linear(run_, &linear, &verdict, &id), "octavo_add_linear");
  check(octavo_seal(run_), "octavo_seal");
  check(octavo_store_open(run_, &store_), "octavo_store_open");
  table_ = octavo_run_backend(run_);
  session_ = octavo_run_session(run_);
  plan_ = octavo_run_plan(run_, 0);
  if (native(0, OCTAVO_ROLE_WEIGHT)) {
    check(octavo_store_native(store_, 0, OCTAVO_ROLE_WEIGHT, weight_.data()), "native");
  } else {
    auto call = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    octavo_tensor plain = matrix(weight_.data(), n_, k_, OCTAVO_F32);
    call.role = OCTAVO_ROLE_WEIGHT;
    call.plain = &plain;
    call.slots = octavo_store_slots(store_, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
    call.workspace = aligned(workspace_, 1 << 20);
    check(static_cast<const octavo_optimizer *>(
              octavo_run_interface(run_, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))
              ->write_parameter(session_, &call),
          "write_parameter");
  }
  if (has_optimizer()) {
    check(octavo_store_native(store_, 1, OCTAVO_ROLE_WEIGHT, bias_.data()), "native");
    check(octavo_store_native(store_, 1, OCTAVO_ROLE_GRADIENT, bias_gradient_.data()), "native");
  }
  quantize();
}

PlainHost::~PlainHost() {
  octavo_store_close(store_);
  octavo_close(run_);
}

bool PlainHost::native(uint32_t parameter, uint32_t role) const {
  for (uint32_t i = 0; i < octavo_run_slot_count(run_); ++i) {
    const octavo_slot *s = octavo_run_slot(run_, i);
    if (s->owner_kind == OCTAVO_OWNER_PARAMETER && s->owner == parameter && s->role == role)
      return (s->flags & OCTAVO_SLOT_NATIVE) != 0;
  }
  return false;
}

octavo_tensor PlainHost::matrix(const void *data, int64_t rows, int64_t cols,
                                uint32_t dtype) const {
  return {const_cast<void *>(data), rows, cols, cols, dtype, 0};
}

// A bias has the dtype of y.
octavo_tensor PlainHost::rounded_bias() {
  if (dtype_ == OCTAVO_F32) return matrix(bias_.data(), 1, n_, OCTAVO_F32);
  rounded_bias_.resize(bias_.size());
  std::transform(bias_.begin(), bias_.end(), rounded_bias_.begin(), [&](float v) {
    return dtype_ == OCTAVO_BF16 ? octavo::encode_bf16(v) : octavo::encode_f16(v);
  });
  return matrix(rounded_bias_.data(), 1, n_, dtype_);
}

void PlainHost::quantize() {
  auto call = make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
  call.slots = octavo_store_slots(store_, OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, 0);
  call.workspace = aligned(workspace_, plan_->weight_workspace);
  check(table_->quantize_weight(session_, &call), "quantize_weight");
}

void PlainHost::forward(const void *x, int64_t m, void *y) {
  octavo_tensor x_tensor = matrix(x, m, k_, dtype_);
  octavo_tensor y_tensor = matrix(y, m, n_, dtype_);
  octavo_tensor bias = rounded_bias();
  auto call = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  call.x = &x_tensor;
  call.y = &y_tensor;
  call.bias = &bias;
  call.slots = octavo_store_slots(store_, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
  const auto rows = static_cast<uint64_t>(m);
  call.saved = aligned(saved_, octavo_extent_bytes(&plan_->saved, rows));
  call.workspace = aligned(workspace_, octavo_extent_bytes(&plan_->forward_workspace, rows));
  check(table_->linear_forward(session_, &call), "linear_forward");
  x_ = x;
  m_ = m;
}

void PlainHost::evaluate(const void *x, int64_t m, void *y) {
  octavo_tensor x_tensor = matrix(x, m, k_, dtype_);
  octavo_tensor y_tensor = matrix(y, m, n_, dtype_);
  octavo_tensor bias = rounded_bias();
  const uint32_t uses = octavo_run_use_count(run_, OCTAVO_OWNER_LINEAR, 0);
  void *const *given = octavo_store_slots(store_, OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
  std::vector<void *> slots(given, given + uses);
  for (uint32_t i = 0; i < uses; ++i)
    if (octavo_run_slot(run_, octavo_run_use(run_, OCTAVO_OWNER_LINEAR, 0, i)->slot)
            ->access[OCTAVO_VERB_FORWARD] == OCTAVO_ACCESS_ACCUMULATE)
      slots[i] = nullptr;
  auto call = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
  call.flags = OCTAVO_FORWARD_EVALUATION;
  call.x = &x_tensor;
  call.y = &y_tensor;
  call.bias = &bias;
  call.slots = slots.data();
  const auto rows = static_cast<uint64_t>(m);
  call.workspace = aligned(workspace_, octavo_extent_bytes(&plan_->forward_workspace, rows));
  check(table_->linear_forward(session_, &call), "linear_forward");
}

void PlainHost::backward(const void *dy, void *dx, float *dw, float *db, bool adds) {
  const bool in_slot = plan_->gradient == OCTAVO_GRADIENT_SLOT;
  octavo_tensor dy_tensor = matrix(dy, m_, n_, dtype_);
  octavo_tensor x_tensor = matrix(x_, m_, k_, dtype_);
  octavo_tensor dx_tensor = matrix(dx, m_, k_, dtype_);
  octavo_tensor dw_tensor = matrix(dw, n_, k_, OCTAVO_F32);
  octavo_tensor db_tensor = matrix(db, 1, n_, OCTAVO_F32);
  if (adds) std::memset(db, 0, static_cast<size_t>(n_) * sizeof(float));
  auto call = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
  call.flags = adds ? 0 : OCTAVO_BACKWARD_OVERWRITE;
  call.dy = &dy_tensor;
  call.x = (plan_->flags & OCTAVO_LINEAR_NEEDS_X) != 0 ? &x_tensor : nullptr;
  call.dx = &dx_tensor;
  call.dw = in_slot ? nullptr : &dw_tensor;
  call.db = &db_tensor;
  call.slots = octavo_store_slots(store_, OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, 0);
  const auto rows = static_cast<uint64_t>(m_);
  std::vector<unsigned char> &saved = saved_;
  call.saved = aligned(saved, octavo_extent_bytes(&plan_->saved, rows));
  call.workspace = aligned(workspace_, octavo_extent_bytes(&plan_->backward_workspace, rows));
  check(table_->linear_backward(session_, &call), "linear_backward");
}

void PlainHost::optimizer_step(const std::vector<float> &bias_gradient, const float *hyper) {
  bias_gradient_ = bias_gradient;
  check(octavo_store_native(store_, 1, OCTAVO_ROLE_GRADIENT, bias_gradient_.data()), "native");
  octavo_parameter_item items[2];
  for (uint32_t i = 0; i < 2; ++i)
    items[i] = {i, 0,
                octavo_store_slots(store_, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, i),
                hyper};
  uint64_t bytes = 0;
  const octavo_optimizer *optimizer = static_cast<const octavo_optimizer *>(
      octavo_run_interface(run_, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  check(optimizer->workspace_bytes(session_, ids_, 2, &bytes), "workspace_bytes");
  auto call = make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
  call.items = items;
  call.count = 2;
  call.workspace = aligned(workspace_, bytes);
  check(optimizer->optimizer_step(session_, &call), "optimizer_step");
}

void PlainHost::end_step() {
  auto call = make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
  call.slots = octavo_store_slots(store_, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  check(table_->end_step(session_, &call), "end_step");
}

std::vector<float> PlainHost::read(uint32_t role) {
  std::vector<float> plain(static_cast<size_t>(n_ * k_));
  octavo_tensor tensor = matrix(plain.data(), n_, k_, OCTAVO_F32);
  auto call = make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
  call.role = role;
  call.plain = &tensor;
  call.slots = octavo_store_slots(store_, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
  call.workspace = aligned(workspace_, 1 << 20);
  check(static_cast<const octavo_optimizer *>(
            octavo_run_interface(run_, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))
            ->read_parameter(session_, &call),
        "read_parameter");
  return plain;
}

}  // namespace testing_torch
