// A session with a few linears in host memory, driven the way a host drives it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/plugins/expected.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/environment.h"
#include "tests/support/model.h"

namespace octavo::test {

inline octavo_tensor tensor_of(Matrix &m) {
  return {m.rows == 0 ? nullptr : m.v.data(), m.rows, m.cols, m.cols, OCTAVO_F32, 0};
}

// What one backward gives.
struct Gradients {
  Matrix dx;
  Matrix dw;
  Matrix db;
};

class Session {
 public:
  // Opens; `request` names the backend and its options.
  explicit Session(Request &request) : request_(request) {
    EXPECT_EQ(request.set("plugins.trust", "dev").open(run_), OCTAVO_OK) << request.host.error();
  }

  uint32_t add_weight(Matrix weight, uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT) {
    const std::string name = "w" + std::to_string(weights_.size());
    const Answer a =
        add_parameter(run_.get(), parameter_desc(name.c_str(), weight.rows, weight.cols, flags));
    EXPECT_EQ(a.status, OCTAVO_OK) << request_.host.error();
    weights_.push_back(std::move(weight));
    return a.id;
  }
  uint32_t add_linear(uint32_t weight) {
    const Answer a = test::add_linear(run_.get(), "l" + std::to_string(linears_.size()), weight);
    EXPECT_EQ(a.status, OCTAVO_OK) << request_.host.error();
    linears_.push_back(weight);
    return a.id;
  }
  void seal() {
    ASSERT_EQ(octavo_seal(run_.get()), OCTAVO_OK) << request_.host.error();
    if (store_ == nullptr) {
      octavo_store *raw = nullptr;
      ASSERT_EQ(octavo_store_open(run_.get(), &raw), OCTAVO_OK) << request_.host.error();
      store_.reset(raw);
    } else {
      ASSERT_EQ(octavo_store_extend(store_.get()), OCTAVO_OK) << request_.host.error();
    }
    for (uint32_t p = 0; p < weights_.size(); ++p)
      ASSERT_EQ(octavo_store_native(store_.get(), p, OCTAVO_ROLE_WEIGHT, weights_[p].v.data()),
                OCTAVO_OK)
          << request_.host.error();
  }

  Matrix &weight(uint32_t parameter) { return weights_[parameter]; }
  octavo_run *run() { return run_.get(); }
  const octavo_linear_plan &plan(uint32_t linear) { return *octavo_run_plan(run_.get(), linear); }

  // The slot with this name, in order of emission the nth; null when there is none.
  float *slot(const std::string &name, int nth = 0) {
    for (uint32_t id = 0; id < octavo_run_slot_count(run_.get()); ++id)
      if (text_of(octavo_run_slot(run_.get(), id)->name) == name && nth-- == 0)
        return static_cast<float *>(octavo_store_address(store_.get(), id));
    return nullptr;
  }

  void *const *slots(uint32_t verb, uint32_t owner_kind, uint32_t owner) {
    return list(verb, owner_kind, owner);
  }
  void *address(uint32_t slot) { return octavo_store_address(store_.get(), slot); }

  octavo_status quantize_weight(uint32_t parameter) {
    octavo_weight_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_WEIGHT_CALL;
    c.parameter = parameter;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < linears_.size(); ++l)
      if (linears_[l] == parameter) bytes = std::max(bytes, plan(l).weight_workspace);
    const AlignedBytes workspace(bytes);
    c.workspace = workspace.get();
    c.slots = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter);
    return backend()->quantize_weight(octavo_run_session(run_.get()), &c);
  }

  // y, and `saved` for the backward that follows. Slots of a null `slots` come from the store.
  octavo_status forward(uint32_t linear, Matrix &x, Matrix &y, Matrix *bias = nullptr,
                        void *const *slots = nullptr) {
    const octavo_tensor tx = tensor_of(x);
    y = Matrix(x.rows, weights_[linears_[linear]].rows, -1.0f);
    octavo_tensor ty = tensor_of(y);
    octavo_tensor tb{};
    if (bias != nullptr) tb = tensor_of(*bias);
    saved_ = std::make_unique<AlignedBytes>(bytes_of(plan(linear).saved, x.rows));
    const AlignedBytes workspace(bytes_of(plan(linear).forward_workspace, x.rows));
    octavo_forward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.linear = linear;
    c.x = &tx;
    c.y = &ty;
    c.bias = bias == nullptr ? nullptr : &tb;
    c.slots = slots ? slots : list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
    c.saved = saved_->get();
    c.workspace = workspace.get();
    return backend()->linear_forward(octavo_run_session(run_.get()), &c);
  }
  const AlignedBytes &saved() const { return *saved_; }

  // All three gradients; dw and db start from what `g` holds when it has their shapes.
  octavo_status backward(uint32_t linear, Matrix &dy, Matrix &x, Gradients &g, uint32_t flags = 0,
                         void *const *slots = nullptr) {
    const Matrix &w = weights_[linears_[linear]];
    g.dx = Matrix(dy.rows, w.cols, -1.0f);
    if (g.dw.v.empty()) g.dw = Matrix(w.rows, w.cols);
    if (g.db.v.empty()) g.db = Matrix(1, w.rows);
    const octavo_tensor tdy = tensor_of(dy);
    const octavo_tensor tx = tensor_of(x);
    octavo_tensor tdx = tensor_of(g.dx);
    octavo_tensor tdw = tensor_of(g.dw);
    octavo_tensor tdb = tensor_of(g.db);
    const AlignedBytes workspace(bytes_of(plan(linear).backward_workspace, dy.rows));
    octavo_backward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_BACKWARD_CALL;
    c.linear = linear;
    c.flags = flags;
    c.dy = &tdy;
    c.x = plan(linear).flags & OCTAVO_LINEAR_NEEDS_X ? &tx : nullptr;
    c.dx = &tdx;
    c.dw = plan(linear).gradient == OCTAVO_GRADIENT_SLOT ? nullptr : &tdw;
    c.db = &tdb;
    c.slots = slots ? slots : list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear);
    c.saved = saved_->get();
    c.workspace = workspace.get();
    return backend()->linear_backward(octavo_run_session(run_.get()), &c);
  }

  octavo_status end_step() {
    octavo_step_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_STEP_CALL;
    c.slots = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
    return backend()->end_step(octavo_run_session(run_.get()), &c);
  }

  // The linear's list with null in every position that the verb would accumulate into.
  std::vector<void *> without_accumulators(uint32_t verb, uint32_t linear) {
    std::vector<void *> own;
    void *const *full = list(verb, OCTAVO_OWNER_LINEAR, linear);
    for (uint32_t i = 0; i < octavo_run_use_count(run_.get(), OCTAVO_OWNER_LINEAR, linear); ++i) {
      const auto *use = octavo_run_use(run_.get(), OCTAVO_OWNER_LINEAR, linear, i);
      const octavo_slot *s = octavo_run_slot(run_.get(), use->slot);
      own.push_back(s->access[verb] == OCTAVO_ACCESS_ACCUMULATE ? nullptr : full[i]);
    }
    return own;
  }

 private:
  static uint64_t bytes_of(const octavo_extent &e, int64_t rows) {
    return octavo_extent_bytes(&e, static_cast<uint64_t>(rows));
  }
  const octavo_backend *backend() { return octavo_run_backend(run_.get()); }
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) {
    return octavo_store_slots(store_.get(), verb, owner_kind, owner);
  }

  Request &request_;
  RunPtr run_;
  StorePtr store_;
  std::vector<Matrix> weights_;
  std::vector<uint32_t> linears_;  // their weights
  std::unique_ptr<AlignedBytes> saved_;
};

// Equal bit for bit, so that -0 is not 0 and a wrong rounding shows.
inline void expect_same(const Matrix &found, const Matrix &expected, const std::string &what) {
  ASSERT_EQ(found.rows, expected.rows) << what;
  ASSERT_EQ(found.cols, expected.cols) << what;
  for (int64_t r = 0; r < found.rows; ++r)
    for (int64_t c = 0; c < found.cols; ++c)
      ASSERT_EQ(std::bit_cast<uint32_t>(found.at(r, c)), std::bit_cast<uint32_t>(expected.at(r, c)))
          << what << "[" << r << ", " << c << "]: found " << found.at(r, c) << ", expected "
          << expected.at(r, c);
}

inline Matrix plus_rows(Matrix m, const Matrix &bias) {
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) m.at(r, c) += bias.at(0, c);
  return m;
}

inline Matrix column_sums(const Matrix &m) {
  Matrix sums(1, m.cols);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) sums.at(0, c) += m.at(r, c);
  return sums;
}

}  // namespace octavo::test
