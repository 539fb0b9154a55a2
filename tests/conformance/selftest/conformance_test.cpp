// Who checks the checker: a correct backend passes every check, and a backend with one deliberate
// fault fails the very check that stands for the broken rule.
//
// A check that no fault can fail is worth nothing, so a test demands one fault for each.
#include "sdk/verify/conformance.h"
#include "sdk/verify/heap.h"

#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>

#include "subject.h"
#include "subject_kernels.h"

namespace octavo::conformance {

void PrintTo(const Check &check, std::ostream *out) {
  *out << check.name;
}
void PrintTo(Outcome outcome, std::ostream *out) {
  *out << (outcome == Outcome::kPass ? "pass" : outcome == Outcome::kFail ? "fail" : "skip");
}

}  // namespace octavo::conformance

namespace octavo::selftest {
namespace {

using conformance::Check;
using conformance::Outcome;
using conformance::Result;

// The query function: it answers as the subject's library does.
octavo_status query(const octavo_host *host, const octavo_plugin **) {
  return OCTAVO_HOST_FITS(host) ? OCTAVO_OK : OCTAVO_INCOMPATIBLE;
}
octavo_status take_any(const octavo_host *, const octavo_plugin **) {
  return OCTAVO_OK;
}

Result run(const std::string &name, Fault fault, bool with_optional = true,
           uint64_t alignment = 1) {
  octavo_kernels_caps caps = subject_caps();
  caps.alignment = alignment;
  octavo_option_value options[2]{};
  options[0].name = OCTAVO_STR("fault");
  options[0].value.type = OCTAVO_VALUE_INT;
  options[0].value.integer = fault;
  options[1].name = OCTAVO_STR("bias");
  options[1].value.type = OCTAVO_VALUE_BOOL;
  options[1].value.integer = 1;
  conformance::Target target;
  target.backend = subject_backend(fault);
  target.optimizer = with_optional ? subject_optimizer() : nullptr;
  target.gradients = with_optional ? subject_gradients() : nullptr;
  target.fused = with_optional ? subject_fused(fault) : nullptr;
  target.grouped = with_optional ? subject_grouped() : nullptr;
  target.shard = with_optional ? subject_shard() : nullptr;
  target.interface = [&](octavo_str id) -> const void * {
    const std::string asked(id.data, id.size);
    const bool is_it = fault == kInterfacesByPrefix ? asked.rfind(OCTAVO_BACKEND_ID, 0) == 0
                                                    : asked == OCTAVO_BACKEND_ID;
    return is_it ? target.backend : nullptr;
  };
  target.query = fault == kTakesAnyHost ? take_any : query;
  target.desc.size = sizeof target.desc;
  target.desc.kind = OCTAVO_KIND_SESSION_DESC;
  target.desc.device = {OCTAVO_DEVICE_CPU, 0};
  target.desc.kernels = subject_kernels();
  target.desc.caps = &caps;
  target.desc.options = options;
  target.desc.option_count = 2;
  const Check *check = conformance::find_check(name);
  if (check == nullptr) return {Outcome::kFail, "there is no check '" + name + "'"};
  return conformance::run_check(*check, target, 1);
}

struct Case {
  const char *check;
  Fault fault;
  const char *says;  // a part of the failure's text
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.check << " with fault " << c.fault;
}

std::string name_of(const std::string &check) {
  std::string name;
  for (const char c : check) name += c == '.' ? '_' : c;
  return name;
}

class CorrectBackend : public testing::TestWithParam<Check> {};

TEST_P(CorrectBackend, passes) {
  const Result result = run(GetParam().name, kNone);
  const std::string check = GetParam().name;
  if (check == "process" || check == "symbols" ||
      (check == "heap" && !conformance::heap_is_counted()))
    EXPECT_EQ(result.outcome, Outcome::kSkip);  // there is no plugin, or a sanitizer's heap
  else
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.detail;
}

INSTANTIATE_TEST_SUITE_P(Conformance, CorrectBackend,
                         testing::ValuesIn(conformance::checks().begin(),
                                           conformance::checks().end()),
                         [](const auto &one) { return name_of(one.param.name); });

constexpr Case kCases[] = {
    {"access", kForwardNothing, "was not written"},
    {"access", kBackwardNothing, "was not written"},
    {"heap", kAllocates, "called malloc or its like"},
    {"heap", kKeepsSession, "left memory behind"},
    {"texts", kEscapesInText, "has the control character 27"},
    {"texts", kTextNotUtf8, "is no UTF-8"},
    {"texts", kTextHuge, "states 1099511627776 bytes; expected at most 4096"},
    {"texts", kTextNoData, "has no data but states 7 bytes"},
    {"texts", kTextWithLines, "has the control character 10"},
    {"contract.table", kNoVerdict, "gave no verdict"},
    {"contract.table", kUnsteadyOptions, "differently the second time"},
    {"contract.table", kFusedOfNoKind, "the table of octavo.fused/1 has kind 0"},
    {"contract.table", kFusedLacksFunction, "function 2 of the table of octavo.fused/1 is null"},
    {"contract.table", kProbesKernels, "check_session: called probe_device of the kernels"},
    {"contract.slots", kDescribesKernels, "open_session: called describe of the kernels"},
    {"contract.slots", kTriesKernels, "seal made 1 calls of kernels"},
    {"contract.refusals", kReportsTwice, "got 2 diagnostics; expected one"},
    {"contract.refusals", kUnknownIdsDoNothing, "which no seal covers, answered OCTAVO_OK"},
    {"purity.arguments", kTakesOtherShapes, "with x of 7 - 1 rows answered OCTAVO_OK"},
    {"purity.arguments", kDeclinesLate, "with y in f16, which the plan declines"},
    {"purity.arguments", kRecordsForOutputs, "a call without outputs"},
    {"purity.arguments", kRecordsNotForDw, "dw alone"},
    {"twice", kNarrowDwOverwrites, "dw of two calls of 'bf16'"},
    {"twice", kNarrowDbOverwrites, "db of two calls of 'bf16'"},
    {"nonfinite", kFlagNeedsSaved, "depends on whether `saved` is null"},
    {"numerics", kEvaluatesInHost, "y of an evaluation of"},
    {"purity.arguments", kFrozenDwWritten, "with a dw, which a frozen weight has not"},
    {"purity.arguments", kFrozenDwRefused, "answered OCTAVO_INVALID"},
    {"purity.arguments", kWeightNeedsAmax, "quantize_weight of 'wide' answered"},
    {"abilities", kAsksNothing, "was made, which `ability` declines"},
    {"abilities", kAsksOneFormat, "a call of kind 25 of"},
    {"purity.order", kAsksInForward, "expected it in setup verbs only"},
    {"contract.slots", kLateListOfFirst, "is one of another weight"},
    {"contract.slots", kPoolOfTwo, "which is labelled"},
    {"contract.slots", kScaleOfOtherShape, "its scale_slot has [1, 1]"},
    {"scales", kAmaxOfXLost, "is 0 after a step"},
    {"extents.empty", kEmptyKeepsOnlyDb, "without rows they are 0"},
    {"purity.arguments", kRecordsBeforeRefusal, "a call of 'wide'"},
    {"purity.arguments", kRefusesInSilence, "got 0 diagnostics"},
    {"purity.arguments", kReadsOddX, "answered OCTAVO_INVALID"},
    {"contract.refusals", kTakesVectorWeight, "that is no LINEAR_WEIGHT"},
    {"contract.refusals", kForwardUnsealed, "which no seal covers, answered OCTAVO_OK"},
    {"failures", kRenamesFailure, "answered OCTAVO_INTERNAL"},
    {"abilities", kAsksOneDtype, "a call of kind 33 of "},
    {"purity.arguments", kIgnoresReserved, "with reserved = 1 answered OCTAVO_OK"},
    {"purity.arguments", kTakesMoreRows, "+ 1 rows answered OCTAVO_OK"},
    {"contract.refusals", kPlanRefusesInSilence,
     "linear_plan of 6, which no seal covers, answered"},
    {"failures", kPlanLosesFailure, "to question 1 of 1"},
    {"fused", kFusedReports, "and sent 1 diagnostics"},
    {"shard", kShardFlagsOthers, "and its rows are finite"},
    {"shard", kShardPlaceFlags, "which cast did for its rows"},
    {"contract.table", kInterfacesByPrefix, "get_interface of 'octavo.backend/10' gave a table"},
    {"contract.table", kTakesAnyHost, "expected OCTAVO_INCOMPATIBLE"},
    {"late", kRefusesInOpen, "answered OCTAVO_WRONG_STATE"},
    {"fused", kFusedReadsStride, "answered OCTAVO_INVALID"},
    {"contract.decline", kFrozenGradientCounts, "by its gradient_dtype, which is not read"},
    {"access", kNeedsAlignment, "answered OCTAVO_INVALID"},
    {"contract.table", kListsOn, "expected it to end there"},
    {"shard", kShardPlansEarly, "a parameter that no seal covers"},
    {"shard", kShardRefusesSilently, "got 0 diagnostics"},
    {"shard", kShardClearsEmpty, "which has no rows, wrote its packet"},
    {"contract.slots", kPlanWritesSize, "changed size or kind of the plan"},
    {"contract.slots", kLevelOfSession, "gave a verdict of level 4"},
    {"failures", kReportsKernels, "sent 1 diagnostics; expected none"},
    {"contract.decline", kTakesAnyGradient, "was accepted; expected DECLINE"},
    {"purity.arguments", kTakesCodesAsValues, "with x in e4m3fn answered OCTAVO_OK"},
    {"contract.refusals", kAcceptsSessionFlags, "open_session with the unknown flag"},
    {"contract.refusals", kAcceptsFlags, "expected OCTAVO_INVALID"},
    {"contract.refusals", kAcceptsAnyWeight, "unknown weight id"},
    {"contract.refusals", kBurnsId, "ids count from 0"},
    {"contract.decline", kDeclineEmits, "left a trace"},
    {"contract.decline", kInvalidForDtype, "with DECLINE if it is not taken"},
    {"contract.refusals", kPlansEarly, "before the seal of its linear"},
    {"contract.slots", kSecondNonfinite, "is a second slot of role NONFINITE"},
    {"contract.slots", kCacheInCheckpoints, "quantize_weight makes it anew"},
    {"contract.decline", kIgnoresLinearOptions, "an option that no backend has answered"},
    {"contract.slots", kHistoryInForward, "a history is never used in a hot verb"},
    {"contract.slots", kNonfiniteI32, "must be f32"},
    {"contract.slots", kColumnsReversed, "is column 5, which is labelled 'frozen'"},
    {"contract.slots", kNonfiniteNotReduced, "lacks OCTAVO_SLOT_REDUCE"},
    {"contract.slots", kNonfiniteBySum, "expected OCTAVO_COMBINE_MAX"},
    {"contract.slots", kScaleUnread, "no other verb reads it"},
    {"contract.slots", kWeightAloneInSlots, "has its weight in slots and the host's own gradient"},
    {"checkpoint", kScaleNotSaved, "step 0 after a checkpoint"},
    {"fence", kReadsScaleOnHost, "linear_forward of 'wide' M=7 f32 touched session slot 'x/scale'"},
    {"fence", kClearsSavedOnHost, "touched saved of 'wide'"},
    {"fence", kNullStreamInBackward, "on the stream 0; expected the verb's, 0x10"},
    {"fence.optimizer", kReadsHyperOnHost, "optimizer_step touched hyperparameters, byte 0"},
    {"access", kForgetsSavedByte, "was not written"},
    {"access", kWritesReadSlot, "may only read"},
    {"access", kWritesGap, "may not touch"},
    {"access", kAccumulatesY, "y of 'wide'"},
    {"access", kSavedTooLarge, "was not written"},
    {"access", kWritesWhatItReads, "may only read"},
    {"access.optimizer", kWritesStepElsewhere, "gradient 'wide'"},
    {"identity", kAmaxOverwrites, "combined outside"},
    {"identity", kNullChangesScale, "with null for every ACCUMULATE slot"},
    {"identity.splits", kAmaxOverwrites, "micro-batches"},
    {"purity", kFirstCallFlag, "repeated from the memory"},
    {"purity", kStepCounter, "repeated from the memory"},
    {"purity", kRemembersScale, "with all memory moved"},
    {"purity.arguments", kOverwriteIgnored, "linear_backward twice on one saved"},
    {"purity.arguments", kSkipWeightIgnored, "SKIP_WEIGHT changed the weight gradient"},
    {"purity.arguments", kSkipWeightLosesDb, "SKIP_WEIGHT with db, and wgrad without,"},
    {"purity.arguments", kRecordsByOutputs, "db alone"},
    {"purity.arguments", kTakesWhatItDeclines, "with x in f16, which the plan declines"},
    {"purity.order", kBackwardNeedsOrder, "in random order"},
    {"purity.sessions", kSharedAcrossSessions, "interleaved"},
    {"purity.optimizer", kSkipIgnored, "optimizer_step with skip = 1"},
    {"purity.optimizer", kOptimizerNameless, "names no algorithm"},
    {"optimizer", kOptimizerMisnamed, "times that of Adam with these hyperparameters"},
    {"extents", kPlanHuge, "backward_workspace of linear_plan of 'wide' has "},
    {"extents", kWorkspaceOverrun, "forward_workspace"},
    {"extents", kSavedTooLarge, "only the first"},
    {"extents.empty", kEmptyFails, "M=0"},
    {"extents.empty", kEmptyKeepsDw, "without rows they are 0"},
    {"rows", kCurrentScaling, "alone, against a batch of 33"},
    {"twice", kDwOverwrites, "the sum of 2 separate calls"},
    {"late", kSealRepeats, "changed the list of an old"},
    {"late", kLatePlan, "changed the plan"},
    {"nonfinite.nan", kNanIsCleared, "should be NaN"},
    {"nonfinite", kNoNonfinite, "should be 1"},
    {"nonfinite", kNoNonfiniteOfX, "in x, and no result shows it"},
    {"nonfinite", kNoNonfiniteOfW, "in w, and no result shows it"},
    {"nonfinite", kNonfiniteStays, "should be 0 after end_step"},
    {"numerics", kNoBias, "y of 'wide'"},
    {"numerics", kWrongScaleInv, "dx of 'wide'"},
    {"numerics", kMarginTooLarge, "the mean square of the error"},
    {"numerics", kEvaluationNoBias, "y of an evaluation of 'wide'"},
    {"scales", kMarginTooLarge, "the largest value of the format"},
    {"scales", kHalfHistory, "each enters once"},
    {"scales", kAmaxInScale, "as amax: its role is 6"},
    {"alignment", kNoPadding, "must be a multiple of it"},
    {"alignment", kPaddingShows, "with padding to 16"},
    {"threads", kCurrentCallMember, "the bits differ"},
    {"reduction", kKeepsOwnGradient,
     "ranks 0 and 1 of 2 end with different bytes in slot 'gradient'"},
    {"reduction", kSumsWithoutMean, "after the reduction over 2 ranks; their mean is"},
    {"reduction", kReducesOnHost, "run_stage 0 on rank 0 of 2 touched gradient 'wide'"},
    {"reduction", kPlansAnew, "two answers to one question"},
    {"reduction", kForgetsSent, "sends other bytes when repeated"},
    {"reduction", kWritesRecv, "changed recv of the reduction"},
    {"fused", kFusedRefused, "workspace of 'wide' answered OCTAVO_UNSUPPORTED"},
    {"fused", kFusedWritesExtent, "of the unknown linear 6 answered OCTAVO_INVALID (2) and wrote"},
    {"fused", kFusedNoRows, "workspace of 'wide' has row_multiple 0; expected 1 to 1048576"},
    {"fused", kFusedTooLittle, "at the red zone behind the workspace of the fused forward"},
    {"fused", kFusedInF32,
     "fused linear_forward, against prologue of the kernels and linear_forward, of 'wide'"},
    {"fused", kFusedForgetsRstd, "rstd of 'wide'"},
    {"fused", kFusedRecordsNothing, "session slot 'x/amax'"},
    {"fused", kFusedClearsOnHost, "touched mean of 'wide'"},
    {"fused", kFusedAnyOp, "with the unknown op 6 of 'wide'"},
    {"grouped", kGroupedTooLittle, "the red zone behind saved of linears"},
    {"grouped", kGroupedOneSaved, "gradient 'first'"},
    {"grouped", kGroupedOneBias, "y of linears"},
    {"grouped", kGroupedSkipsEmpty, "gradient 'first'"},
    {"grouped", kGroupedAnyShape, "plan of weights of two shapes answered OCTAVO_OK"},
    {"grouped", kGroupedAnyOffsets, "with offsets beyond M answered"},
    {"grouped", kGroupedClearsOnHost, "touched saved of linears"},
    {"shard", kShardPlansAnew, "gave two answers to one question"},
    {"shard", kShardRefusesOneRank, "refuses one rank with all rows"},
    {"shard", kShardOwnScale, "place of 'blocks' by 7 rows, against quantize_weight"},
    {"shard", kShardReversed, "place of 'blocks' by 7 rows, against quantize_weight"},
    {"shard", kShardNoPadding, "[alignment 16]"},
    {"shard", kShardRecordsNothing, "session slot 'w/amax'"},
    {"shard", kShardCopiesOnHost, "shard place of 'blocks' by 7 rows touched"},
    {"shard", kShardTooFew, "without the last packet answered OCTAVO_OK"},
    {"contract.refusals", kReportsNothing, "got 0 diagnostics; expected one"},
    {"contract.slots", kKeepsNames, "which is labelled '?"},
    {"contract.decline", kDeclineWritesId, "was declined and wrote *id"},
    {"contract.refusals", kAbortedSealCounts, "expected the sink's status"},
    {"contract.slots", kLabelsOfWeights, "slot name and label identify a column"},
    {"contract.refusals", kRefusesLonger, "add_parameter 'wide' answered OCTAVO_INVALID"},
    {"purity.arguments", kRefusesLongerCalls, "linear_forward of 'wide' M=7 f32 answered"},
    {"purity.arguments", kLooksAtUnknownFlags, "linear_forward of 'wide' M=7 f32 answered"},
    {"access", kRewritesReadSlot, "as an output, which the verb may only read"},
    {"purity.arguments", kClearsSkippedDw, "SKIP_WEIGHT changed the weight gradient"},
    {"failures", kLosesGemmFailure, "answered OCTAVO_OK"},
    {"shard", kShardMeasuresAnew, "expected the maximum of both"},
    {"contract.refusals", kRefusesDeterministic, "open_session answered OCTAVO_INVALID"},
    {"contract.options", kNeedsEveryOption, "open_session answered OCTAVO_INVALID"},
    {"contract.options", kOptionsByPrefix, "open_session with the unknown option '"},
    {"contract.options", kLinearOptionIgnored, "differs from a session with this option"},
    {"contract.options", kLinearOptionForAll, "changes where another linear has its own"},
    {"contract.options", kDeclineKeepsOption, "where a linear with other options was declined"},
    {"purity", kDependsOnAddress, "with every address moved by 64 bytes"},
    {"nonfinite", kNonfiniteNeedsDx, "in a backward of dw only"},
    {"nonfinite", kNonfiniteOfFirstRows, "after Inf in dy ["},
    {"numerics", kDwOfF32, "dw of 'apart'"},
    {"numerics", kDbOfF32, "db of 'alike'"},
    {"rows", kDbTwice, "db of 'wide' with 32 rows, 4 times in one batch"},
    {"scales", kScaleInvNext, "to the bit, which their cast wrote with them"},
    {"scales", kScaleInvOff, "to the bit, which their cast wrote with them"},
    {"rows", kOneRowOff, "with 1 rows, 101 times in one batch, against once"},
    {"numerics", kRoundsX, "x in f32 is rounded to bf16 before its cast"},
    {"numerics", kNinthLinear, "y of 'small"},
    {"scales", kScaleSixteenth, "the largest value of the format"},
    {"rows", kManyRows, "y of 'row' with 32 rows, 1040 times in one batch"},
    {"numerics", kManyColumns, "y of 'deep'"},
    {"purity", kManyCalls, "repeated after 4000 steps"},
    {"purity", kManySteps, "repeated after 4000 steps"},
    {"optimizer", kGradScaleIgnored, "setting 'scale of gradients'"},
    {"optimizer", kDecayIgnored, "times that of AdamW with these hyperparameters"},
    {"optimizer", kStepFrozen, "optimizer_step 1 of 'wide'"},
    {"optimizer", kWriteAdds, "WEIGHT, gives"},
    {"optimizer", kWriteExpAvgIgnored, "EXP_AVG, gives"},
    {"access", kCachesWeight, "was not written"},
    {"purity.order", kBackwardUsesLastM, "in random order"},
    {"contract.slots", kColumnOfWeight, "is column 3, which is labelled 'tied.a'"},
    {"scales", kSecondSealStands, "for the third step alike"},
    {"rows", kTailRows, "with 1 rows, 101 times in one batch, against once"},
    {"numerics", kTransposedRounds, "dw of 'few' changes where x passes"},
    {"scales", kHistoryTwice, "each enters once"},
    {"scales", kHistoryLabels, "has other labels than the pool whose amax enters it"},
    {"purity.optimizer", kSkipIgnoredForVectors, "optimizer_step with skip = 1"},
    {"extents.empty", kEmptyKeepsDb, "without rows they are 0"},
    {"twice", kTiedOverwrites, "dw of two calls of 'tied.b'"},
    {"optimizer", kHyperOfFirst, "times that of AdamW with these hyperparameters"},
    {"optimizer", kStepOfFirst, "times that of AdamW with these hyperparameters"},
    {"identity.splits", kAmaxOfFirstRows, "micro-batches"},
    {"optimizer", kNormOverwrites, "added to 3"},
    {"numerics", kBiasAsY, "y of"},
    {"purity.order", kSavedByAddress, "in random order"},
    {"purity.arguments", kSavedByAddress, "with `saved` moved"},
    {"purity.arguments", kEndStepAgain, "after end_step without a call before it"},
    {"purity.arguments", kWeightOfForward, "after another weight was cast"},
    {"numerics", kOwnCastsHalve, "y of 'wide'"},
    {"identity", kKeepsAddress, "if every slot has another address after quantize_weight"},
};

class FaultyBackend : public testing::TestWithParam<Case> {};

TEST_P(FaultyBackend, fails) {
  const Result result = run(GetParam().check, GetParam().fault);
  if (std::string(GetParam().check) == "heap" && !conformance::heap_is_counted())
    GTEST_SKIP() << result.detail;
  EXPECT_EQ(result.outcome, Outcome::kFail) << result.detail;
  EXPECT_NE(result.detail.find(GetParam().says), std::string::npos) << result.detail;
}

INSTANTIATE_TEST_SUITE_P(Conformance, FaultyBackend, testing::ValuesIn(kCases),
                         [](const auto &one) {
                           return name_of(one.param.check) + "_" + std::to_string(one.param.fault);
                         });

TEST(ConformanceSuite, every_check_has_a_fault_that_it_finds) {
  std::set<std::string> proven;
  for (const Case &c : kCases) proven.insert(c.check);
  // Faults of a load are tests/zoo's: here the table is part of the program.
  for (const char *of_a_plugin : {"load", "process", "symbols"}) proven.insert(of_a_plugin);
  for (const Check &check : conformance::checks()) {
    EXPECT_EQ(proven.count(check.name), 1U) << check.name << " has no faulty backend";
  }
}

TEST(ConformanceSuite, every_fault_is_found) {
  std::set<int64_t> proven;
  for (const Case &c : kCases) proven.insert(c.fault);
  for (int64_t fault = kNone + 1; fault < kFaultCount; ++fault) {
    EXPECT_EQ(proven.count(fault), 1U) << "fault " << fault << " has no case";
  }
}

TEST(ConformanceSuite, without_optimizer_its_checks_are_skipped_with_a_reason) {
  for (const char *name : {"fence.optimizer", "access.optimizer", "purity.optimizer"}) {
    const Result result = run(name, kNone, false);
    EXPECT_EQ(result.outcome, Outcome::kSkip) << name;
    EXPECT_NE(result.detail.find("octavo.optimizer/2"), std::string::npos) << result.detail;
  }
}

TEST(ConformanceSuite, steps_of_another_optimizer_than_adam_are_not_compared) {
  const Result result = run("optimizer", kOtherOptimizer);
  EXPECT_EQ(result.outcome, Outcome::kSkip);
  EXPECT_NE(result.detail.find("the steps of 'lion' were not compared"), std::string::npos)
      << result.detail;
}

TEST(ConformanceSuite, without_gradients_reduction_is_skipped_with_a_reason) {
  const Result result = run("reduction", kNone, false);
  EXPECT_EQ(result.outcome, Outcome::kSkip);
  EXPECT_NE(result.detail.find("octavo.gradients/1"), std::string::npos) << result.detail;
}

TEST(ConformanceSuite, without_the_interface_fused_is_skipped_with_a_reason) {
  const Result result = run("fused", kNone, false);
  EXPECT_EQ(result.outcome, Outcome::kSkip);
  EXPECT_NE(result.detail.find("octavo.fused/1"), std::string::npos) << result.detail;
}

TEST(ConformanceSuite, without_the_interface_grouped_and_shard_are_skipped_with_a_reason) {
  for (const std::string name : {"grouped", "shard"}) {
    const Result result = run(name, kNone, false);
    EXPECT_EQ(result.outcome, Outcome::kSkip);
    EXPECT_NE(result.detail.find("octavo." + name + "/1"), std::string::npos) << result.detail;
  }
}

TEST(ConformanceSuite, kernels_that_need_16_have_no_unpadded_run) {
  EXPECT_EQ(run("alignment", kNone, true, 16).outcome, Outcome::kSkip);
  const Result result = run("purity.arguments", kNone, true, 16);
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.detail;
}

TEST(ConformanceSuite, a_backend_may_decline_kernels_that_need_padding) {
  for (const std::string name : {"contract.table", "fence", "purity.order", "alignment"}) {
    const Result result = run(name, kDeclinesPadding);
    EXPECT_EQ(result.outcome, name == "alignment" ? Outcome::kSkip : Outcome::kPass)
        << name << ": " << result.detail;
    EXPECT_NE(result.detail.find("declined kernels of alignment 16"), std::string::npos) << name;
  }
}

TEST(ConformanceSuite, casts_of_kernels_that_the_suite_does_not_know) {
  for (const std::string name : {"fence", "heap", "access", "nonfinite", "numerics", "rows"}) {
    const Result result = run(name, kOwnCasts);
    EXPECT_NE(result.outcome, Outcome::kFail) << name << ": " << result.detail;
  }
}

TEST(ConformanceSuite, static_scales_are_legal) {
  for (const std::string name :
       {"contract.slots", "scales", "rows", "numerics", "identity.splits"}) {
    const Result result = run(name, kStaticScales);
    EXPECT_EQ(result.outcome, Outcome::kPass) << name << ": " << result.detail;
  }
}

TEST(ConformanceSuite, a_padding_fault_is_reported_with_its_alignment) {
  const Result result = run("purity.order", kNoPadding);
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.detail.rfind("[alignment 16]", 0), 0U) << result.detail;
}

}  // namespace
}  // namespace octavo::selftest
