// A run: placement of layers, ids, and what the seals emitted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class RunTest : public testing::Test {
 protected:
  void open(const std::string &toml = "") {
    put_fake(dir, "plugins");
    request.text("plugins.trust = \"dev\"\n" + toml)
        .set("fp8.backend", "fake")
        .plugins(dir / "plugins");
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  }
  octavo_run *r() { return run.get(); }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
};

TEST_F(RunTest, codes_of_a_slot_that_is_not_packed_are_its_bytes) {
  open();
  add_weight(r(), "w0", 4, 8);
  add_linear(r(), "a", 0);
  ASSERT_EQ(octavo_seal(r()), OCTAVO_OK) << request.host.error();
  const octavo_slot *slot = octavo_run_slot(r(), 0);
  std::vector<char> memory(static_cast<size_t>(slot->rows * slot->cols) * 4), out(memory.size(), 1);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i);
  ASSERT_EQ(octavo_run_codes(r(), 0, memory.data(), out.data()), OCTAVO_OK);
  const size_t bytes =
      static_cast<size_t>(slot->rows * slot->cols) * (OCTAVO_DTYPE_BITS(slot->dtype) / 8);
  EXPECT_EQ(std::memcmp(memory.data(), out.data(), bytes), 0);
  EXPECT_TRUE(bytes == out.size() || out[bytes] == 1);
  EXPECT_EQ(octavo_run_codes(r(), 99, memory.data(), out.data()), OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::HasSubstr("octavo_run_codes: expected a slot below"));
  EXPECT_EQ(octavo_run_codes(r(), 0, nullptr, out.data()), OCTAVO_INVALID);
  EXPECT_EQ(octavo_run_codes(r(), 0, memory.data(), nullptr), OCTAVO_INVALID);
}

TEST_F(RunTest, ids_slots_uses_and_plans) {
  open();
  EXPECT_EQ(add_weight(r(), "w0", 4, 8).id, 0u);
  EXPECT_EQ(add_weight(r(), "w1", 2, 3).id, 1u);
  EXPECT_EQ(add_linear(r(), "a", 0).id, 0u);
  EXPECT_EQ(add_linear(r(), "b", 1).id, 1u);
  EXPECT_EQ(octavo_run_slot_count(r()), 0u);
  EXPECT_EQ(octavo_run_plan(r(), 0), nullptr);
  ASSERT_EQ(octavo_seal(r()), OCTAVO_OK) << request.host.error();
  ASSERT_EQ(octavo_run_slot_count(r()), 8u);
  for (uint32_t id = 0; id < 8; ++id) EXPECT_EQ(octavo_run_slot(r(), id)->id, id);
  EXPECT_EQ(octavo_run_slot(r(), 8), nullptr);
  const octavo_slot *pool = octavo_run_slot(r(), 7);
  EXPECT_EQ(text_of(pool->name), "x/amax");
  EXPECT_EQ(pool->cols, 2);
  ASSERT_NE(pool->labels, nullptr);
  EXPECT_EQ(text_of(pool->labels[0]), "a");
  EXPECT_EQ(text_of(pool->labels[1]), "b");
  EXPECT_EQ(octavo_run_use_count(r(), OCTAVO_OWNER_SESSION, 0), 2u);
  EXPECT_EQ(octavo_run_use_count(r(), OCTAVO_OWNER_PARAMETER, 1), 3u);
  EXPECT_EQ(octavo_run_use_count(r(), OCTAVO_OWNER_LINEAR, 1), 3u);
  const octavo_slot_use *u = octavo_run_use(r(), OCTAVO_OWNER_LINEAR, 1, 1);
  ASSERT_NE(u, nullptr);
  EXPECT_EQ(u->slot, 7u);
  EXPECT_EQ(u->first, 1u);
  EXPECT_EQ(u->count, 1u);
  EXPECT_EQ(octavo_run_use(r(), OCTAVO_OWNER_LINEAR, 1, 3), nullptr);
  EXPECT_EQ(octavo_run_use_count(r(), OCTAVO_OWNER_LINEAR, 2), 0u);
  EXPECT_EQ(octavo_run_use_count(r(), 99, 0), 0u);
  ASSERT_NE(octavo_run_plan(r(), 1), nullptr);
  EXPECT_EQ(octavo_run_plan(r(), 1)->gradient, uint32_t{OCTAVO_GRADIENT_TENSOR});
  EXPECT_EQ(octavo_run_plan(r(), 2), nullptr);
}

TEST_F(RunTest, second_seal_keeps_what_was_emitted) {
  open();
  add_weight(r(), "w0", 4, 8);
  add_linear(r(), "a", 0);
  ASSERT_EQ(octavo_seal(r()), OCTAVO_OK);
  const octavo_slot *first = octavo_run_slot(r(), 0);
  const octavo_slot *pool = octavo_run_slot(r(), 4);
  const octavo_slot_use *use = octavo_run_use(r(), OCTAVO_OWNER_LINEAR, 0, 0);
  const octavo_linear_plan *plan = octavo_run_plan(r(), 0);
  const octavo_slot before = *pool;
  for (int more = 0; more < 20; ++more)
    EXPECT_EQ(add_linear(r(), "l" + std::to_string(more), 0).id, 1u + static_cast<uint32_t>(more));
  ASSERT_EQ(octavo_seal(r()), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(octavo_run_slot_count(r()), 6u);
  EXPECT_EQ(octavo_run_slot(r(), 0), first);
  EXPECT_EQ(octavo_run_slot(r(), 4), pool);
  EXPECT_EQ(std::memcmp(&before, pool, sizeof(before)), 0);
  EXPECT_EQ(octavo_run_use(r(), OCTAVO_OWNER_LINEAR, 0, 0), use);
  EXPECT_EQ(octavo_run_plan(r(), 0), plan);
  EXPECT_EQ(octavo_run_use_count(r(), OCTAVO_OWNER_SESSION, 0), 3u);
  EXPECT_EQ(octavo_run_slot(r(), 5)->cols, 20);
  ASSERT_EQ(octavo_seal(r()), OCTAVO_OK);  // with nothing new
  EXPECT_EQ(octavo_run_slot_count(r()), 6u);
}

TEST_F(RunTest, skip_by_the_linears_name) {
  open("[layers]\nskip = [\"*head*\", \"h.0.*\"]");
  add_weight(r(), "w", 4, 8);
  const Answer a = add_linear(r(), "lm_head", 0);
  EXPECT_EQ(a.status, OCTAVO_OK);
  EXPECT_EQ(a.id, OCTAVO_NONE);
  EXPECT_EQ(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(a.verdict.reason, uint32_t{OCTAVO_REASON_POLICY});
  EXPECT_EQ(a.verdict.level, uint32_t{OCTAVO_LEVEL_LAYER});
  EXPECT_EQ(text_of(a.verdict.text), "runs in the host: layers.skip names it");
  EXPECT_EQ(text_of(a.verdict.evidence), "pattern \"*head*\", octavo.toml:3:1");
  EXPECT_EQ(add_linear(r(), "h.1.fc", 0).id, 0u);  // no id was used up
}

TEST_F(RunTest, skip_by_the_weights_name) {
  open("[layers]\nskip = [\"wte*\"]");
  EXPECT_EQ(add_weight(r(), "wte.weight", 4, 8).id, 0u);
  const Answer a = add_linear(r(), "output", 0);
  EXPECT_EQ(a.verdict.decision, uint32_t{OCTAVO_DECLINE});
  EXPECT_EQ(text_of(a.verdict.evidence), "pattern \"wte*\", octavo.toml:3:1");
  EXPECT_EQ(octavo_seal(r()), OCTAVO_OK);
}

TEST_F(RunTest, bad_parameter_ids_and_null_arguments) {
  open();
  const Answer a = add_linear(r(), "l", 3);
  EXPECT_EQ(a.status, OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(), "linear \"l\": expected a parameter id below 0, found 3");
  uint32_t id = 0;
  EXPECT_EQ(octavo_add_linear(r(), nullptr, nullptr, &id), OCTAVO_INVALID);
  EXPECT_EQ(octavo_add_parameter(r(), nullptr, nullptr, &id), OCTAVO_INVALID);
  EXPECT_EQ(octavo_add_parameter(nullptr, nullptr, nullptr, &id), OCTAVO_INVALID);
  EXPECT_EQ(octavo_seal(nullptr), OCTAVO_INVALID);
  octavo_close(nullptr);
}

TEST_F(RunTest, a_name_without_an_address) {
  open();
  auto d = parameter_desc("w", 4, 8);
  d.name = {nullptr, 5};
  EXPECT_EQ(add_parameter(r(), d).status, OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(),
            "a parameter: expected the address of a name of 5 bytes, found null");
  EXPECT_EQ(add_weight(r(), "w", 4, 8).id, 0u);
  octavo_linear_desc l{};
  l.size = sizeof(l);
  l.kind = OCTAVO_KIND_LINEAR_DESC;
  l.name = {nullptr, 3};
  uint32_t id = 0;
  EXPECT_EQ(octavo_add_linear(r(), &l, nullptr, &id), OCTAVO_INVALID);
  EXPECT_EQ(request.host.error(),
            "a linear: expected the address of a name of 3 bytes, found null");
}

// A backend may put it into the labels of a slot, which have that limit.
TEST_F(RunTest, a_name_of_a_megabyte_is_not_the_fault_of_the_backend) {
  open();
  for (const size_t size : {size_t{4097}, size_t{1} << 20}) {
    const std::string name(size, 'n');
    EXPECT_EQ(add_parameter(r(), parameter_desc(name.c_str(), 4, 8)).status, OCTAVO_INVALID);
    EXPECT_EQ(request.host.error(), "a parameter: expected a name of at most 4096 bytes, found " +
                                        std::to_string(size) + "; give a shorter one");
  }
  const std::string name(4096, 'n');
  EXPECT_EQ(add_weight(r(), name.c_str(), 4, 8).id, 0u);
}

// The keys of one would be those of the other in a checkpoint.
TEST_F(RunTest, a_name_given_twice_is_refused) {
  open();
  const uint32_t weight = add_weight(r(), "w", 4, 8).id;
  EXPECT_EQ(add_linear(r(), "l", weight).status, OCTAVO_OK);
  const std::string words = ": expected a name that no other one of this run has, found ";
  EXPECT_EQ(add_parameter(r(), parameter_desc("w", 4, 8)).status, OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::StartsWith("a parameter" + words + "\"w\" again"));
  EXPECT_EQ(add_linear(r(), "l", weight).status, OCTAVO_INVALID);
  EXPECT_THAT(request.host.error(), testing::StartsWith("a linear" + words + "\"l\" again"));
  EXPECT_EQ(add_linear(r(), "w", weight).status, OCTAVO_OK);  // a linear's name and a parameter's
}

TEST_F(RunTest, verdict_may_be_null_or_short) {
  open();
  const octavo_parameter_desc d = parameter_desc("w", 4, 8);
  uint32_t id = 9;
  EXPECT_EQ(octavo_add_parameter(r(), &d, nullptr, &id), OCTAVO_OK);
  EXPECT_EQ(id, 0u);
  octavo_verdict v = empty_verdict();
  v.size = OCTAVO_SIZE_THROUGH(octavo_verdict, reason);
  v.text = OCTAVO_STR("untouched");
  const octavo_parameter_desc e = parameter_desc("v", 4, 8);
  EXPECT_EQ(octavo_add_parameter(r(), &e, &v, &id), OCTAVO_OK);
  EXPECT_EQ(v.decision, uint32_t{OCTAVO_ACCEPT});
  EXPECT_EQ(text_of(v.text), "untouched");
}

TEST_F(RunTest, failed_parameter_leaves_no_id) {
  Request te;
  te.set("fp8.backend", "te").set("plugins.trust", "dev");
  ASSERT_EQ(te.open(run), OCTAVO_OK) << te.host.error();
  const Answer bad = add_weight(r(), "w", 0, 8);
  EXPECT_EQ(bad.status, OCTAVO_INVALID);
  EXPECT_EQ(bad.id, OCTAVO_NONE);
  EXPECT_EQ(te.host.error(),
            "add_parameter \"w\": expected at least one row and column, found [0, 8]");
  for (const int64_t huge : {INT64_MAX, (int64_t{1} << 40) + 1}) {
    EXPECT_EQ(add_weight(r(), "w", 1, huge).status, OCTAVO_INVALID);
    EXPECT_EQ(te.host.error(),
              "add_parameter \"w\": expected at most 2^40 rows and columns and 2^50 elements, "
              "found [1, " +
                  std::to_string(huge) + "]");
    EXPECT_EQ(add_weight(r(), "w", huge, 1).status, OCTAVO_INVALID);
  }
  EXPECT_EQ(add_weight(r(), "w", int64_t{1} << 26, int64_t{1} << 25).status, OCTAVO_INVALID);
  EXPECT_EQ(add_weight(r(), "w", 4, 8).id, 0u);
  run.reset();
}

TEST_F(RunTest, descriptions_of_an_older_caller_are_read_to_their_end_only) {
  open();
  auto d = parameter_desc("w", 4, 8);
  d.size = OCTAVO_SIZE_THROUGH(octavo_parameter_desc, dtype);  // flags were unknown then
  std::vector<char> exact(reinterpret_cast<char *>(&d), reinterpret_cast<char *>(&d) + d.size);
  uint32_t id = 9;
  EXPECT_EQ(octavo_add_parameter(r(), reinterpret_cast<const octavo_parameter_desc *>(exact.data()),
                                 nullptr, &id),
            OCTAVO_OK);
  EXPECT_EQ(id, 0u);
}

}  // namespace
}  // namespace octavo::test
