// octavo/hpp/plugin/rules.hpp: the objects of a session, and the statement of one slot.
#ifndef OCTAVO_HPP_PLUGIN_RULES_HPP
#define OCTAVO_HPP_PLUGIN_RULES_HPP

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "octavo/backend.h"
#include "octavo/hpp/plugin/operands.hpp"
#include "octavo/slots.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// Where a rule's slot is in one object's list, and what it is.
struct Place {
  uint32_t position = OCTAVO_NONE;
  uint32_t slot = OCTAVO_NONE;
  uint32_t dtype = 0;
  Layout layout = Layout::kStraight;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Whether something was done. Calls on a sealed session come from several threads.
class Done {
 public:
  Done() = default;
  Done(const Done &other) : is_(other.get()) {}
  Done &operator=(const Done &other) {
    is_.store(other.get(), std::memory_order_relaxed);
    return *this;
  }
  bool get() const { return is_.load(std::memory_order_relaxed); }
  void set() const {
    if (!get()) is_.store(true, std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<bool> is_{false};
};

struct Parameter {
  uint32_t id = 0;
  std::string name;
  int64_t rows = 0;  // N
  int64_t cols = 0;  // K
  uint32_t dtype = 0;
  uint32_t gradient_dtype = 0;
  uint32_t flags = 0;
  uint32_t variant = 0;       // that of its linears
  bool has_linear = false;    // whether a linear of its own seal uses it
  bool has_gradient = false;  // whether its gradient is a slot that is not the host's own
  bool needs_cast = false;    // whether a forward reads what quantize_weight alone writes
  Done cast;                  // whether that was written in this session
  std::vector<Place> places;  // by rule
  // The rule of its slot of each role, the first one; OCTAVO_NONE: it has none. Known after its
  // seal.
  std::array<uint32_t, OCTAVO_ROLE_NOISE + 1> by_role{};

  bool is_linear_weight() const { return (flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0; }
  bool is_frozen() const { return (flags & OCTAVO_PARAMETER_FROZEN) != 0; }
};

struct Linear {
  uint32_t id = 0;
  std::string name;
  uint32_t weight = 0;           // parameter id
  uint32_t variant = 0;          // 0: the session's options; else which others
  bool needs_x = false;          // whether backward asks for x; known after its seal
  octavo_extent saved{1, 0, 0};  // likewise
  std::vector<Place> places;
};

// OCTAVO_LINEAR_DECLINES_... of a dtype.
inline uint32_t declined_flag(uint32_t dtype) {
  if (dtype == OCTAVO_F32) return OCTAVO_LINEAR_DECLINES_F32;
  if (dtype == OCTAVO_BF16) return OCTAVO_LINEAR_DECLINES_BF16;
  return dtype == OCTAVO_F16 ? uint32_t{OCTAVO_LINEAR_DECLINES_F16} : 0;
}

constexpr std::array<uint32_t, 3> kPlainDtypes = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

// A dtype to measure with: the first that is not declined.
inline uint32_t taken_dtype(uint32_t declined) {
  for (const uint32_t dtype : kPlainDtypes)
    if ((declined_flag(dtype) & declined) == 0) return dtype;
  return OCTAVO_F16;
}

// Calls of a linear that the kernels decline.
struct Lacking {
  std::array<uint32_t, 3> by_weight{};  // OCTAVO_LINEAR_DECLINES_..., in the order of kPlainDtypes
  std::string call;                     // the first one, and why; empty: none

  static constexpr uint32_t kAll =
      OCTAVO_LINEAR_DECLINES_F32 | OCTAVO_LINEAR_DECLINES_BF16 | OCTAVO_LINEAR_DECLINES_F16;
  uint32_t of(uint32_t weight_dtype) const {
    for (size_t i = 0; i < kPlainDtypes.size(); ++i)
      if (kPlainDtypes[i] == weight_dtype) return by_weight[i];
    return 0;
  }
  bool is_everything() const {
    return by_weight[0] == kAll && by_weight[1] == kAll && by_weight[2] == kAll;
  }
};

// Handles: an index into the rules. What they give is in calls.hpp.
struct MatrixSlot {
  uint32_t rule = OCTAVO_NONE;
};
struct FloatSlot {
  uint32_t rule = OCTAVO_NONE;
};
// Codes in one or both directions with their scale_inv; columns_scale_inv is scale_inv where both
// share it.
struct CodesSlot {
  uint32_t rows = OCTAVO_NONE, columns = OCTAVO_NONE, scale_inv = OCTAVO_NONE;
  uint32_t columns_scale_inv = OCTAVO_NONE;
  uint32_t granularity = OCTAVO_PER_TENSOR;
  uint32_t second = OCTAVO_NONE, columns_second = OCTAVO_NONE;  // of scales with two levels
};
// One column for each linear, or each linear weight, of a seal.
struct PoolSlot {
  uint32_t rule = OCTAVO_NONE;
};
// The pools of one operand.
struct ObservedSlot {
  PoolSlot amax, history, scale, counter;
  PoolSlot statistics[kStatisticCount];
};

using Verbs = std::vector<uint32_t>;  // OCTAVO_VERB_...

// One statement. Fill what differs from zero; access is set by the functions.
struct SlotRule {
  enum class Kind { kSession, kParameter, kLinear, kLinearPool, kWeightPool };
  Kind kind = Kind::kSession;
  uint32_t variant = 0;   // for whose objects; a session's slot is for all that state it alike
  bool is_shared = true;  // false: each variant has its own slot of the session
  std::string name;
  uint32_t role = OCTAVO_ROLE_OTHER;
  uint32_t dtype = OCTAVO_F32;  // 0: the parameter's own
  uint32_t flags = 0;
  uint32_t combine = OCTAVO_COMBINE_NONE;
  uint32_t shard = OCTAVO_SHARD_REPLICATED;
  uint32_t scale_rule = OCTAVO_NONE;  // the rule of its scale_inv, stated before it or after it
  uint32_t granularity = OCTAVO_PER_TENSOR;  // of scale_rule
  double initial = 0;
  int64_t rows = 1;
  int64_t cols = 1;
  // Rows and columns for this parameter, in place of the two above.
  std::function<void(const Parameter &, int64_t *rows, int64_t *cols)> shape;
  // For which parameters; empty: for all. Of a session's slot: in whose lists it stands.
  std::function<bool(const Parameter &)> when;
  // The dtype for this parameter, in place of the one above.
  std::function<uint32_t(const Parameter &)> dtype_of;
  // Changes what is emitted for this parameter, such as the access of a frozen one to
  // OPTIMIZER_STEP; not its shape, its dtype, or which lists it is in.
  std::function<void(const Parameter &, octavo_slot *)> adjust;
  // Codes of a weight in panels of this many rows, where a linear of its seal has it; 0: never.
  int64_t panel_rows = 0;
  uint8_t access[OCTAVO_VERB_LIMIT] = {};

  SlotRule &read(const Verbs &verbs) { return set(verbs, OCTAVO_ACCESS_READ); }
  SlotRule &write(const Verbs &verbs) { return set(verbs, OCTAVO_ACCESS_WRITE); }
  SlotRule &update(const Verbs &verbs) { return set(verbs, OCTAVO_ACCESS_UPDATE); }
  // Ranks are combined the same way, and end_step clears it.
  SlotRule &accumulate(uint32_t verb, uint32_t how) {
    access[verb] = OCTAVO_ACCESS_ACCUMULATE;
    access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    flags |= OCTAVO_SLOT_REDUCE;
    combine = how;
    return *this;
  }
  // Whether two statements of a session's slot mean one slot.
  bool is_same(const SlotRule &o) const {
    return is_shared && o.is_shared && kind == o.kind && name == o.name && role == o.role &&
           dtype == o.dtype && flags == o.flags && combine == o.combine && initial == o.initial &&
           rows == o.rows && cols == o.cols &&
           std::equal(std::begin(access), std::end(access), o.access);
  }
  bool is_pool() const { return kind == Kind::kLinearPool || kind == Kind::kWeightPool; }
  bool is_of_linear_verbs() const {
    return access[OCTAVO_VERB_FORWARD] != 0 || access[OCTAVO_VERB_BACKWARD] != 0;
  }
  bool is_of_parameter_verbs() const {
    return access[OCTAVO_VERB_QUANTIZE_WEIGHT] != 0 || access[OCTAVO_VERB_REDUCE] != 0;
  }

 private:
  SlotRule &set(const Verbs &verbs, uint8_t how) {
    for (const uint32_t v : verbs) access[v] = how;
    return *this;
  }
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
