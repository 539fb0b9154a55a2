// octavo/hpp/host/calls.hpp: the verbs of a backend as objects that are built once and run often.
//
// The constructor does all look-ups; run() allocates nothing unless it fails. Build a call after
// the last Run::seal, Store::extend and Store::native, because these move the slot lists. A call
// object may be used by one thread at a time. It copies octavo_tensor views, not the memory they
// refer to.
#ifndef OCTAVO_HPP_HOST_CALLS_HPP
#define OCTAVO_HPP_HOST_CALLS_HPP

#include "octavo/hpp/host/store.hpp"
#include "octavo/hpp/host/tensor.hpp"

namespace octavo {
inline namespace hpp {

// Base class of the four calls. run() returns a status; operator() throws Error.
template <typename Derived, typename Raw>
class Call {
 public:
  Derived &stream(void *s) {
    raw_.stream = s;
    return derived();
  }
  // A list of slots in place of the store's: the same entries, but null for each accumulator that
  // must not record.
  Derived &slots(void *const *list) {
    raw_.slots = list;
    return derived();
  }
  // The workspace of the call; the caller owns the memory.
  Derived &workspace(void *w) {
    workspace_ = w;
    return derived();
  }
  void operator()() {
    if (const octavo_status status = derived().run(); status != OCTAVO_OK)
      host_->require(status, Derived::kName);
  }

 protected:
  Call(const Run &run, uint32_t kind)
      : host_(&run.host()),
        backend_(run.backend()),
        session_(run.session()),
        raw_(make<Raw>(kind)) {
    if (backend_ == nullptr)
      throw Error(std::string(Derived::kName) +
                      ": this run has no backend, since its precision is " + run.precision(),
                  OCTAVO_WRONG_STATE, {});
  }
  Derived &derived() { return static_cast<Derived &>(*this); }

  Host *host_;
  const octavo_backend *backend_;
  octavo_session *session_;
  Raw raw_;
  void *workspace_ = nullptr;
};

// Refreshes the weight cache; run it after every change of the weight. The workspace has the size
// of the largest plan.weight_workspace among the parameter's linears.
class QuantizeWeight : public Call<QuantizeWeight, octavo_weight_call> {
 public:
  static constexpr const char *kName = "quantize_weight";
  QuantizeWeight(const Run &run, const Store &store, uint32_t parameter)
      : Call(run, OCTAVO_KIND_WEIGHT_CALL) {
    raw_.parameter = parameter;
    raw_.slots = store.list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
  }
  octavo_status run() noexcept {
    raw_.workspace = workspace_;
    return backend_->quantize_weight(session_, &raw_);
  }
};

// y = x w^T + bias; x: [M, K], y: [M, N], bias: [1, N]. With a prologue the norm or activation that
// gives x runs in the same call.
class Forward : public Call<Forward, octavo_forward_call> {
 public:
  static constexpr const char *kName = "linear_forward";
  Forward(const Run &run, const Store &store, uint32_t linear)
      : Call(run, OCTAVO_KIND_FORWARD_CALL), plan_(run.plan(linear)), fused_(run.fused()) {
    raw_.linear = linear;
    raw_.slots = store.list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
  }
  uint64_t workspace_bytes(int64_t rows) const noexcept {
    return octavo_extent_bytes(&plan_.forward_workspace, static_cast<uint64_t>(rows));
  }
  uint64_t saved_bytes(int64_t rows) const noexcept {
    return octavo_extent_bytes(&plan_.saved, static_cast<uint64_t>(rows));
  }
  Forward &x(const octavo_tensor &t) {
    x_ = t;
    return *this;
  }
  Forward &y(const octavo_tensor &t) {
    y_ = t;
    return *this;
  }
  Forward &bias(const octavo_tensor &t) {
    bias_ = t;
    has_bias_ = true;
    return *this;
  }
  // Memory of saved_bytes() bytes for Backward. Leave it out if no backward follows.
  Forward &saved(void *s) {
    raw_.saved = s;
    return *this;
  }
  Forward &evaluation(bool is = true) {
    raw_.flags = is ? OCTAVO_FORWARD_EVALUATION : 0;
    return *this;
  }
  // By octavo.fused/1, whose workspace it then needs; null: none, x is given.
  Forward &prologue(const octavo_prologue *p) {
    prologue_ = p;
    return *this;
  }
  octavo_status run() noexcept {
    raw_.x = &x_, raw_.y = &y_;
    raw_.bias = has_bias_ ? &bias_ : nullptr;
    raw_.workspace = workspace_;
    if (prologue_ == nullptr) return backend_->linear_forward(session_, &raw_);
    if (fused_ == nullptr) return OCTAVO_UNSUPPORTED;
    auto call = make<octavo_fused_forward_call>(OCTAVO_KIND_FUSED_FORWARD_CALL);
    call.forward = &raw_;
    call.prologue = prologue_;
    return fused_->linear_forward(session_, &call);
  }

 private:
  octavo_linear_plan plan_;
  const octavo_fused *fused_;
  const octavo_prologue *prologue_ = nullptr;
  octavo_tensor x_{}, y_{}, bias_{};
  bool has_bias_ = false;
};

// dx = dy w, dw += dy^T x, db += column sums of dy. An output that is not set is not computed.
class Backward : public Call<Backward, octavo_backward_call> {
 public:
  static constexpr const char *kName = "linear_backward";
  Backward(const Run &run, const Store &store, uint32_t linear)
      : Call(run, OCTAVO_KIND_BACKWARD_CALL), plan_(run.plan(linear)) {
    raw_.linear = linear;
    raw_.slots = store.list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear);
  }
  uint64_t workspace_bytes(int64_t rows) const noexcept {
    return octavo_extent_bytes(&plan_.backward_workspace, static_cast<uint64_t>(rows));
  }
  Backward &dy(const octavo_tensor &t) { return set(&dy_, t, 1); }
  // Required if plan.flags contains OCTAVO_LINEAR_NEEDS_X.
  Backward &x(const octavo_tensor &t) { return set(&x_, t, 2); }
  Backward &dx(const octavo_tensor &t) { return set(&dx_, t, 4); }
  Backward &dw(const octavo_tensor &t) { return set(&dw_, t, 8); }
  Backward &db(const octavo_tensor &t) { return set(&db_, t, 16); }
  Backward &saved(const void *s) {
    raw_.saved = s;
    return *this;
  }
  // Writes dw and db instead of accumulating.
  Backward &overwrite(bool is = true) { return flag(OCTAVO_BACKWARD_OVERWRITE, is); }
  Backward &skip_weight(bool is = true) { return flag(OCTAVO_BACKWARD_SKIP_WEIGHT, is); }
  octavo_status run() noexcept {
    raw_.dy = given(dy_, 1), raw_.x = given(x_, 2);
    raw_.dx = given(dx_, 4), raw_.dw = given(dw_, 8), raw_.db = given(db_, 16);
    raw_.workspace = workspace_;
    return backend_->linear_backward(session_, &raw_);
  }

 private:
  Backward &set(octavo_tensor *place, const octavo_tensor &t, unsigned bit) {
    *place = t;
    given_ |= bit;
    return *this;
  }
  Backward &flag(uint32_t bit, bool is) {
    raw_.flags = is ? raw_.flags | bit : raw_.flags & ~bit;
    return *this;
  }
  octavo_tensor *given(octavo_tensor &t, unsigned bit) const noexcept {
    return (given_ & bit) != 0 ? &t : nullptr;
  }

  octavo_linear_plan plan_;
  octavo_tensor dy_{}, x_{}, dx_{}, dw_{}, db_{};
  unsigned given_ = 0;
};

// Derives the next scales; run it once per step.
class EndStep : public Call<EndStep, octavo_step_call> {
 public:
  static constexpr const char *kName = "end_step";
  EndStep(const Run &run, const Store &store) : Call(run, OCTAVO_KIND_STEP_CALL) {
    raw_.slots = store.list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  }
  octavo_status run() noexcept { return backend_->end_step(session_, &raw_); }
};

}  // namespace hpp
}  // namespace octavo

#endif
