// One linear of the te backend on kernels that claim an alignment, with slots in memory of the
// test.
//
// Unlike the Session of layer.h it goes around octavo_run, which takes the kernels as they are; a
// call that breaks a rule of the wrapped kernels fails the test.
#pragma once

#include <map>
#include <optional>

#include "sdk/verify/wrapped_kernels.h"
#include "tests/plugins/layer.h"

namespace octavo::test {

struct TeSetup {
  std::map<std::string, std::string> options;  // values as in a file, texts with quotes
  uint64_t alignment = 1;
  uint32_t weight_flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
};

class TeLayer {
 public:
  TeLayer(const TeSetup &setup, Matrix weight) : weight_(std::move(weight)) {
    std::string lines = "[fp8.te]\n";
    for (const auto &[name, value] : setup.options) lines += name + " = " + value + "\n";
    run_ = request_.set("fp8.backend", "te").set("plugins.trust", "dev").text(lines).opened();
    if (run_ == nullptr) throw std::runtime_error(request_.host.error());
    backend_ = octavo_run_backend(run_.get());
    kernels_.emplace(*octavo_run_session_desc(run_.get()), setup.alignment);
    const octavo_session_desc desc = kernels_->desc();
    expect(backend_->open_session(&desc, &session_), "open_session");
    const octavo_parameter_desc parameter =
        parameter_desc("w", weight_.rows, weight_.cols, setup.weight_flags);
    octavo_linear_desc linear{};
    linear.size = sizeof(linear);
    linear.kind = OCTAVO_KIND_LINEAR_DESC;
    linear.name = OCTAVO_STR("l");
    verdict_ = empty_verdict();
    uint32_t id = 0;
    expect(backend_->add_parameter(session_, &parameter, &verdict_, &id), "add_parameter");
    verdict_ = empty_verdict();
    expect(backend_->add_linear(session_, &linear, &verdict_, &id), "add_linear");
    octavo_slot_sink sink{};
    sink.size = sizeof(sink);
    sink.kind = OCTAVO_KIND_SLOT_SINK;
    sink.ctx = this;
    sink.slot = [](void *ctx, const octavo_slot *s) {
      static_cast<TeLayer *>(ctx)->add_slot(*s);
      return octavo_status{OCTAVO_OK};
    };
    sink.use = [](void *ctx, const octavo_slot_use *u) {
      static_cast<TeLayer *>(ctx)->uses_[u->owner_kind].push_back(u->slot);
      return octavo_status{OCTAVO_OK};
    };
    expect(backend_->seal(session_, &sink), "seal");
    plan_.size = sizeof(plan_);
    plan_.kind = OCTAVO_KIND_LINEAR_PLAN;
    expect(backend_->linear_plan(session_, 0, &plan_), "linear_plan");
  }
  ~TeLayer() { backend_->close_session(session_); }
  TeLayer(const TeLayer &) = delete;
  TeLayer &operator=(const TeLayer &) = delete;

  const octavo_linear_plan &plan() const { return plan_; }
  const octavo_verdict &verdict() const { return verdict_; }
  Matrix &weight() { return weight_; }
  const AlignedBytes &saved() const { return *saved_; }
  // Slots of these roles are given to no verb.
  void leave_out(std::vector<uint32_t> roles) { left_out_ = std::move(roles); }

  // The slot with this name; null when there is none.
  float *slot(const std::string &name) {
    for (Slot &s : slots_)
      if (s.name == name) return static_cast<float *>(s.memory->get());
    return nullptr;
  }
  const octavo_slot *described(const std::string &name) const {
    for (const Slot &s : slots_)
      if (s.name == name) return &s.desc;
    return nullptr;
  }

  // Codes of the weight as the cache of fprop holds them: in panels where the kernels have them.
  std::vector<uint8_t> as_cached(std::vector<uint8_t> codes) {
    const octavo_session_desc desc = kernels_->desc();
    const octavo_slot &cache = *described("weight_cache");
    if (desc.caps->pack_rows == 0) return codes;
    std::vector<uint8_t> packed(static_cast<size_t>(cache.rows * cache.cols));
    const octavo_tensor in{codes.data(), weight_.rows, weight_.cols, weight_.cols, cache.dtype, 0};
    octavo_tensor out{packed.data(), cache.rows, cache.cols, cache.cols, cache.dtype, 0};
    octavo_pack c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_PACK;
    c.in = &in;
    c.out = &out;
    expect(desc.kernels->pack(desc.kernels_ctx, &c), "pack");
    return packed;
  }

  void quantize_weight() {
    octavo_weight_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_WEIGHT_CALL;
    const AlignedBytes workspace(plan_.weight_workspace);
    const auto slots = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER);
    c.workspace = workspace.get();
    c.slots = slots.data();
    expect(backend_->quantize_weight(session_, &c), "quantize_weight");
  }

  Matrix forward(Matrix x, Matrix *bias = nullptr, uint32_t flags = 0) {
    return forward(tensor_of(x), bias, flags);
  }
  Matrix forward(const octavo_tensor &x, Matrix *bias, uint32_t flags = 0) {
    Matrix y;
    const auto run = [&](const octavo_forward_call &c) {
      return backend_->linear_forward(session_, &c);
    };
    expect(forward_in(plan_.forward_workspace, x, y, bias, flags, run), "linear_forward");
    return y;
  }

  // octavo.fused/1 of the plugin; `x` has a shape and a dtype, but no data.
  const octavo_fused *fused() const {
    return static_cast<const octavo_fused *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_FUSED_ID)));
  }
  octavo_status fused_workspace(octavo_extent *out) const {
    return fused()->workspace(session_, 0, out);
  }
  octavo_status apply(const octavo_prologue_call &c) {
    const octavo_session_desc &desc = *octavo_run_session_desc(run_.get());
    return desc.kernels->prologue(desc.kernels_ctx, &c);
  }
  octavo_status forward_fused(const octavo_prologue &p, const octavo_tensor &x,
                              const octavo_extent &workspace, Matrix &y, Matrix *bias,
                              uint32_t flags = 0) {
    return forward_in(workspace, x, y, bias, flags, [&](const octavo_forward_call &forward) {
      octavo_fused_forward_call c{};
      c.size = sizeof(c);
      c.kind = OCTAVO_KIND_FUSED_FORWARD_CALL;
      c.forward = &forward;
      c.prologue = &p;
      return fused()->linear_forward(session_, &c);
    });
  }
  // octavo.shard/1: the answer for shards of this many rows of the weight.
  octavo_status shard_plan(int64_t rows, octavo_shard_plan *out) const {
    *out = {};
    out->size = sizeof(*out);
    out->kind = OCTAVO_KIND_SHARD_PLAN;
    out->rows = rows;
    return static_cast<const octavo_shard *>(
               octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_SHARD_ID)))
        ->plan(session_, out);
  }
  std::string error() const { return request_.host.error(); }

  // dw and db start from what `g` holds when it has their shapes.
  void backward(Matrix dy, Matrix x, Gradients &g, uint32_t flags = 0) {
    backward(tensor_of(dy), tensor_of(x), g, flags);
  }
  void backward(const octavo_tensor &dy, const octavo_tensor &x, Gradients &g, uint32_t flags = 0) {
    g.dx = Matrix(dy.rows, weight_.cols, -1.0f);
    if (g.dw.v.empty()) g.dw = Matrix(weight_.rows, weight_.cols);
    if (g.db.v.empty()) g.db = Matrix(1, weight_.rows);
    octavo_tensor tdx = tensor_of(g.dx), tdw = tensor_of(g.dw), tdb = tensor_of(g.db);
    const AlignedBytes workspace(bytes(plan_.backward_workspace, dy.rows));
    const auto slots = list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR);
    octavo_backward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_BACKWARD_CALL;
    c.flags = flags;
    c.dy = &dy;
    c.x = (plan_.flags & OCTAVO_LINEAR_NEEDS_X) != 0 ? &x : nullptr;
    c.dx = &tdx;
    c.dw = &tdw;
    c.db = &tdb;
    c.slots = slots.data();
    c.saved = saved_->get();
    c.workspace = workspace.get();
    expect(backend_->linear_backward(session_, &c), "linear_backward");
  }

  void end_step() {
    octavo_step_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_STEP_CALL;
    const auto slots = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION);
    c.slots = slots.data();
    expect(backend_->end_step(session_, &c), "end_step");
  }

 private:
  struct Slot {
    octavo_slot desc;
    std::string name;
    std::unique_ptr<AlignedBytes> memory;
  };

  void expect(octavo_status status, const char *verb) {
    if (status != OCTAVO_OK) throw std::runtime_error(verb + (": " + request_.host.error()));
    const std::string violation = kernels_->take_violation();
    if (!violation.empty()) throw std::runtime_error(verb + (": " + violation));
  }
  template <typename Run>
  octavo_status forward_in(const octavo_extent &extent, const octavo_tensor &x, Matrix &y,
                           Matrix *bias, uint32_t flags, const Run &run) {
    y = Matrix(x.rows, weight_.rows, -1.0f);
    octavo_tensor ty = tensor_of(y), tb{};
    if (bias != nullptr) tb = tensor_of(*bias);
    saved_ = std::make_unique<AlignedBytes>(bytes(plan_.saved, x.rows));
    const AlignedBytes workspace(bytes(extent, x.rows));
    const auto slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR);
    octavo_forward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.flags = flags;
    c.x = &x;
    c.y = &ty;
    c.bias = bias == nullptr ? nullptr : &tb;
    c.slots = slots.data();
    c.saved = (flags & OCTAVO_FORWARD_EVALUATION) != 0 ? nullptr : saved_->get();
    c.workspace = workspace.get();
    return run(c);
  }
  void add_slot(const octavo_slot &desc) {
    const auto count = static_cast<uint64_t>(desc.rows * desc.cols);
    Slot s{desc, text_of(desc.name),
           std::make_unique<AlignedBytes>(count * (OCTAVO_DTYPE_BITS(desc.dtype) / 8))};
    std::memset(s.memory->get(), 0, s.memory->size());
    if (desc.initial != 0)
      std::fill_n(static_cast<float *>(s.memory->get()), count, static_cast<float>(desc.initial));
    slots_.push_back(std::move(s));
  }
  // What the verb may see: null where the access is NONE, the tensor of the test where native.
  std::vector<void *> list(uint32_t verb, uint32_t owner_kind) {
    std::vector<void *> out;
    for (const uint32_t id : uses_[owner_kind]) {
      const Slot &s = slots_[id];
      const bool absent =
          s.desc.access[verb] == OCTAVO_ACCESS_NONE ||
          std::find(left_out_.begin(), left_out_.end(), s.desc.role) != left_out_.end();
      const bool native = (s.desc.flags & OCTAVO_SLOT_NATIVE) != 0;
      out.push_back(absent ? nullptr : native ? weight_.v.data() : s.memory->get());
    }
    return out;
  }
  static uint64_t bytes(const octavo_extent &e, int64_t rows) {
    return octavo_extent_bytes(&e, static_cast<uint64_t>(rows));
  }

  Environment environment_;
  Request request_;
  RunPtr run_;
  const octavo_backend *backend_ = nullptr;
  std::optional<conformance::WrappedKernels> kernels_;
  octavo_session *session_ = nullptr;
  octavo_verdict verdict_{};
  octavo_linear_plan plan_{};
  std::vector<Slot> slots_;
  std::map<uint32_t, std::vector<uint32_t>> uses_;  // slots by the kind of the list's owner
  std::vector<uint32_t> left_out_;
  Matrix weight_;
  std::unique_ptr<AlignedBytes> saved_;
};

}  // namespace octavo::test
