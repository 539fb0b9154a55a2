// A backend for the suite's own tests: delayed scaling, correct unless its option `fault` says
// otherwise.
//
// Each fault breaks one rule of the contract in the way a real backend would, and changes nothing
// else; kNone keeps them all.
#ifndef OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_H
#define OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_H

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/shard.h"

namespace octavo::selftest {

enum Fault : int64_t {
  // What forward does to its process: for `octavo plugin verify`, not for a test program.
  kReadsPast = -34,   // the entry behind its list of slots
  kPrints,            // a line on stdout
  kMakesOtherGlobal,  // symbols of a library that it opens become visible to every library
  kMakesGlobal,       // its own
  kRedirectsStdout,
  kClosesStdin,
  kLeavesDescriptor,
  kLeavesThread,
  kBlocksSignal,
  kHandlesSignal,
  kChangesEnvironment,
  kChangesDirectory,
  kChangesUmask,
  kChangesLocale,
  kFlushesDenormals,
  kChangesRounding,
  kOverflowsStack,
  kThrows,
  kCrashesLate,   // when the process ends
  kExitsLate,     // with another exit code
  kRedirectsAll,  // every descriptor but the standard ones
  kClosesAll,     // likewise
  kForgesRecord,  // writes to every descriptor and ends with exit code 0
  kStops,
  kHangs,
  kKillsGroup,
  kKillsItself,
  kLeavesProcess,   // a child that sleeps
  kGoesOnTwice,     // both processes of a fork return
  kExitsAsSkipped,  // with exit code 3
  kExitsAtOnce,     // _exit(0)
  kExits,           // exit(0)
  kCrashes = -2,
  kDeclinesPadding = -1,  // no fault: check_session declines kernels with an alignment
  kNone = 0,
  // Numbers above 0 move; a test that names one by its number has the first.
  kReadsScaleOnHost,      // forward copies the scale with memcpy
  kNoVerdict,             // check_session gives no verdict
  kUnsteadyOptions,       // list_options emits one option more every time
  kAcceptsSessionFlags,   // unknown flags of a session are accepted
  kAcceptsFlags,          // unknown flags and reserved fields are accepted
  kAcceptsAnyWeight,      // add_linear accepts an unknown weight id
  kBurnsId,               // a refused parameter uses up an id
  kDeclineEmits,          // a declined parameter leaves a slot behind
  kIgnoresLinearOptions,  // a linear is accepted whatever its options are
  kHistoryInForward,      // the history of x stands in the list of forward
  kNonfiniteI32,          // the nonfinite slot is i32
  kWeightAloneInSlots,    // the weight is in slots, and the gradient is the host's
  kClearsSavedOnHost,     // forward clears saved with memset
  kNullStreamInBackward,  // backward calls kernels on the null stream
  kReadsHyperOnHost,      // optimizer_step looks at the learning rate
  kForgetsSavedByte,      // the last byte of saved is not written
  kWritesReadSlot,        // forward scales its scale slot
  kWritesGap,             // forward writes the gap behind each row of y
  kAccumulatesY,          // forward adds to the old content of y
  kWritesStepElsewhere,   // optimizer_step writes its gradient
  kAmaxOverwrites,        // amax is cleared before each cast
  kNullChangesScale,      // without a place for amax, x is cast by current scaling
  kFirstCallFlag,         // the first forward of a session has no bias
  kStepCounter,           // the margin depends on a count of end_step in the session
  kRemembersScale,        // forward uses the address of its first call
  kSharedAcrossSessions,  // the bias is lost when another session came in between
  kOverwriteIgnored,      // OVERWRITE is ignored
  kSkipWeightIgnored,     // SKIP_WEIGHT is ignored
  kSkipWeightLosesDb,     // SKIP_WEIGHT leaves db out, too
  kBackwardNeedsOrder,    // backward uses the scale_inv of the last forward
  kSkipIgnored,           // optimizer_step ignores skip
  kOptimizerNameless,     // describe names no algorithm
  kOptimizerMisnamed,     // describe says adam, and the decay shrinks the weight
  kWorkspaceOverrun,      // forward writes behind its workspace
  kSavedTooLarge,         // the plan states more for saved than is written
  kEmptyFails,            // M = 0 is refused
  kEmptyKeepsDw,          // M = 0 with OVERWRITE leaves dw
  kCurrentScaling,        // forward ignores the scale that its list holds
  kDwOverwrites,          // dw is never accumulated
  kSealRepeats,           // every seal emits all uses again
  kLatePlan,              // plans grow with every seal
  kNanIsCleared,          // dx is cleared when dy has a NaN
  kNoNonfinite,           // the nonfinite slot is never set
  kNonfiniteStays,        // end_step does not clear the nonfinite slot
  kNoBias,                // y lacks the bias
  kWrongScaleInv,         // dgrad uses the scale_inv of dy twice
  kMarginTooLarge,        // scales are 2^16 too small, so most of x is subnormal
  kNoPadding,             // caps.alignment is ignored
  kPaddingShows,          // the padded run has no bias
  kCurrentCallMember,     // calls leave their linear in the session
  kKeepsOwnGradient,      // a reduction leaves the first gradient of the bucket as it was
  kSumsWithoutMean,       // a reduction gives the sum over ranks
  kReducesOnHost,         // a stage fills send with memcpy
  kPlansAnew,             // plan_reduction gives one stage more every time
  kForgetsSent,           // the last element of send is not written
  kWritesRecv,            // a stage scales recv in place
  kFusedRefused,          // a linear that keeps x is not fused
  kFusedWritesExtent,     // a refused question for the workspace is answered with zeros
  kFusedNoRows,           // the stated workspace has no row_multiple
  kPlanHuge,              // the plan states 2^47 bytes and more
  kFusedTooLittle,        // the stated workspace is a byte a row short
  kFusedInF32,            // the prologue is not rounded to x's dtype
  kFusedForgetsRstd,      // a fused forward leaves rstd unwritten
  kFusedRecordsNothing,   // a fused forward leaves out amax
  kFusedClearsOnHost,     // a fused forward clears mean with memset
  kFusedAnyOp,            // an unknown op is taken for an activation
  kAllocates,             // forward takes memory from the heap
  kForwardNothing,        // forward returns at once
  kBackwardNothing,       // backward returns at once
  kEscapesInText,         // a verdict would colour the terminal
  kTextNotUtf8,           // a verdict in Latin-1
  kTextHuge,              // a verdict that states 2^40 bytes
  kTextNoData,            // a verdict that states bytes and has none
  kTextWithLines,         // a verdict has a line that looks like the suite's
  kScaleNotSaved,         // scales are in no checkpoint
  kKeepsSession,          // close_session frees nothing
  kHalfHistory,           // end_step rolls half of each history
  kAmaxInScale,           // forward records amax in the slot of the scale
  kColumnsReversed,       // linears take the columns of pools in reverse
  kNonfiniteNotReduced,   // each rank has a nonfinite flag of its own
  kNonfiniteBySum,        // nonfinite flags are added
  kScaleUnread,           // casts read no scale, which end_step derives all the same
  kEvaluationNoBias,      // an evaluation lacks the bias
  kRecordsByOutputs,      // a backward without dx and dw records nothing of dy
  kGroupedTooLittle,      // the saved of a group has room for the rest of one linear only
  kGroupedOneSaved,       // all linears of a group use the same saved
  kGroupedOneBias,        // all linears of a group have the first bias
  kGroupedSkipsEmpty,     // a linear of a group that has no rows gets no backward
  kGroupedAnyShape,       // a plan for weights of two shapes
  kGroupedAnyOffsets,     // offsets are not looked at
  kGroupedClearsOnHost,   // a grouped forward clears saved with memset
  kShardPlansAnew,        // every other plan has larger packets
  kShardRefusesOneRank,   // one rank with all rows is refused
  kShardOwnScale,         // each rank's rows are scaled by their own amax
  kShardReversed,         // packets are placed from the last to the first
  kShardNoPadding,        // padding behind the last packet is not written
  kShardRecordsNothing,   // place leaves out amax
  kShardCopiesOnHost,     // place copies scale_inv with memcpy
  kShardTooFew,           // place accepts packets of some of the rows
  kWritesWhatItReads,     // end_step writes a scale that it states as read
  kSecondNonfinite,       // two slots of role NONFINITE
  kCacheInCheckpoints,    // the weight cache is saved
  kPlansEarly,            // linear_plan of a linear before its seal
  kInvalidForDtype,       // a dtype that is not taken is INVALID
  kTakesWhatItDeclines,   // f16 runs, and the plan declines it
  kNoNonfiniteOfX,        // casts of x set no flag
  kNoNonfiniteOfW,        // casts of a weight set no flag
  kReportsNothing,        // refusals of setup calls come without a diagnostic
  kKeepsNames,            // labels are the texts of add_linear, which were lent for that call
  kDeclineWritesId,       // a declined linear gets an id
  kAbortedSealCounts,     // a seal that its sink aborts has counted its slots
  kLabelsOfWeights,       // columns of linears have the names of their weights
  kRefusesLonger,         // a description of a later minor version is refused
  kRefusesLongerCalls,    // so is the call struct of forward
  kLooksAtUnknownFlags,   // a forward with an unknown flag is refused
  kRewritesReadSlot,      // backward copies a scale, which it may only read, onto itself
  kClearsSkippedDw,       // with OVERWRITE and SKIP_WEIGHT, dw is cleared
  kLosesGemmFailure,      // a product that fails is not passed on
  kShardMeasuresAnew,     // measure overwrites amax
  kRefusesDeterministic,  // a session that must be deterministic is refused
  kNeedsEveryOption,      // a session without the option `bias` is refused
  kOptionsByPrefix,       // a name that begins as an option's is taken for it
  kLinearOptionIgnored,   // a linear's own `bias` is accepted and not followed
  kLinearOptionForAll,    // a linear's own `bias` holds for every linear
  kDeclineKeepsOption,    // so does that of a linear that is declined
  kDescribesKernels,      // open_session calls describe of the kernels
  kProbesKernels,         // check_session calls probe_device of the kernels
  kTriesKernels,          // seal makes a copy, to see whether it is refused
  kReportsTwice,          // refusals of setup calls come with two diagnostics
  kTakesAnyGradient,      // a gradient_dtype is not looked at
  kTakesCodesAsValues,    // x and dy may be codes, which are taken for values
  kUnknownIdsDoNothing,   // a verb of an id that no seal covers answers OCTAVO_OK
  kTakesOtherShapes,      // shapes of operands are not looked at
  kDeclinesLate,          // a declined dtype of y is refused after x was cast
  kRecordsForOutputs,     // a backward without outputs records no amax of dy
  kRecordsNotForDw,       // a backward for dw alone records no amax of dy
  kNarrowDwOverwrites,    // dw of 16 bits is never accumulated
  kNarrowDbOverwrites,    // db of 16 bits is never accumulated
  kFlagNeedsSaved,        // without saved, a cast of x sets no flag
  kEvaluatesInHost,       // the plan says so, and an evaluation is one in FP8
  kFrozenDwWritten,       // a frozen weight's dw is cleared
  kFrozenDwRefused,       // a frozen weight's dw is refused
  kWeightNeedsAmax,       // quantize_weight refuses null for its amax
  kRefusesInOpen,         // forward is refused between add_linear and seal
  kFusedReadsStride,      // a fused forward refuses an x with a stride below its columns
  kFrozenGradientCounts,  // a frozen parameter is declined for its gradient_dtype
  kNeedsAlignment,        // y at no multiple of 16 is refused
  kListsOn,               // a sink that fails does not end list_options
  kShardPlansEarly,       // a parameter without a seal has a plan of octavo.shard/1
  kShardRefusesSilently,  // a division is refused without a diagnostic
  kShardClearsEmpty,      // cast clears the packet of a rank without rows
  kPlanWritesSize,        // linear_plan sets the size of the plan
  kLevelOfSession,        // verdicts of parameters have the level of a session
  kReportsKernels,        // a failure of kernels is reported once more
  kFusedOfNoKind,         // the table of octavo.fused/1 has the kind 0
  kFusedLacksFunction,    // its linear_forward is null
  // What an author would get wrong and small models do not show.
  kDependsOnAddress,       // no bias where x is at an odd multiple of 64 bytes
  kNonfiniteNeedsDx,       // without dx, a cast of dy sets no flag
  kNonfiniteOfFirstRows,   // only the first half of dy sets the flag
  kDwOfF32,                // a dw of another dtype is not written
  kDbOfF32,                // a db of another dtype is not written
  kDbTwice,                // above 100 rows, db is added twice
  kScaleInvNext,           // the scale_inv of x is the next larger number
  kScaleInvOff,            // the scale_inv of x is 0.2 % too large
  kOneRowOff,              // the y of a single row is 1 % too small
  kRoundsX,                // x is rounded to bf16 before its cast
  kNinthLinear,            // the ninth linear and later ones have no bias
  kScaleSixteenth,         // scales are 16 times too small
  kManyRows,               // above 32767 rows, y has no bias
  kManyColumns,            // above K = 1024, y has no bias
  kManyCalls,              // after 3000 forwards, y has no bias
  kManySteps,              // after 60 steps, scales stay
  kGradScaleIgnored,       // optimizer_step takes OCTAVO_HYPER_GRAD_SCALE for 1
  kDecayIgnored,           // optimizer_step takes OCTAVO_HYPER_WEIGHT_DECAY for 0
  kStepFrozen,             // optimizer_step leaves the step count
  kWriteAdds,              // write_parameter adds to the weight
  kWriteExpAvgIgnored,     // write_parameter leaves EXP_AVG
  kCachesWeight,           // a weight whose slots were seen before is not cast again
  kBackwardUsesLastM,      // backward finds its scale by the rows of the last forward
  kColumnOfWeight,         // a linear takes the column of its weight
  kSecondSealStands,       // end_step leaves the pools of later seals
  kTailRows,               // above 64 rows, those behind the last multiple of 8 have no bias
  kTransposedRounds,       // x is rounded to bf16 for the codes of dw
  kHistoryTwice,           // an amax enters the history twice
  kHistoryLabels,          // columns of histories have labels in reverse
  kSkipIgnoredForVectors,  // skip holds for weights of linears only
  kEmptyKeepsDb,           // M = 0 with OVERWRITE leaves db
  kTiedOverwrites,         // the second linear of a weight overwrites dw
  kHyperOfFirst,           // every parameter gets the hyperparameters of the first
  kStepOfFirst,            // every parameter counts in the step of the first
  kAmaxOfFirstRows,        // amax covers the first 64 rows of x
  kNormOverwrites,         // sum_of_squares begins at 0
  kBiasAsY,                // the bias is read in y's dtype
  kSavedByAddress,         // backward reads the saved of the last forward
  kEndStepAgain,           // end_step clears scales when no forward came since the last one
  kWeightOfForward,        // backward uses the weight cache as it was in the last forward
  kOwnCastsHalve,          // own kernels cast x, and their scale_inv is half of what it should be
  kKeepsAddress,           // forward reads the weight cache at the address of quantize_weight
  kAsksNothing,            // check_session does not ask the kernels
  kAsksOneDtype,           // check_session asks about sums of one dtype, and bf16 is summed as well
  kAsksOneFormat,          // check_session does not ask about casts to E5M2
  kAsksInForward,          // forward asks the kernels
  kLateListOfFirst,        // a linear of a later seal has the weight cache of the first parameter
  kPoolOfTwo,              // a linear's column of a pool is two columns
  kScaleOfOtherShape,      // a weight cache with scales of rows, whose scale slot has one number
  kAmaxOfXLost,            // x is cast without its amax
  kEmptyKeepsOnlyDb,       // M = 0 with OVERWRITE leaves db where nothing else is wanted
  kRecordsBeforeRefusal,   // forward writes the amax of x, and then refuses y
  kRefusesInSilence,       // a verb reports nothing of another shape
  kReadsOddX,              // backward refuses an x that it does not need
  kTakesVectorWeight,      // add_linear takes a parameter that is no LINEAR_WEIGHT
  kForwardUnsealed,        // forward knows a linear that no seal covers
  kRenamesFailure,         // forward answers another status than the kernels
  kIgnoresReserved,        // `reserved` of an operand is not looked at
  kTakesMoreRows,          // a bias may have several rows, of which the first counts
  kPlanRefusesInSilence,   // linear_plan reports nothing of an unknown linear
  kPlanLosesFailure,       // linear_plan does not look at the status of workspace_bytes
  kFusedReports,           // a question for the workspace of a fused forward is reported
  kShardFlagsOthers,       // cast flags an Inf of another rank
  kShardPlaceFlags,        // place flags an Inf
  kInterfacesByPrefix,     // an id that begins as octavo.backend/1 gets its table
  kTakesAnyHost,           // the query function takes a host of another major version
  kFaultCount,
  kOtherOptimizer,  // no fault: describe names an algorithm that the check cannot compute
  kOwnCasts,        // no fault: own kernels cast x
  kStaticScales     // no fault: scales are 1 for good
};

// The fault also stands in the session's options; the table differs for kUnsteadyOptions only.
const octavo_backend *subject_backend(Fault fault);
const octavo_optimizer *subject_optimizer();
const octavo_gradients *subject_gradients();
const octavo_fused *subject_fused(Fault fault = kNone);
const octavo_grouped *subject_grouped();
const octavo_shard *subject_shard();

}  // namespace octavo::selftest

#endif
