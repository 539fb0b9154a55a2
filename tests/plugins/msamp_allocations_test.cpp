// After the first step of msamp a whole step allocates nothing: one rank, and two ranks as threads
// with the reduction of gradients, of REDUCE slots and the exchange of weights between them.
//
// A program of its own, since it replaces the global operator new. That is checked to count what
// the plugin allocates, so a count of 0 means something; mallinfo2 sees what C code takes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <thread>

#include "octavo/draft/reduction.h"
#include "tests/plugins/counting_new.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

// One rank with every buffer of its calls made beforehand: a linear, a bias, a padding-free batch.
class Rank {
 public:
  static constexpr int64_t kM = 24, kN = 40, kK = 56;

  Rank(const std::string &lines, uint32_t rank, uint32_t world)
      : m_(lines, rank, world),
        x_(rough_matrix(kM, kK, 3 + rank, 2.0f)),
        y_(kM, kN),
        dy_(rough_matrix(kM, kN, 7 + rank, 0.5f)),
        dx_(kM, kK) {
    m_.add_linear(rough_matrix(kN, kK, 1, 1.0f));
    m_.add_parameter(rough_matrix(1, kN, 2, 1.0f));
    m_.seal();
    const octavo_linear_plan &plan = m_.plan(0);
    weight_ = memory(plan.weight_workspace);
    saved_ = memory(octavo_extent_bytes(&plan.saved, kM));
    forward_ = memory(octavo_extent_bytes(&plan.forward_workspace, kM));
    backward_ = memory(octavo_extent_bytes(&plan.backward_workspace, kM));
    const uint32_t both[] = {0, 1};
    uint64_t bytes = 0, state = 0;
    EXPECT_EQ(m_.optimizer()->workspace_bytes(m_.session(), both, 2, &bytes), OCTAVO_OK);
    step_ = memory(bytes);
    EXPECT_EQ(octavo_reduction_bytes(m_.run(), both, 1, world, &bytes, &state), OCTAVO_OK);
    send_ = memory(bytes);
    recv_ = memory(bytes);
    state_ = memory(state);
    for (uint32_t p = 0; p < 2; ++p) {
      all_[p] = item(p, OCTAVO_VERB_OPTIMIZER_STEP);
      if (octavo_store_owner(m_.store(), p) == rank) owned_[owned_count_++] = all_[p];
    }
    reduced_ = item(0, OCTAVO_VERB_REDUCE);
  }

  // The first verb that fails, as its place in the order; 0: none.
  int step(const octavo_collective *ranks) {
    auto q = Msamp::make<octavo_weight_call>(OCTAVO_KIND_WEIGHT_CALL);
    q.slots = m_.list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, 0);
    q.workspace = weight_->get();
    if (m_.backend()->quantize_weight(m_.session(), &q) != OCTAVO_OK) return 1;
    const octavo_tensor x = tensor_of(x_), dy = tensor_of(dy_), bias = tensor_of(m_.value(1));
    octavo_tensor y = tensor_of(y_), dx = tensor_of(dx_), db = tensor_of(m_.gradient(1));
    auto f = Msamp::make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    f.x = &x;
    f.y = &y;
    f.bias = &bias;
    f.slots = m_.list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
    f.saved = saved_->get();
    f.workspace = forward_->get();
    if (m_.backend()->linear_forward(m_.session(), &f) != OCTAVO_OK) return 2;
    auto b = Msamp::make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    b.dy = &dy;
    b.dx = &dx;
    b.db = &db;
    b.slots = m_.list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, 0);
    b.saved = saved_->get();
    b.workspace = backward_->get();
    if (m_.backend()->linear_backward(m_.session(), &b) != OCTAVO_OK) return 3;
    if (ranks != nullptr &&
        octavo_reduce_gradients(m_.run(), &reduced_, 1, ranks, send_->get(), recv_->get(),
                                state_->get(), nullptr) != OCTAVO_OK)
      return 4;
    if (ranks != nullptr && octavo_store_reduce(m_.store(), ranks, nullptr) != OCTAVO_OK) return 5;
    float sum = 0;
    auto n = Msamp::make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
    n.items = all_;
    n.count = 2;
    n.sum = &sum;
    n.workspace = step_->get();
    if (m_.optimizer()->sum_of_squares(m_.session(), &n) != OCTAVO_OK) return 6;
    m_.hyper()[OCTAVO_HYPER_GRAD_SCALE] = 1 / (1 + std::sqrt(sum));
    auto o = Msamp::make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
    o.items = owned_;
    o.count = owned_count_;
    o.skip = m_.floats("nonfinite");
    o.workspace = step_->get();
    if (m_.optimizer()->optimizer_step(m_.session(), &o) != OCTAVO_OK) return 7;
    if (ranks != nullptr && octavo_store_publish(m_.store(), ranks, nullptr) != OCTAVO_OK) return 8;
    if (octavo_store_clear(m_.store(), OCTAVO_ROLE_GRADIENT) != OCTAVO_OK) return 9;
    auto e = Msamp::make<octavo_step_call>(OCTAVO_KIND_STEP_CALL);
    e.slots = m_.list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
    return m_.backend()->end_step(m_.session(), &e) == OCTAVO_OK ? 0 : 10;
  }
  Msamp &host() { return m_; }

 private:
  static std::unique_ptr<AlignedBytes> memory(uint64_t bytes) {
    return std::make_unique<AlignedBytes>(bytes);
  }
  octavo_parameter_item item(uint32_t parameter, uint32_t verb) {
    return {parameter, 0, m_.list(verb, OCTAVO_OWNER_PARAMETER, parameter), m_.hyper()};
  }
  Msamp m_;
  Matrix x_, y_, dy_, dx_;
  std::unique_ptr<AlignedBytes> weight_, saved_, forward_, backward_, step_, send_, recv_, state_;
  octavo_parameter_item all_[2] = {}, owned_[2] = {}, reduced_ = {};
  uint64_t owned_count_ = 0;
};

class MsampAllocations : public testing::TestWithParam<Variant> {};

TEST_P(MsampAllocations, one_rank) {
  Rank rank(GetParam().lines, 0, 1);
  ASSERT_EQ(rank.step(nullptr), 0) << rank.host().error();
  int failed = 0;
  const size_t in_use = mallinfo2().uordblks;
  const uint64_t before = allocations;
  for (int k = 0; k < 5; ++k) failed += rank.step(nullptr);
  const uint64_t after = allocations;
  const size_t in_use_then = mallinfo2().uordblks;
  EXPECT_EQ(after - before, 0u);
  EXPECT_EQ(in_use_then, in_use);
  EXPECT_EQ(failed, 0) << rank.host().error();
  EXPECT_EQ(*static_cast<int32_t *>(rank.host().memory("step")), 6);
}

// The threads start before the count and end behind it: a barrier of the ranks' own collective
// stands around the steps that count.
TEST_P(MsampAllocations, two_ranks) {
  constexpr uint32_t kWorld = 2;
  octavo_ranks *ranks = nullptr;
  ASSERT_EQ(octavo_ranks_open(kWorld, &ranks), OCTAVO_OK);
  std::vector<std::unique_ptr<Rank>> all;
  for (uint32_t r = 0; r < kWorld; ++r)
    all.push_back(std::make_unique<Rank>(GetParam().lines, r, kWorld));
  int failed[kWorld] = {};
  uint64_t counted_steps[kWorld] = {};
  auto body = [&](uint32_t r) {
    const octavo_collective *c = octavo_ranks_collective(ranks, r);
    failed[r] = all[r]->step(c);
    const auto meet = [&] {
      float in = 1, out = 0;
      failed[r] +=
          c->run(c->ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &in, 1, &out, 1, nullptr);
    };
    meet();
    const uint64_t before = allocations;
    meet();
    for (int k = 0; k < 5; ++k) failed[r] += all[r]->step(c);
    meet();
    counted_steps[r] = allocations - before;
    meet();
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  octavo_ranks_close(ranks);
  for (uint32_t r = 0; r < kWorld; ++r) {
    EXPECT_EQ(failed[r], 0) << all[r]->host().error();
    EXPECT_EQ(counted_steps[r], 0u) << "rank " << r;
  }
}

constexpr Variant kVariants[] = {{"o1", "opt_level = \"O1\""},
                                 {"o2", "opt_level = \"O2\"\none_shot_bytes = 0"},
                                 {"o3", "opt_level = \"O3\""},
                                 {"coat", "state_format = \"coat\"\nweight_cache = false"},
                                 {"fp32_gradients", "gradient_accumulation = \"fp32\""},
                                 {"msamp04", "profile = \"msamp04\"\nprescale = \"sqrt\""}};
INSTANTIATE_TEST_SUITE_P(Of, MsampAllocations, testing::ValuesIn(kVariants), name_of);

// The count sees the plugin: a refusal in it builds its text there.
TEST(MsampAllocationCount, sees_the_plugin) {
  Rank rank("", 0, 1);
  const uint32_t unknown = 77;  // its refusal is a text with numbers in it
  struct Quiet {
    static void diagnose(void *, const octavo_diagnostic *) {}
  };
  octavo_host quiet = *rank.host().request().host.get();
  quiet.diagnose = Quiet::diagnose;
  octavo_session_desc desc = *octavo_run_session_desc(rank.host().run());
  desc.host = &quiet;
  octavo_session *session = nullptr;
  const uint64_t before_open = allocations;
  ASSERT_EQ(rank.host().backend()->open_session(&desc, &session), OCTAVO_OK);
  EXPECT_GE(allocations - before_open, 1u);  // the session itself
  const uint64_t before = allocations;
  uint64_t bytes = 0;
  EXPECT_EQ(rank.host().optimizer()->workspace_bytes(session, &unknown, 1, &bytes), OCTAVO_INVALID);
  EXPECT_GE(allocations - before, 1u);
  rank.host().backend()->close_session(session);
}

}  // namespace
}  // namespace octavo::test
