// contract.slots: the rules that every emitted slot and use must keep.
//
// Roles that this release does not know count as OTHER; unknown access kinds do not exist for a
// host of this minor, so they are failures.
#include <algorithm>
#include <map>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr uint32_t kVerbs = 6;
const char *const kVerbNames[kVerbs] = {"quantize_weight", "forward",        "backward",
                                        "end_step",        "optimizer_step", "reduce"};

void check_access_kinds(const octavo_slot &d, const std::string &name) {
  int accumulating = 0;
  for (uint32_t verb = 0; verb < kVerbs; ++verb) {
    const uint8_t access = d.access[verb];
    expect(access <= OCTAVO_ACCESS_ACCUMULATE, name, " has unknown access ", unsigned{access},
           " in ", kVerbNames[verb]);
    if (access == OCTAVO_ACCESS_ACCUMULATE) ++accumulating;
    const bool hot = verb == OCTAVO_VERB_FORWARD || verb == OCTAVO_VERB_BACKWARD;
    const bool writes = access == OCTAVO_ACCESS_WRITE || access == OCTAVO_ACCESS_UPDATE;
    expect(
        !hot || !writes || (d.owner_kind == OCTAVO_OWNER_PARAMETER && verb != OCTAVO_VERB_FORWARD),
        name, " is written in ", kVerbNames[verb],
        "; hot verbs read or accumulate, apart from the weight gradient in backward");
    if (d.role == OCTAVO_ROLE_SCALE && verb != OCTAVO_VERB_END_STEP) {
      expect(access == OCTAVO_ACCESS_NONE || access == OCTAVO_ACCESS_READ, name, " is changed in ",
             kVerbNames[verb], "; a scale changes in end_step only");
    }
    if (d.role == OCTAVO_ROLE_AMAX_HISTORY && hot) {
      expect(access == OCTAVO_ACCESS_NONE, name, " is used in ", kVerbNames[verb],
             "; a history is never used in a hot verb");
    }
    if (d.role == OCTAVO_ROLE_WEIGHT_CACHE && verb != OCTAVO_VERB_QUANTIZE_WEIGHT) {
      expect(access == OCTAVO_ACCESS_NONE || access == OCTAVO_ACCESS_READ, name, " is changed in ",
             kVerbNames[verb], "; quantize_weight is the only writer of the weight cache");
    }
  }
  for (int verb = OCTAVO_VERB_REDUCE + 1; verb < OCTAVO_VERB_LIMIT; ++verb)
    expect(d.access[verb] == 0, name, " states an access for verb ", verb,
           ", which does not exist");
  expect(accumulating <= 1 || d.role == OCTAVO_ROLE_NONFINITE, name, " is accumulated by ",
         accumulating, " verbs; one is allowed");
  if (accumulating == 0) return;
  expect(d.dtype == OCTAVO_F32, name, " is accumulated in ", dtype_name(d.dtype),
         "; every accumulator is f32");
  expect(d.combine == OCTAVO_COMBINE_MAX || d.combine == OCTAVO_COMBINE_SUM, name,
         " is accumulated but states no way to combine");
  const bool is_max = d.role == OCTAVO_ROLE_AMAX || d.role == OCTAVO_ROLE_NONFINITE;
  const bool is_sum = d.role >= OCTAVO_ROLE_SATURATED && d.role <= OCTAVO_ROLE_NOISE;
  expect(!is_max || d.combine == OCTAVO_COMBINE_MAX, name, " has role ", d.role, ", of which the ",
         "largest counts, but is combined by ", d.combine, "; expected OCTAVO_COMBINE_MAX");
  expect(!is_sum || d.combine == OCTAVO_COMBINE_SUM, name, " has role ", d.role, ", a sum, but is ",
         "combined by ", d.combine, "; expected OCTAVO_COMBINE_SUM");
  expect(d.role != OCTAVO_ROLE_NONFINITE || (d.flags & OCTAVO_SLOT_REDUCE) != 0, name,
         " lacks OCTAVO_SLOT_REDUCE: ranks would disagree about the step that they skip");
}

// A scale that end_step derives is for casts.
void check_scale_is_read(const octavo_slot &d, const std::string &name) {
  if (d.role != OCTAVO_ROLE_SCALE || d.access[OCTAVO_VERB_END_STEP] == OCTAVO_ACCESS_NONE) return;
  bool is_read = false;
  for (uint32_t verb = 0; verb < kVerbs; ++verb)
    is_read = is_read || (verb != OCTAVO_VERB_END_STEP && d.access[verb] == OCTAVO_ACCESS_READ);
  expect(is_read, name, " is derived in end_step, but no other verb reads it");
}

// The scales of codes have the shape of their granularity.
void check_scale_shape(const Session &s, const octavo_slot &d, const std::string &name) {
  if (d.scale_slot == OCTAVO_NONE || (d.flags & OCTAVO_SLOT_PACKED) != 0) return;
  int64_t rows = 1, cols = 1;
  switch (d.granularity) {
    case OCTAVO_PER_TENSOR: break;
    case OCTAVO_PER_ROW: rows = d.rows; break;
    case OCTAVO_BLOCK_1X128: rows = d.rows, cols = (d.cols + 127) / 128; break;
    case OCTAVO_BLOCK_128X128: rows = (d.rows + 127) / 128, cols = (d.cols + 127) / 128; break;
    case OCTAVO_BLOCK_1X32: rows = d.rows, cols = (d.cols + 31) / 32; break;
    case OCTAVO_BLOCK_32X32: rows = (d.rows + 31) / 32, cols = (d.cols + 31) / 32; break;
    default: return;
  }
  const octavo_slot &scales = s.slots()[d.scale_slot].desc;
  const bool is_line = rows == 1 || cols == 1;
  expect((scales.rows == rows && scales.cols == cols) ||
             (is_line && scales.rows * scales.cols == rows * cols),
         name, " has [", d.rows, ", ", d.cols, "] codes with granularity ", d.granularity,
         ", and its scale_slot has [", scales.rows, ", ", scales.cols, "]; expected [", rows, ", ",
         cols, "]");
}

void check_slot(const Host &host, const Slot &slot) {
  const octavo_slot &d = slot.desc;
  const Session &s = host.session();
  const std::string name = host.slot_name(d.id);
  expect(d.kind == OCTAVO_KIND_SLOT, name, " has kind ", d.kind, "; expected ",
         OCTAVO_KIND_SLOT + 0);
  expect(d.size >= OCTAVO_SIZE_THROUGH(octavo_slot, labels), name, " has size ", d.size);
  expect(!slot.name.empty(), name, " has no name");
  expect(d.owner_kind >= OCTAVO_OWNER_SESSION && d.owner_kind <= OCTAVO_OWNER_LINEAR, name,
         " has unknown owner kind ", d.owner_kind);
  expect(element_bytes(d.dtype) > 0, name, " has unknown dtype ", d.dtype);
  expect(OCTAVO_DTYPE_BITS(d.dtype) >= 32 || (d.initial >= 0 && d.initial <= 0), name,
         " has initial value ", d.initial, "; slots of 8-bit and 16-bit dtypes start at 0");
  expect(d.scale_slot == OCTAVO_NONE || d.scale_slot < s.slots().size(), name,
         " names the unknown scale slot ", d.scale_slot);
  expect(slot.labels.empty() || d.owner_kind == OCTAVO_OWNER_SESSION, name,
         " has labels but is not the session's; pools are");
  if ((d.flags & OCTAVO_SLOT_REDUCE) != 0) {
    expect(d.combine != OCTAVO_COMBINE_NONE, name, " is REDUCE but states no way to combine");
  }
  if (d.role == OCTAVO_ROLE_NONFINITE) {
    expect(d.dtype == OCTAVO_F32 && d.rows == 1 && d.cols == 1, name, " must be f32 [1, 1]");
    expect(s.find_slot(OCTAVO_ROLE_NONFINITE) == d.id, name,
           " is a second slot of role NONFINITE; it is emitted once in a session");
  }
  expect(d.role != OCTAVO_ROLE_WEIGHT_CACHE || (d.flags & OCTAVO_SLOT_CHECKPOINT) == 0, name,
         " is a weight cache with OCTAVO_SLOT_CHECKPOINT; quantize_weight makes it anew");
  const bool tensor = d.role == OCTAVO_ROLE_WEIGHT || d.role == OCTAVO_ROLE_GRADIENT;
  if (tensor && d.owner_kind == OCTAVO_OWNER_PARAMETER) {
    const ParameterSpec &spec = s.parameters()[d.owner].spec;
    if ((d.flags & OCTAVO_SLOT_NATIVE) == 0) {
      expect(s.optimizer() != nullptr, name, " is not native, so the backend must provide ",
             OCTAVO_OPTIMIZER_ID);
    } else {
      const uint32_t dtype = d.role == OCTAVO_ROLE_WEIGHT ? spec.dtype : spec.gradient_dtype;
      expect(d.rows == spec.rows && d.cols == spec.cols && d.dtype == dtype, name,
             " is native, so its shape and dtype must be the parameter's");
    }
  }
  check_access_kinds(d, name);
  check_scale_shape(s, d, name);
  check_scale_is_read(d, name);
}

// The names by which a column of a pool may be labelled in the list of this object.
std::vector<std::string> labels_of(const Session &s, uint32_t owner_kind, uint32_t owner) {
  if (owner_kind == OCTAVO_OWNER_PARAMETER) return {s.parameters()[owner].spec.name};
  const Linear &linear = s.linears()[owner];
  return {linear.name, s.parameters()[linear.weight].spec.name};
}

// (slot name, label) identifies a column in a session: where it is, as slot and column.
using Columns = std::map<std::pair<std::string, std::string>, std::pair<uint32_t, uint32_t>>;

void check_uses(const Host &host, uint32_t owner_kind, uint32_t owner, const std::string &object,
                Columns &columns) {
  const Session &s = host.session();
  for (const octavo_slot_use &use : s.uses(owner_kind, owner)) {
    const octavo_slot &d = s.slots()[use.slot].desc;
    const std::string name = text("the use of ", host.slot_name(use.slot), " by ", object);
    expect(use.reserved == 0, name, " has a reserved field that is not 0");
    const bool is_weight = d.owner_kind == OCTAVO_OWNER_PARAMETER &&
                           (d.role == OCTAVO_ROLE_WEIGHT || d.role == OCTAVO_ROLE_WEIGHT_CACHE);
    if (is_weight && owner_kind == OCTAVO_OWNER_LINEAR)
      expect(d.owner == s.linears()[owner].weight, name, " is one of another weight");
    if (owner_kind == OCTAVO_OWNER_SESSION || s.slots()[use.slot].labels.empty()) {
      expect(use.first == 0 && use.count == 0, name, " names columns (", use.first, ", ", use.count,
             "); a whole slot is (0, 0), and columns are those of a pool, a slot with labels");
    } else {
      expect(use.count > 0 && use.first + uint64_t{use.count} <= static_cast<uint64_t>(d.cols),
             name, " names columns [", use.first, ", +", use.count, ") of ", d.cols);
      expect(d.rows == 1, name, " takes columns of ", d.rows,
             " rows; only pools of one row have columns in the lists of parameters and linears");
      const std::vector<std::string> names = labels_of(s, owner_kind, owner);
      const std::vector<std::string> &labels = s.slots()[use.slot].labels;
      for (uint32_t at = use.first; at < use.first + use.count; ++at)
        expect(std::find(names.begin(), names.end(), labels[at]) != names.end(), name,
               " is column ", at, ", which is labelled '", labels[at], "'");
      const std::string &label = labels[use.first];
      const std::pair column = {use.slot, use.first};
      const auto known = columns.try_emplace({s.slots()[use.slot].name, label}, column).first;
      expect(known->second == column, name, " is column ", use.first, " of slot ", use.slot,
             ", and column ", known->second.second, " of slot ", known->second.first,
             " is labelled '", label, "' too: slot name and label identify a column");
    }
  }
}

void check_all(Session &s) {
  const Host host(s, s.context().seed);
  for (const Slot &slot : s.slots()) check_slot(host, slot);
  Columns columns;
  check_uses(host, OCTAVO_OWNER_SESSION, 0, "the session", columns);
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    check_uses(host, OCTAVO_OWNER_PARAMETER, id,
               text("parameter '", s.parameters()[id].spec.name, "'"), columns);
  }
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    const Linear &linear = s.linears()[id];
    check_uses(host, OCTAVO_OWNER_LINEAR, id, text("linear '", linear.name, "'"), columns);
    const bool frozen = (s.parameters()[linear.weight].spec.flags & OCTAVO_PARAMETER_FROZEN) != 0;
    expect(frozen == (linear.plan.gradient == OCTAVO_GRADIENT_NONE), "linear '", linear.name,
           "' has plan.gradient ", linear.plan.gradient, " on a weight that is ",
           frozen ? "frozen; expected OCTAVO_GRADIENT_NONE" : "trained");
    expect(linear.plan.gradient <= OCTAVO_GRADIENT_SLOT, "linear '", linear.name,
           "' has unknown plan.gradient ", linear.plan.gradient);
    const auto stores = [&](uint32_t role) {
      return std::any_of(s.slots().begin(), s.slots().end(), [&](const Slot &slot) {
        const octavo_slot &d = slot.desc;
        return d.owner_kind == OCTAVO_OWNER_PARAMETER && d.owner == linear.weight &&
               d.role == role && (d.flags & OCTAVO_SLOT_NATIVE) == 0;
      });
    };
    expect(frozen || !stores(OCTAVO_ROLE_WEIGHT) || stores(OCTAVO_ROLE_GRADIENT), "linear '",
           linear.name,
           "' has its weight in slots and the host's own gradient; expected both in "
           "slots: a host steps its own weights, with its own gradients");
  }
}

}  // namespace

void check_slots(const Context &context) {
  Session s(context);
  s.add(standard_model());
  s.seal();
  check_all(s);
  s.add(late_model());
  s.seal();
  check_all(s);
  Session blocks(context);
  blocks.add({{{"blocks", 300, 160}}, {{"blocks", "blocks"}}}, true);
  blocks.seal();
  check_all(blocks);
  if (!context.target.seal) return;
  step("seal by liboctavo");
  const std::string refusal = context.target.seal();
  expect(refusal.empty(), "liboctavo refuses what seal emits: ", refusal);
}

}  // namespace octavo::conformance
