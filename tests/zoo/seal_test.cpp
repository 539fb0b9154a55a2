// Plugins whose seal emits what no host could use: refused with a message, nothing is kept.
#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

struct BadSeal {
  const char *fault;
  octavo_status status;
  const char *message;  // after "backend fake: "
};

void PrintTo(const BadSeal &b, std::ostream *out) {
  *out << b.fault;
}

class ZooSeal : public OpenCage, public testing::WithParamInterface<BadSeal> {};

TEST_P(ZooSeal, is_refused) {
  request().set("plugins.probe", "never");
  open(GetParam().fault);
  model();
  EXPECT_EQ(octavo_seal(run.get()), GetParam().status);
  EXPECT_EQ(host().error(), std::string("backend fake: ") + GetParam().message);
  EXPECT_EQ(octavo_run_plan(run.get(), 0), nullptr);
}

TEST_P(ZooSeal, stays_refused_and_can_be_reported) {
  request().set("plugins.probe", "never");
  open(GetParam().fault);
  model();
  EXPECT_NE(octavo_seal(run.get()), OCTAVO_OK);
  EXPECT_NE(octavo_seal(run.get()), OCTAVO_OK);  // also when the backend believes it is sealed
  std::string report;
  EXPECT_EQ(octavo_report(run.get(), borrow("json"), Request::append_line, &report), OCTAVO_OK);
  EXPECT_THAT(report, testing::HasSubstr("\"fake\""));
}

TEST_F(OpenCage, a_linear_that_cannot_be_fused_has_no_fused_workspace) {
  request().set("plugins.probe", "never");
  open("fused_keeps_x");
  model();
  EXPECT_EQ(octavo_seal(run.get()), OCTAVO_OK) << host().error();
  EXPECT_NE(octavo_run_plan(run.get(), 1), nullptr);
}

// What a reader of the table in abi.h keeps.
TEST_F(OpenCage, an_unknown_role_and_granularity_are_kept) {
  request().set("plugins.probe", "never");
  open("slot_role_granularity");
  model();
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << host().error();
  EXPECT_EQ(octavo_run_slot(run.get(), 3)->role, OCTAVO_ROLE_OTHER);
  EXPECT_EQ(octavo_run_slot(run.get(), 3)->granularity, 4242u);
}

// Whatever names a backend gives its slots, no checkpoint has two tensors with one key.
TEST_F(OpenCage, keys_of_slots_are_distinct) {
  request().set("plugins.probe", "never");
  open("slot_keys");
  model();
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << host().error();
  const std::string first = text_of(octavo_run_slot_key(run.get(), 1));
  EXPECT_THAT(first, testing::EndsWith("/counter"));
  EXPECT_EQ(text_of(octavo_run_slot_key(run.get(), 2)), first + "@2");
  EXPECT_EQ(text_of(octavo_run_slot_key(run.get(), 3)), first + "@3");
}

INSTANTIATE_TEST_SUITE_P(
    All, ZooSeal,
    testing::Values(
        BadSeal{"seal_fails", OCTAVO_NO_RESOURCE, "seal failed with status 6"},
        BadSeal{"slot_access", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": access 9 is not known to this host, which "
                "could not call correctly"},
        BadSeal{"seal_ignores_sink", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": access 9 is not known to this host, which "
                "could not call correctly"},
        BadSeal{"slot_id", OCTAVO_INTERNAL,
                "seal failed: slot 8 \"weight_cache\": expected the id 3"},
        BadSeal{"slot_shape", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected at least one row and column, found "
                "0 x 8"},
        BadSeal{"slot_huge", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected fewer than 2^61 elements, found "
                "1099511627776 x 1099511627776"},
        BadSeal{"slot_dtype", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": unknown dtype 2147"},
        BadSeal{"slot_accumulate", OCTAVO_INTERNAL,
                "seal failed: slot 2 \"counter\": an accumulated slot must be f32"},
        BadSeal{"slot_initial", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected initial 0 for a dtype of fewer "
                "than 32 bits"},
        BadSeal{"slot_initial_large", OCTAVO_INTERNAL,
                "seal failed: slot 2 \"counter\": expected an initial value that its dtype can "
                "hold, found 3e+09"},
        BadSeal{"slot_initial_nan", OCTAVO_INTERNAL,
                "seal failed: slot 2 \"counter\": expected an initial value that its dtype can "
                "hold, found nan"},
        BadSeal{
            "slot_name", OCTAVO_INTERNAL,
            "seal failed: slot 3 \"\\x1b[31mred\\nerror: forged\\xc2\\x9b\": expected a name of at "
            "most 4096 bytes of UTF-8 without control characters"},
        BadSeal{"use_slot", OCTAVO_INTERNAL,
                "seal failed: a use names slot 1000, expected one emitted before"},
        BadSeal{"use_columns", OCTAVO_INTERNAL,
                "seal failed: a use of slot 4 names columns 2 to 3, expected at most 2"},
        BadSeal{"use_reserved", OCTAVO_INTERNAL,
                "seal failed: a use of slot 0: reserved 1 is not known to this host, which could "
                "not call correctly"},
        BadSeal{"use_first", OCTAVO_INTERNAL,
                "seal failed: a use of slot 1 starts at column 1, expected 0 where no pool is "
                "distributed"},
        BadSeal{"use_owner", OCTAVO_INTERNAL,
                "seal failed: a use of slot 3 names owner 100 of kind 3, expected the session, a "
                "parameter or a linear that was added"},
        BadSeal{"use_owner_kind", OCTAVO_INTERNAL,
                "seal failed: a use of slot 0 names owner 0 of kind 9, expected the session, a "
                "parameter or a linear that was added"},
        BadSeal{"slot_flag", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": flag 1024 is not known to this host, which "
                "could not call correctly"},
        BadSeal{"slot_combine", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": combine 55 is not known to this host, which "
                "could not call correctly"},
        BadSeal{"slot_shard", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": shard 7 is not known to this host, which "
                "could not call correctly"},
        BadSeal{"slot_owner_kind", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected the session, a parameter or a "
                "linear that was added as its owner, found 0 of kind 42"},
        BadSeal{"slot_owner", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected the session, a parameter or a "
                "linear that was added as its owner, found 1000 of kind 2"},
        BadSeal{"slot_uncombined", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": a REDUCE slot must say how it is combined"},
        BadSeal{"slot_accumulate_uncombined", OCTAVO_INTERNAL,
                "seal failed: slot 4 \"x/amax\": an accumulated slot must say how it is combined"},
        BadSeal{"slot_scale", OCTAVO_INTERNAL,
                "seal failed: slot 3 \"weight_cache\": expected OCTAVO_NONE or a slot of role "
                "SCALE_INV as scale_slot, found 0"},
        BadSeal{"plan_flag", OCTAVO_INTERNAL,
                "linear_plan of linear 0: flag 64 is not known to this host, which could not call "
                "correctly"},
        BadSeal{"plan_declines", OCTAVO_INTERNAL,
                "linear_plan of linear 0: expected x of f32, bf16 or f16 to be taken, found all "
                "three declined"},
        BadSeal{"plan_gradient", OCTAVO_INTERNAL,
                "linear_plan of linear 0: gradient 10 is not known to this host, which could not "
                "call correctly"},
        BadSeal{"plan_gradient_slot", OCTAVO_INTERNAL,
                "linear_plan of linear 0: expected a slot of role GRADIENT that backward writes "
                "among its uses, since its gradient is SLOT, found none"},
        BadSeal{
            "owned_weight", OCTAVO_INTERNAL,
            "seal failed: slot 1 \"weight\": expected the interface octavo.optimizer/2, since no "
            "host steps a weight or gradient that is not NATIVE, found none"},
        BadSeal{"owned_weight_only", OCTAVO_INTERNAL,
                "linear_plan of linear 0: expected its gradient in a slot of role GRADIENT that is "
                "not NATIVE, since its weight is in one, found the host's own"},
        BadSeal{"plan_fails", OCTAVO_INVALID, "linear_plan of linear 0 failed with status 2"},
        BadSeal{
            "plan_rows", OCTAVO_INTERNAL,
            "linear_plan of linear 0: expected a row_multiple of 1 to 1048576 in saved, found 0"},
        BadSeal{"plan_huge", OCTAVO_INTERNAL,
                "linear_plan of linear 0: expected at most 140737488355328 bytes for 1 rows in "
                "forward_workspace, found 0 bytes a row and 140737488355329 more"},
        BadSeal{
            "plan_negative", OCTAVO_INTERNAL,
            "linear_plan of linear 0: expected at most 140737488355328 bytes for 1 rows in saved, "
            "found 18446744073709551600 bytes a row and 0 more"},
        BadSeal{"plan_row_multiple", OCTAVO_INTERNAL,
                "linear_plan of linear 0: expected a row_multiple of 1 to 1048576 in "
                "backward_workspace, found 9223372036854775808"},
        BadSeal{
            "plan_weight", OCTAVO_INTERNAL,
            "linear_plan of linear 0: expected at most 140737488355328 bytes of weight_workspace, "
            "found 1152921504606846976"},
        BadSeal{"fused_rows", OCTAVO_INTERNAL,
                "octavo.fused/1 of linear 0: expected a row_multiple of 1 to 1048576 in workspace, "
                "found 0"},
        BadSeal{"fused_huge", OCTAVO_INTERNAL,
                "octavo.fused/1 of linear 0: expected at most 140737488355328 bytes for 1 rows in "
                "workspace, found 0 bytes a row and 140737488355329 more"}),
    [](const testing::TestParamInfo<BadSeal> &each) { return std::string(each.param.fault); });

}  // namespace
}  // namespace octavo::test
