// A host of a backend that owns weights, gradients and optimizer states, for one rank.
//
// Everything goes through octavo.h and the tables, in the call order of the contract.
#pragma once

#include <cmath>

#include "octavo/draft/reduction.h"
#include "tests/plugins/layer.h"

namespace octavo::test {

class OwningHost {
 public:
  // Opens; `request` names the backend and its options. The store is sharded when world > 1.
  explicit OwningHost(Request &request, uint32_t rank = 0, uint32_t world = 1)
      : request_(request), rank_(rank), world_(world) {
    EXPECT_EQ(request.set("plugins.trust", "dev").open(run_), OCTAVO_OK) << request.host.error();
    hyper_[OCTAVO_HYPER_LR] = 1e-2f;
    hyper_[OCTAVO_HYPER_BETA1] = 0.9f;
    hyper_[OCTAVO_HYPER_BETA2] = 0.999f;
    hyper_[OCTAVO_HYPER_EPS] = 1e-8f;
    hyper_[OCTAVO_HYPER_GRAD_SCALE] = 1.0f;
  }

  // A linear with its weight, both named "l<i>"; returns its index, which is the parameter's id.
  uint32_t add_linear(const Matrix &weight, uint32_t more_flags = 0) {
    const uint32_t id = add_parameter(weight, OCTAVO_PARAMETER_LINEAR_WEIGHT | more_flags);
    const Answer a = test::add_linear(run_.get(), "l" + std::to_string(linears_.size()), id);
    EXPECT_EQ(a.status, OCTAVO_OK) << request_.host.error();
    EXPECT_NE(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
    linears_.push_back(id);
    return a.id;
  }
  // A bias, norm or embedding: weight and gradient are this host's tensors.
  uint32_t add_parameter(const Matrix &value, uint32_t flags = 0) {
    const std::string name = "p" + std::to_string(values_.size());
    const Answer a = test::add_parameter(
        run_.get(), parameter_desc(name.c_str(), value.rows, value.cols, flags));
    EXPECT_EQ(a.status, OCTAVO_OK) << request_.host.error();
    values_.push_back(value);
    gradients_.emplace_back(value.rows, value.cols);
    return a.id;
  }

  // Emits and allocates the slots, hands in native tensors, writes owned weights.
  void seal() {
    ASSERT_EQ(octavo_seal(run_.get()), OCTAVO_OK) << request_.host.error();
    octavo_store *raw = nullptr;
    ASSERT_EQ(octavo_store_open_sharded(run_.get(), rank_, world_, &raw), OCTAVO_OK)
        << request_.host.error();
    store_.reset(raw);
    for (uint32_t p = 0; p < values_.size(); ++p) {
      if (is_native(p, OCTAVO_ROLE_WEIGHT)) {
        ASSERT_EQ(octavo_store_native(raw, p, OCTAVO_ROLE_WEIGHT, values_[p].v.data()), OCTAVO_OK);
        if (is_native(p, OCTAVO_ROLE_GRADIENT)) {
          ASSERT_EQ(octavo_store_native(raw, p, OCTAVO_ROLE_GRADIENT, gradients_[p].v.data()),
                    OCTAVO_OK);
        }
      } else {
        ASSERT_EQ(write(p, OCTAVO_ROLE_WEIGHT, values_[p]), OCTAVO_OK) << request_.host.error();
      }
    }
    std::vector<uint32_t> all(values_.size());
    for (uint32_t p = 0; p < all.size(); ++p) all[p] = p;
    uint64_t bytes = 0;
    ASSERT_EQ(optimizer()->workspace_bytes(session(), all.data(), all.size(), &bytes), OCTAVO_OK);
    step_workspace_ = std::make_unique<AlignedBytes>(bytes);
    items_.reserve(all.size());
    quantize_weights();
  }

  // y and what backward needs; the saved bytes of the last forward of each linear are kept.
  octavo_status forward(uint32_t linear, Matrix &x, Matrix &y, Matrix *bias = nullptr) {
    const octavo_linear_plan &plan = *octavo_run_plan(run_.get(), linear);
    saved_.resize(std::max<size_t>(saved_.size(), linear + 1));
    saved_[linear] = std::make_unique<AlignedBytes>(bytes_of(plan.saved, x.rows));
    const AlignedBytes workspace(bytes_of(plan.forward_workspace, x.rows));
    const octavo_tensor tx = tensor_of(x);
    y = Matrix(x.rows, values_[linears_[linear]].rows, -1.0f);
    octavo_tensor ty = tensor_of(y), tb{};
    if (bias != nullptr) tb = tensor_of(*bias);
    auto c = call<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    c.linear = linear;
    c.x = &tx;
    c.y = &ty;
    c.bias = bias == nullptr ? nullptr : &tb;
    c.slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
    c.saved = saved_[linear]->get();
    c.workspace = workspace.get();
    return backend()->linear_forward(session(), &c);
  }
  octavo_status backward(uint32_t linear, Matrix &dy, Matrix &dx, uint32_t flags = 0) {
    const octavo_linear_plan &plan = *octavo_run_plan(run_.get(), linear);
    const AlignedBytes workspace(bytes_of(plan.backward_workspace, dy.rows));
    const octavo_tensor tdy = tensor_of(dy);
    dx = Matrix(dy.rows, values_[linears_[linear]].cols, -1.0f);
    octavo_tensor tdx = tensor_of(dx);
    auto c = call<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    c.linear = linear;
    c.flags = flags;
    c.dy = &tdy;
    c.dx = &tdx;
    c.slots = list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear);
    c.saved = saved_[linear]->get();
    c.workspace = workspace.get();
    return backend()->linear_backward(session(), &c);
  }

  void quantize_weights() {
    for (uint32_t l = 0; l < linears_.size(); ++l) {
      const AlignedBytes workspace(octavo_run_plan(run_.get(), l)->weight_workspace);
      auto c = call<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
      c.parameter = linears_[l];
      c.slots = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, linears_[l]);
      c.workspace = workspace.get();
      ASSERT_EQ(backend()->quantize_weight(session(), &c), OCTAVO_OK);
    }
  }

  // Gradient slots of all owned parameters over the ranks, as one bucket.
  octavo_status reduce_gradients(const octavo_collective *ranks) {
    std::vector<octavo_parameter_item> items;
    std::vector<uint32_t> ids;
    for (uint32_t p = 0; p < values_.size(); ++p) {
      if (!has_gradient(p) || is_native(p, OCTAVO_ROLE_GRADIENT)) continue;
      items.push_back({p, 0, list(OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, p), nullptr});
      ids.push_back(p);
    }
    uint64_t buffer = 0, state = 0;
    octavo_status status =
        octavo_reduction_bytes(run_.get(), ids.data(), ids.size(), ranks->world, &buffer, &state);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes send(buffer), recv(buffer), scratch(state);
    return octavo_reduce_gradients(run_.get(), items.data(), items.size(), ranks, send.get(),
                                   recv.get(), scratch.get(), nullptr);
  }

  // Steps the parameters that this rank owns; *skip != 0 changes nothing.
  octavo_status step(const float *skip = nullptr) {
    items_.clear();
    for (uint32_t p = 0; p < values_.size(); ++p)
      if (has_gradient(p) && octavo_store_owner(store_.get(), p) == rank_)
        items_.push_back(
            {p, 0, list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, p), hyper_});
    auto c = call<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
    c.items = items_.data();
    c.count = items_.size();
    c.skip = skip;
    c.workspace = step_workspace_->get();
    return optimizer()->optimizer_step(session(), &c);
  }
  octavo_status end_step() {
    octavo_store_clear(store_.get(), OCTAVO_ROLE_GRADIENT);
    for (Matrix &g : gradients_) std::fill(g.v.begin(), g.v.end(), 0.0f);
    auto c = call<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
    c.slots = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
    return backend()->end_step(session(), &c);
  }

  octavo_status write(uint32_t parameter, uint32_t role, const Matrix &values) {
    Matrix copy = values;
    return copy_parameter(optimizer()->write_parameter, parameter, role, copy);
  }
  octavo_status read(uint32_t parameter, uint32_t role, Matrix &values) {
    values = Matrix(values_[parameter].rows, values_[parameter].cols, -1.0f);
    return copy_parameter(optimizer()->read_parameter, parameter, role, values);
  }
  Matrix read(uint32_t parameter, uint32_t role) {
    Matrix values;
    EXPECT_EQ(read(parameter, role, values), OCTAVO_OK) << request_.host.error();
    return values;
  }

  // The slot with this name, the nth in order of emission; its address is null when not on this
  // rank.
  const octavo_slot *slot(const std::string &name, int nth = 0) {
    for (uint32_t id = 0; id < octavo_run_slot_count(run_.get()); ++id)
      if (text_of(octavo_run_slot(run_.get(), id)->name) == name && nth-- == 0)
        return octavo_run_slot(run_.get(), id);
    return nullptr;
  }
  void *memory(const std::string &name, int nth = 0) {
    const octavo_slot *s = slot(name, nth);
    return s == nullptr ? nullptr : octavo_store_address(store_.get(), s->id);
  }
  float *floats(const std::string &name, int nth = 0) {
    return static_cast<float *>(memory(name, nth));
  }

  // Native tensors of this host: values are weights, gradients what the next step takes.
  Matrix &value(uint32_t parameter) { return values_[parameter]; }
  Matrix &gradient(uint32_t parameter) { return gradients_[parameter]; }
  float *hyper() { return hyper_; }
  Request &request() { return request_; }
  octavo_run *run() { return run_.get(); }
  octavo_store *store() { return store_.get(); }
  const octavo_session *session() { return octavo_run_session(run_.get()); }
  const octavo_backend *backend() { return octavo_run_backend(run_.get()); }
  const octavo_optimizer *optimizer() {
    return static_cast<const octavo_optimizer *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  }
  const octavo_gradients *gradients() {
    return static_cast<const octavo_gradients *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
  }
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) {
    return octavo_store_slots(store_.get(), verb, owner_kind, owner);
  }

 private:
  template <typename Call>
  static Call call(uint32_t kind) {
    Call c{};
    c.size = sizeof(c);
    c.kind = kind;
    return c;
  }
  static uint64_t bytes_of(const octavo_extent &e, int64_t rows) {
    return octavo_extent_bytes(&e, static_cast<uint64_t>(rows));
  }
  const octavo_slot *slot_of(uint32_t parameter, uint32_t role) {
    for (uint32_t i = 0; i < octavo_run_use_count(run_.get(), OCTAVO_OWNER_PARAMETER, parameter);
         ++i) {
      const octavo_slot *s = octavo_run_slot(
          run_.get(), octavo_run_use(run_.get(), OCTAVO_OWNER_PARAMETER, parameter, i)->slot);
      if (s->role == role) return s;
    }
    return nullptr;
  }
  bool is_native(uint32_t parameter, uint32_t role) {
    const octavo_slot *s = slot_of(parameter, role);
    return s != nullptr && (s->flags & OCTAVO_SLOT_NATIVE) != 0;
  }
  bool has_gradient(uint32_t parameter) {
    return slot_of(parameter, OCTAVO_ROLE_GRADIENT) != nullptr;
  }

  octavo_status copy_parameter(octavo_status (*verb)(const octavo_session *,
                                                     const octavo_parameter_call *),
                               uint32_t parameter, uint32_t role, Matrix &values) {
    uint64_t bytes = 0;
    octavo_status status = optimizer()->workspace_bytes(session(), &parameter, 1, &bytes);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes workspace(bytes);
    octavo_tensor plain = tensor_of(values);
    auto c = call<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    c.parameter = parameter;
    c.role = role;
    c.plain = &plain;
    c.slots = list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter);
    c.workspace = workspace.get();
    return verb(session(), &c);
  }

  Request &request_;
  uint32_t rank_;
  uint32_t world_;
  RunPtr run_;
  StorePtr store_;
  std::vector<Matrix> values_;
  std::vector<Matrix> gradients_;
  std::vector<uint32_t> linears_;  // their weights
  std::vector<std::unique_ptr<AlignedBytes>> saved_;
  std::unique_ptr<AlignedBytes> step_workspace_;
  std::vector<octavo_parameter_item> items_;
  float hyper_[OCTAVO_HYPER_COUNT] = {};
};

}  // namespace octavo::test
