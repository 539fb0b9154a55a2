// The table of checks and the one way to run them.
//
// A check runs once with the kernels' own alignment and once with 16: a backend has to pad inside
// when the kernels ask for it, and nothing of what it promises may change by that.
#include "conformance.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "all_checks.h"
#include "in_flight.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// Whoever opened the backend has done it: the suite's first check is the load alone.
void check_load(const Context &) {
  step("load");
}

constexpr Check kChecks[] = {
    {"load", "liboctavo loads the plugin, and the backend accepts this machine.", "L1 L2",
     check_load},
    {"process", "The plugin changes nothing of the process: no thread, descriptor, handler, mode.",
     "P1 P2 P3", check_process},
    {"symbols", "The plugin exports no function of the C or C++ library.", "L3", check_symbols},
    {"texts", "Texts are UTF-8 without control characters, and of sensible length.", "T4",
     check_texts},
    {"contract.table",
     "Tables are complete and well formed, options and verdicts are steady, and [options] of "
     "the manifest agrees.",
     "T1 T2 T3 S1", check_table},
    {"contract.refusals",
     "Malformed setup calls are refused with OCTAVO_INVALID and leave no trace.", "S2 S3 S8",
     check_refusals},
    {"contract.decline",
     "A linear or parameter that was declined leaves no trace, and an unknown option declines.",
     "S4", check_decline},
    {"contract.options",
     "A missing option is its default, an unknown one is refused; a linear follows its own.",
     "T2 S2 S4", check_own_options},
    {"contract.slots", "What seal emits keeps the rules for slots, uses, pools and access.",
     "M1 M2 M3 M4", check_slots},
    {"checkpoint", "A session that has the slots of a checkpoint alone goes on with equal bits.",
     "M6", check_checkpoint},
    {"fence", "Host code of the backend never touches slots, tensors, saved or workspaces.", "V1",
     check_fence},
    {"fence.optimizer", "The same for the verbs of the optimizer.", "V1 V8", check_fence_optimizer},
    {"heap",
     "Hot verbs take no memory from the heap, and close_session gives back what a session took.",
     "P4 S7", check_heap},
    {"access", "A verb reads what it states, writes every byte it states and nothing else.",
     "V2 V3", check_access},
    {"access.optimizer", "The same for optimizer_step.", "V2 V3 V8", check_access_optimizer},
    {"identity", "Accumulating in place equals zeros and combining outside; null records nothing.",
     "V4", check_identity},
    {"identity.splits", "Any split of a batch into micro-batches gives equal amax pools.", "V4",
     check_splits},
    {"purity", "Steps repeated from the same memory give the same bytes, in a new place as well.",
     "V5", check_replay},
    {"purity.arguments", "Repeated calls, OVERWRITE, SKIP_WEIGHT and accumulation agree.", "V6",
     check_arguments},
    {"failures", "A verb passes on the failure of each of its kernels, and works afterwards.",
     "V13", check_failures},
    {"abilities", "What the kernels decline is not called: the backend declines it before.", "V14",
     check_abilities},
    {"purity.order", "Forward and backward calls may come in any order.", "V5", check_order},
    {"purity.sessions", "Two sessions do not influence each other.", "S5", check_sessions},
    {"purity.optimizer", "optimizer_step changes nothing when skip is set, and repeats.", "V8",
     check_optimizer_skip},
    {"extents", "saved and workspaces are as large as the plan says, for every M.", "M5",
     check_extents},
    {"extents.empty", "M = 0 works with null data, records nothing and gives dw = 0.", "V7",
     check_empty},
    {"rows", "A row's y does not depend on the batch it came in.", "N2", check_rows},
    {"twice", "One layer called twice and two linears on one weight add up.", "V4", check_twice},
    {"late", "A second seal changes nothing that was emitted before.", "S6", check_late},
    {"nonfinite.nan", "NaN stays NaN wherever it reaches, and stays away from the rest.", "N3",
     check_nan},
    {"nonfinite",
     "Inf or NaN in x, w or dy is reported, and after end_step it is as if it never happened.",
     "N3", check_nonfinite},
    {"numerics", "y, dx, dw and db lie within the error bounds of the formats.", "N1",
     check_numerics},
    {"optimizer",
     "optimizer_step is Adam by the hyperparameters of each item; parameters read as written.",
     "V8 N6", check_optimizer},
    {"scales",
     "Casts record in slots of the right role, and delayed scales follow from their history.",
     "M3 N5", check_scales},
    {"alignment", "Padding for kernels that need multiples of 16 does not show in any result.",
     "N4", check_alignment},
    {"threads", "Two threads on one session get the bits of one.", "V5 P1", check_threads},
    {"reduction", "Ranks that reduce their gradients all end with the mean, by stages that repeat.",
     "V9", check_reduction},
    {"fused", "A fused forward leaves the bytes of its prologue and then linear_forward.", "V10",
     check_fused},
    {"grouped", "A call of several linears leaves the bytes of one call for each.", "V11",
     check_grouped},
    {"shard", "Codes that ranks gather are those of the whole weight.", "V12", check_shard},
};

Result run_once(const Check &check, const Context &context) {
  try {
    check.run(context);
    return {Outcome::kPass, "", take_steps(true)};
  } catch (const Skip &skip) {
    return {Outcome::kSkip, skip.what(), take_steps(true)};
  } catch (const Failure &failure) {
    return {Outcome::kFail, text("[alignment ", context.alignment, "] ", failure.what()),
            take_steps(false)};
  } catch (const std::exception &failure) {
    return {Outcome::kFail,
            text("an exception ended ", in_flight_text(in_flight()), ": ", failure.what(),
                 "; none may cross the border"),
            take_steps(false)};
  } catch (...) {
    return {Outcome::kFail,
            text("an exception ended ", in_flight_text(in_flight()), "; none may cross the border"),
            take_steps(false)};
  }
}

}  // namespace

std::span<const Check> checks() {
  return kChecks;
}

const Check *find_check(const std::string &name) {
  const auto found = std::find_if(std::begin(kChecks), std::end(kChecks),
                                  [&](const Check &check) { return name == check.name; });
  return found == std::end(kChecks) ? nullptr : found;
}

Result run_check(const Check &check, const Target &target, uint64_t seed) {
  const uint64_t own = std::max<uint64_t>(target.desc.caps->alignment, 1);
  take_steps(true);
  Result result = run_once(check, {target, seed, own});
  if (result.outcome != Outcome::kPass || own % kPaddedAlignment == 0) return result;
  const Context padded{target, seed, kPaddedAlignment};
  try {
    if (!declined_reason(padded).empty()) {
      result.detail = text("without padding only, since the backend declined kernels of alignment ",
                           kPaddedAlignment);
      return result;
    }
  } catch (const Failure &failure) {
    return {Outcome::kFail, failure.what(), std::move(result.steps)};
  }
  Result second = run_once(check, padded);
  for (Step &one : second.steps) {
    one.name += text(", alignment ", kPaddedAlignment);
    result.steps.push_back(std::move(one));
  }
  second.steps = std::move(result.steps);
  return second;
}

}  // namespace octavo::conformance
