// One linear of te with delayed scaling and all that a training step of it needs, for bench_te.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/octavo.h"

namespace octavo::bench {

constexpr int64_t kM = 256;
constexpr int64_t kN = 512;
constexpr int64_t kK = 512;

// Ends the process: a bench of calls that fail measures nothing.
inline void require(octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return;
  std::fprintf(stderr, "bench_te: %s failed with status %d; expected OCTAVO_OK\n", what,
               static_cast<int>(status));
  std::exit(1);
}

inline octavo_str str_of(const std::string &s) {
  return {s.data(), s.size()};
}

// A dense matrix of its own, at a multiple of 256 bytes.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, float deviation = 0)
      : memory_(static_cast<float *>(
            ::operator new(static_cast<size_t>(rows *cols) * sizeof(float), kAlignment))),
        tensor_{memory_.get(), rows, cols, cols, OCTAVO_F32, 0} {
    std::mt19937 random(static_cast<uint32_t>(rows * 31 + cols));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * cols; ++i) memory_.get()[i] = deviation * normal(random);
  }
  octavo_tensor *tensor() { return &tensor_; }
  float *data() { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{256};
  struct Free {
    void operator()(float *p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> memory_;
  octavo_tensor tensor_;
};

inline Matrix bytes(uint64_t count) {
  return Matrix(1, static_cast<int64_t>(count / sizeof(float) + 1));
}

struct Close {
  void operator()(octavo_run *run) const { octavo_close(run); }
  void operator()(octavo_store *store) const { octavo_store_close(store); }
};

inline bool is_statistic(uint32_t role) {
  return role == OCTAVO_ROLE_SATURATED || role == OCTAVO_ROLE_UNDERFLOW ||
         role == OCTAVO_ROLE_SIGNAL || role == OCTAVO_ROLE_NOISE;
}

// One linear of te with delayed scaling, and all that a training step of it needs.
class Layer {
 public:
  explicit Layer(bool telemetry) {
    const std::string config =
        std::string(
            "mixed_precision = \"fp8\"\n[plugins]\ntrust = \"dev\"\n[fp8]\nbackend = "
            "\"te\"\n[fp8.te]\nrecipe = \"delayed\"\ntelemetry = ") +
        (telemetry ? "true\n" : "false\n");
    octavo_open_desc desc{};
    desc.size = sizeof desc;
    desc.kind = OCTAVO_KIND_OPEN_DESC;
    desc.config_text = str_of(config);
    octavo_run *run = nullptr;
    require(octavo_open(&desc, &run), "octavo_open of the backend te");
    run_.reset(run);
    describe();
    octavo_store *store = nullptr;
    require(octavo_store_open(run, &store), "octavo_store_open");
    store_.reset(store);
    require(octavo_store_native(store, 0, OCTAVO_ROLE_WEIGHT, w_.data()), "octavo_store_native");
    const octavo_linear_plan &plan = *octavo_run_plan(run, 0);
    octavo_extent fused{};
    require(
        static_cast<const octavo_fused *>(octavo_run_interface(run, OCTAVO_STR(OCTAVO_FUSED_ID)))
            ->workspace(octavo_run_session(run), 0, &fused),
        "fused workspace");
    saved_ = bytes(octavo_extent_bytes(&plan.saved, kM));
    workspace_ = bytes(std::max({octavo_extent_bytes(&plan.forward_workspace, kM),
                                 octavo_extent_bytes(&plan.backward_workspace, kM),
                                 octavo_extent_bytes(&fused, kM), plan.weight_workspace}));
    step(true);
  }

  void step(bool sampled) {
    auto w = make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
    const auto w_list = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, sampled);
    w.slots = w_list.data();
    w.workspace = workspace_.data();
    require(backend().quantize_weight(session(), &w), "quantize_weight");
    forward(x_, sampled);
    auto b = make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    const auto b_list = list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, sampled);
    b.flags = OCTAVO_BACKWARD_OVERWRITE;
    b.dy = dy_.tensor();
    b.dx = dx_.tensor();
    b.dw = dw_.tensor();
    b.slots = b_list.data();
    b.saved = saved_.data();
    b.workspace = workspace_.data();
    require(backend().linear_backward(session(), &b), "linear_backward");
    auto end = make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
    const auto end_list = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, true);
    end.slots = end_list.data();
    require(backend().end_step(session(), &end), "end_step");
  }

  void forward_fused(const octavo_prologue &prologue) {
    const octavo_tensor shape{nullptr, kM, kK, kK, OCTAVO_F32, 0};
    const auto slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, false);
    const octavo_forward_call forward = forward_call(shape, slots);
    auto c = make<octavo_fused_forward_call>(OCTAVO_KIND_FUSED_FORWARD_CALL);
    c.forward = &forward;
    c.prologue = &prologue;
    require(fused().linear_forward(session(), &c), "fused linear_forward");
  }

  void forward_apart(const octavo_prologue &prologue) {
    auto c = make<octavo_prologue_call>(OCTAVO_KIND_PROLOGUE_CALL);
    c.prologue = &prologue;
    c.out = between_.tensor();
    require(desc().kernels->prologue(desc().kernels_ctx, &c), "prologue");
    forward(between_, false);
  }

 private:
  template <typename Call>
  static Call make(uint32_t kind) {
    Call c{};
    c.size = sizeof c;
    c.kind = kind;
    return c;
  }
  const octavo_backend &backend() const { return *octavo_run_backend(run_.get()); }
  const octavo_fused &fused() const {
    return *static_cast<const octavo_fused *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_FUSED_ID)));
  }
  const octavo_session_desc &desc() const { return *octavo_run_session_desc(run_.get()); }
  const octavo_session *session() const { return octavo_run_session(run_.get()); }

  void describe() {
    auto p = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    p.name = OCTAVO_STR("w");
    p.rows = kN;
    p.cols = kK;
    p.dtype = p.gradient_dtype = OCTAVO_F32;
    p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    auto l = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    l.name = OCTAVO_STR("l");
    auto verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    uint32_t id = 0;
    require(octavo_add_parameter(run_.get(), &p, &verdict, &id), "octavo_add_parameter");
    verdict = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    require(octavo_add_linear(run_.get(), &l, &verdict, &id), "octavo_add_linear");
    require(octavo_seal(run_.get()), "octavo_seal");
  }

  // Null for statistics unless they are sampled, as train_gpt passes it.
  std::vector<void *> list(uint32_t verb, uint32_t owner_kind, bool sampled) const {
    void *const *all = octavo_store_slots(store_.get(), verb, owner_kind, 0);
    const uint32_t count = octavo_run_use_count(run_.get(), owner_kind, 0);
    std::vector<void *> pointers(all, all + count);
    for (uint32_t i = 0; i < count && !sampled; ++i) {
      const uint32_t slot = octavo_run_use(run_.get(), owner_kind, 0, i)->slot;
      if (is_statistic(octavo_run_slot(run_.get(), slot)->role)) pointers[i] = nullptr;
    }
    return pointers;
  }

  octavo_forward_call forward_call(const octavo_tensor &x, const std::vector<void *> &slots) {
    auto c = make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    c.x = &x;
    c.y = y_.tensor();
    c.slots = slots.data();
    c.saved = saved_.data();
    c.workspace = workspace_.data();
    return c;
  }

  void forward(Matrix &x, bool sampled) {
    const auto slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, sampled);
    const octavo_forward_call c = forward_call(*x.tensor(), slots);
    require(backend().linear_forward(session(), &c), "linear_forward");
  }

  std::unique_ptr<octavo_run, Close> run_;
  std::unique_ptr<octavo_store, Close> store_;
  Matrix w_{kN, kK, 0.04f}, x_{kM, kK, 1}, dy_{kM, kN, 0.01f};
  Matrix y_{kM, kN}, dx_{kM, kK}, dw_{kN, kK}, between_{kM, kK};
  Matrix saved_{1, 1}, workspace_{1, 1};
};

}  // namespace octavo::bench
