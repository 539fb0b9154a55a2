// What msamp refuses, with which words, and that nothing changes when it does.
#include <gmock/gmock.h>

#include "octavo/draft/msamp.h"
#include "tests/plugins/msamp_host.h"
#include "tests/support/abilities.h"

namespace octavo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string open_error(const std::string &lines) {
  Request r;
  RunPtr run;
  r.text("fp8.backend = \"msamp\"\nplugins.trust = \"dev\"\n[fp8.msamp]\n" + lines + "\n");
  return r.open(run) == OCTAVO_OK ? "opened" : r.host.error();
}

TEST(MsampRefuses, options_that_it_cannot_do) {
  EXPECT_THAT(open_error("amsgrad = true"), AllOf(HasSubstr("amsgrad is not possible"),
                                                  HasSubstr("set fp8.msamp.amsgrad = false")));
  EXPECT_EQ(open_error("amsgrad = false"), "opened");
  EXPECT_THAT(open_error("opt_level = \"O4\""),
              AllOf(HasSubstr("fp8.msamp.opt_level: expected \"O1\", \"O2\" or \"O3\", found "
                              "\"O4\"")));
  EXPECT_EQ(open_error("profile = \"msamp04\"\noptimizer = \"adam\""), "opened");
  // MS-AMP's moments without decay exist in its own formats only.
  EXPECT_THAT(
      open_error("profile = \"msamp04\"\noptimizer = \"adam\"\nstate_format = \"e4m3-block\""),
      HasSubstr("state_format = \"level\""));
}

// A linear's weight and a bias, one step behind them.
class MsampErrors : public testing::Test {
 protected:
  MsampErrors() {
    m.add_linear(rough_matrix(8, 16, 1, 1.0f));
    m.add_parameter(rough_matrix(1, 8, 2, 1.0f));
    m.add_parameter(rough_matrix(1, 8, 3, 1.0f), OCTAVO_PARAMETER_FROZEN);
    m.seal();
    give_gradients();
    EXPECT_EQ(m.step(), OCTAVO_OK) << m.error();
    before = m.snapshot(3);
  }
  void give_gradients() {
    EXPECT_EQ(m.write(0, OCTAVO_ROLE_GRADIENT, rough_matrix(8, 16, 5, 1.0f)), OCTAVO_OK);
    m.set_gradient(1, rough_matrix(1, 8, 6, 1.0f));
  }
  // The step is refused with these words, and nothing has changed.
  void expect_refused(const std::vector<octavo_parameter_item> &items, const std::string &words) {
    EXPECT_EQ(m.step_items(items), OCTAVO_INVALID);
    EXPECT_EQ(m.error(), words);
    EXPECT_TRUE(m.snapshot(3) == before);
  }
  // The list of parameter 1 with null in the position of this slot.
  std::vector<void *> list_without(const std::string &name) {
    void *const *full = m.list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
    std::vector<void *> own;
    for (uint32_t i = 0; i < octavo_run_use_count(m.run(), OCTAVO_OWNER_PARAMETER, 0); ++i) {
      const auto *use = octavo_run_use(m.run(), OCTAVO_OWNER_PARAMETER, 0, i);
      own.push_back(text_of(octavo_run_slot(m.run(), use->slot)->name) == name ? nullptr : full[i]);
    }
    return own;
  }
  Msamp m{"opt_level = \"O3\""};
  std::vector<std::vector<uint8_t>> before;
};

// A good item stands first: it must not have been stepped when the second is found bad.
TEST_F(MsampErrors, step_with_a_bad_item) {
  octavo_parameter_item bad = m.item(0);
  const std::vector<void *> no_gradient = list_without("gradient");
  bad.slots = no_gradient.data();
  expect_refused({m.item(1), bad},
                 "optimizer_step \"p0\": expected the address of its gradient, found null: hand in "
                 "the native tensor, or leave the parameter out of the step");
  bad = m.item(0, nullptr);
  expect_refused({m.item(1), bad},
                 "optimizer_step \"p0\": expected hyperparameters f32[8], found null");
  bad = m.item(0);
  bad.slots = nullptr;
  expect_refused({m.item(1), bad}, "optimizer_step \"p0\": expected its list, found null");
  expect_refused({m.item(1), m.item(2)},
                 "optimizer_step \"p2\": expected a parameter that is trained, found a frozen one");
  for (const char *slot : {"weight", "master_weight", "exp_avg", "exp_avg_sq"}) {
    const std::vector<void *> list = list_without(slot);
    bad = m.item(0);
    bad.slots = list.data();
    expect_refused({m.item(1), bad}, std::string("optimizer_step \"p0\": expected the address of "
                                                 "its ") +
                                         slot +
                                         ", found null: only the rank that owns a parameter steps "
                                         "it");
  }
  const std::vector<void *> no_step = list_without("step");
  bad.slots = no_step.data();
  expect_refused({m.item(1), bad},
                 "optimizer_step \"p0\": expected the address of its step count, found null: only "
                 "the rank that owns a parameter steps it");
}

TEST_F(MsampErrors, step_with_an_unknown_parameter) {
  octavo_parameter_item bad = m.item(0);
  bad.parameter = 3;
  uint64_t bytes = 0;
  EXPECT_EQ(m.optimizer()->workspace_bytes(m.session(), &bad.parameter, 1, &bytes), OCTAVO_INVALID);
  EXPECT_EQ(m.error(), "workspace_bytes: expected a sealed parameter below 3, found 3");
  const octavo_parameter_item items[] = {m.item(1), bad};
  auto c = Msamp::make<octavo_optimizer_call>(OCTAVO_KIND_OPTIMIZER_CALL);
  c.items = items;
  c.count = 2;
  EXPECT_EQ(m.optimizer()->optimizer_step(m.session(), &c), OCTAVO_INVALID);
  EXPECT_EQ(m.error(), "optimizer_step: expected a sealed parameter below 3, found 3");
  EXPECT_TRUE(m.snapshot(3) == before);
}

// A bias whose gradient the host never handed in.
// The drafts of octavo/draft/msamp.h are not in every table.
TEST(MsampRefuses, kernels_without_the_drafts_that_it_needs) {
  Request r;
  const RunPtr run = r.set("fp8.backend", "msamp").set("plugins.trust", "dev").opened();
  ASSERT_NE(run, nullptr) << r.host.error();
  octavo_session_desc desc{};
  OCTAVO_TAKE(desc, octavo_run_session_desc(run.get()));
  LackingKernels kernels(*desc.kernels);
  desc.kernels = &kernels.table;
  LackingKernels::calls() = {OCTAVO_KIND_PRESCALE_UPDATE};
  octavo_session *session = nullptr;
  const octavo_backend *backend = octavo_run_backend(run.get());
  EXPECT_EQ(backend->open_session(&desc, &session), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(r.host.error(), AllOf(HasSubstr("the kernels lack the automatic pre-scale"),
                                    HasSubstr("set fp8.msamp.prescale = \"sqrt\"")));
  LackingKernels::calls().clear();
  LackingKernels::granularities() = {OCTAVO_EXPANDED_128};
  EXPECT_EQ(backend->open_session(&desc, &session), OCTAVO_OK) << "O2 has no such states";
  backend->close_session(session);
}

TEST(MsampRefuses, native_gradient_not_handed_in) {
  Msamp m;
  const Answer bias = add_parameter(m.run(), parameter_desc("bias", 1, 4, 0));
  ASSERT_EQ(octavo_seal(m.run()), OCTAVO_OK);
  octavo_store *raw = nullptr;
  ASSERT_EQ(octavo_store_open(m.run(), &raw), OCTAVO_OK);
  const StorePtr store(raw);
  float weight[4] = {1, 2, 3, 4};
  ASSERT_EQ(octavo_store_native(raw, bias.id, OCTAVO_ROLE_WEIGHT, weight), OCTAVO_OK);
  EXPECT_EQ(m.step_items({{bias.id, 0,
                           octavo_store_slots(raw, OCTAVO_VERB_OPTIMIZER_STEP,
                                              OCTAVO_OWNER_PARAMETER, bias.id),
                           m.hyper()}}),
            OCTAVO_INVALID);
  EXPECT_THAT(m.error(), HasSubstr("\"bias\": expected the address of its gradient, found null"));
  EXPECT_EQ(weight[0], 1.0f);
}

// A rank that does not own the parameter has no WHOLE slots for it.
TEST(MsampRefuses, step_on_the_wrong_rank) {
  for (const char *level : {"O1", "O3"}) {
    Msamp m(std::string("opt_level = \"") + level + "\"", 1, 2);
    m.add_linear(rough_matrix(8, 16, 1, 1.0f));
    m.seal();
    ASSERT_EQ(octavo_store_owner(m.store(), 0), 0u);
    const auto before = m.snapshot(1);
    EXPECT_EQ(m.step_items({m.item(0)}), OCTAVO_INVALID);
    EXPECT_THAT(m.error(), HasSubstr("only the rank that owns a parameter steps it"));
    EXPECT_TRUE(m.snapshot(1) == before);
    EXPECT_EQ(m.step(), OCTAVO_OK) << "a rank without parameters has nothing to step";
  }
}

TEST_F(MsampErrors, copies_of_another_shape_or_dtype) {
  Matrix wrong(16, 8);
  for (const bool reads : {true, false}) {
    const std::string verb = reads ? "read_parameter" : "write_parameter";
    const auto copy = [&](uint32_t parameter, uint32_t role, const octavo_tensor &t) {
      return reads ? m.read_to(parameter, role, t) : m.write_from(parameter, role, t);
    };
    EXPECT_EQ(copy(0, OCTAVO_ROLE_WEIGHT, tensor_of(wrong)), OCTAVO_INVALID);
    EXPECT_EQ(m.error(), verb +
                             " \"p0\": expected the shape [8, 16] that it was added with, found "
                             "[16, 8]");
    Matrix right(8, 16);
    octavo_tensor t = tensor_of(right);
    EXPECT_EQ(copy(0, OCTAVO_ROLE_AMAX, t), OCTAVO_INVALID);
    EXPECT_THAT(m.error(), HasSubstr(verb + " \"p0\": expected a role that this parameter has"));
    t.dtype = OCTAVO_E4M3FN;
    EXPECT_EQ(copy(0, OCTAVO_ROLE_WEIGHT, t), OCTAVO_INVALID);
    EXPECT_THAT(m.error(), HasSubstr("expected f32, bf16 or f16, found dtype"));
    auto c = Msamp::make<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
    c.parameter = 3;
    const auto call = reads ? m.optimizer()->read_parameter : m.optimizer()->write_parameter;
    EXPECT_EQ(call(m.session(), &c), OCTAVO_INVALID);
    EXPECT_EQ(m.error(), verb + ": no such parameter is sealed");
  }
  EXPECT_TRUE(m.snapshot(3) == before);
}

TEST_F(MsampErrors, objects_that_cannot_be_added) {
  const auto expect_error = [&](const Answer &a, const std::string &words) {
    EXPECT_EQ(a.status, OCTAVO_INVALID);
    EXPECT_EQ(m.error(), words);
  };
  expect_error(add_weight(m.run(), "empty", 0, 4),
               "add_parameter \"empty\": expected at least one row and column, found [0, 4]");
  expect_error(add_linear(m.run(), "late", 77),
               "linear \"late\": expected a parameter id below 3, found 77");
  expect_error(add_linear(m.run(), "late", 1),
               "add_linear \"late\": expected the id of a parameter added as LINEAR_WEIGHT, found "
               "1");
  const Answer a = add_parameter(m.run(), parameter_desc("codes", 4, 4, 0, OCTAVO_E4M3FN));
  EXPECT_EQ(a.status, OCTAVO_OK);
  EXPECT_EQ(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(a.verdict.reason, uint32_t{OCTAVO_REASON_DTYPE});
  // No trace is left: the next parameter gets the next id.
  EXPECT_EQ(add_weight(m.run(), "good", 4, 4).id, 3u);
}

// The gradient is a slot, so a dw is a mistake that would otherwise stay 0.
TEST_F(MsampErrors, dw_beside_the_gradient_slot) {
  Matrix x = rough_matrix(2, 16, 1, 1.0f), dy = rough_matrix(2, 8, 2, 1.0f), y(2, 8);
  Matrix dx(2, 16), dw(8, 16);
  const auto saved = m.saved_for(0, 2);
  ASSERT_EQ(m.forward_to(0, tensor_of(x), tensor_of(y), nullptr, saved->get()), OCTAVO_OK);
  before = m.snapshot(3);
  octavo_tensor tdx = tensor_of(dx), tdw = tensor_of(dw);
  EXPECT_EQ(m.backward_to(0, tensor_of(dy), &tdx, &tdw, nullptr, saved->get()), OCTAVO_INVALID);
  EXPECT_TRUE(m.snapshot(3) == before);
  // abi.h: the detail goes to diagnose before a failing function returns.
  EXPECT_THAT(m.error(), HasSubstr("dw"));
}

// More items than cross to the kernels at once: the last one is looked at before the first is
// stepped.
TEST(MsampRefuses, a_misaligned_address_behind_many_good_items) {
  constexpr uint32_t kMany = 40;
  Msamp m("opt_level = \"O1\"");
  for (uint32_t p = 0; p < kMany; ++p) m.add_parameter(rough_matrix(1, 5, p, 1.0f));
  m.seal();
  std::vector<octavo_parameter_item> items;
  for (uint32_t p = 0; p < kMany; ++p) {
    m.set_gradient(p, rough_matrix(1, 5, 100 + p, 1.0f));
    items.push_back(m.item(p));
  }
  const uint32_t uses = octavo_run_use_count(m.run(), OCTAVO_OWNER_PARAMETER, kMany - 1);
  std::vector<void *> odd(items.back().slots, items.back().slots + uses);
  odd[0] = static_cast<char *>(odd[0]) + 1;  // the weight comes first
  items.back().slots = odd.data();
  const std::vector<float> before = m.value(0).v;
  EXPECT_EQ(m.step_items(items), OCTAVO_INVALID);
  EXPECT_THAT(m.error(), HasSubstr("optimizer_step \"p39\": expected its weight at an address that "
                                   "is a multiple"));
  EXPECT_EQ(m.value(0).v, before);
}

TEST(MsampRefuses, operands_that_do_not_fit_the_weight) {
  Msamp m;
  const uint32_t linear = m.add_linear(rough_matrix(8, 16, 1, 1.0f));
  m.seal();
  Matrix narrow = rough_matrix(4, 12, 2, 1.0f), x = rough_matrix(4, 16, 2, 1.0f), y, dx;
  EXPECT_EQ(m.forward(linear, narrow, y), OCTAVO_INVALID);
  EXPECT_THAT(m.error(),
              HasSubstr("expected x of [4, 16] with a stride of 16 or more, found [4, 12]"));
  ASSERT_EQ(m.forward(linear, x, y), OCTAVO_OK) << m.error();
  Matrix short_dy = rough_matrix(4, 5, 3, 1.0f);
  EXPECT_EQ(m.backward(linear, short_dy, dx), OCTAVO_INVALID);
  EXPECT_THAT(m.error(),
              HasSubstr("expected dy of [4, 8] with a stride of 8 or more, found [4, 5]"));
}

}  // namespace
}  // namespace octavo::test
