// Takes what a backend emits at seal: slots, uses and the plans of linears, each checked.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "sdk/src/base/dtype.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/run/run.h"

namespace {

// Whether the value of a 32-bit slot's elements is one of its dtype; other dtypes have 0 only.
bool has_initial(const octavo_slot &s) {
  if (s.dtype == OCTAVO_I32) return s.initial >= INT32_MIN && s.initial <= INT32_MAX;
  return std::abs(s.initial) <= static_cast<double>(FLT_MAX);
}

// The bits and values of these headers, as the table of abi.h divides them: with one of a later
// minor this host would compute something else than the backend means.
constexpr uint32_t kSlotFlags =
    OCTAVO_SLOT_CHECKPOINT | OCTAVO_SLOT_NATIVE | OCTAVO_SLOT_REDUCE | OCTAVO_SLOT_PACKED;
constexpr uint32_t kDeclined =
    OCTAVO_LINEAR_DECLINES_F32 | OCTAVO_LINEAR_DECLINES_BF16 | OCTAVO_LINEAR_DECLINES_F16;
constexpr uint32_t kPlanFlags = OCTAVO_LINEAR_NEEDS_X | OCTAVO_LINEAR_EVALUATES_IN_HOST | kDeclined;

std::string not_known(const char *field, uint32_t value) {
  return octavo::concat(field, " ", value,
                        " is not known to this host, which could not call correctly");
}

// What a process can address, and the largest sensible padding of rows.
constexpr uint64_t kMostBytes = uint64_t{1} << 47;
constexpr uint64_t kMostRowMultiple = uint64_t{1} << 20;

// What a host could not compute with, or not allocate for a single block of rows; empty: nothing.
std::string fault_of(const char *field, const octavo_extent &e) {
  if (e.row_multiple < 1 || e.row_multiple > kMostRowMultiple)
    return octavo::concat("expected a row_multiple of 1 to ", kMostRowMultiple, " in ", field,
                          ", found ", e.row_multiple);
  if (octavo_extent_bytes(&e, e.row_multiple) > kMostBytes)
    return octavo::concat("expected at most ", kMostBytes, " bytes for ", e.row_multiple,
                          " rows in ", field, ", found ", e.bytes_per_row, " bytes a row and ",
                          e.fixed_bytes, " more");
  return {};
}

std::string fault_of(const octavo_linear_plan &plan) {
  for (const auto &[field, extent] :
       {std::pair{"saved", &plan.saved}, std::pair{"forward_workspace", &plan.forward_workspace},
        std::pair{"backward_workspace", &plan.backward_workspace}})
    if (std::string found = fault_of(field, *extent); !found.empty()) return found;
  if (plan.weight_workspace > kMostBytes)
    return octavo::concat("expected at most ", kMostBytes, " bytes of weight_workspace, found ",
                          plan.weight_workspace);
  if (const uint32_t flags = plan.flags & ~kPlanFlags; flags != 0) return not_known("flag", flags);
  if ((plan.flags & kDeclined) == kDeclined)
    return "expected x of f32, bf16 or f16 to be taken, found all three declined";
  if (plan.gradient > OCTAVO_GRADIENT_SLOT) return not_known("gradient", plan.gradient);
  return {};
}

// The same of what octavo.fused/1 states for a linear. One that it cannot fuse has no workspace.
std::string fault_of(const octavo_fused &fused, const octavo_session *session, uint32_t linear) {
  octavo_extent extent{};
  return fused.workspace(session, linear, &extent) == OCTAVO_OK ? fault_of("workspace", extent)
                                                                : std::string();
}

}  // namespace

bool octavo_run::has_owner(uint32_t kind, uint32_t owner) const {
  const uint32_t counts[] = {0, 1, parameter_count_, linear_count_};
  return kind <= OCTAVO_OWNER_LINEAR && owner < counts[kind];
}

octavo_status octavo_run::take_slot(const octavo_slot &given) {
  octavo_slot s = octavo::copy_known_fields(given, &octavo_slot::labels);
  const std::string name = octavo::take_text(s.name);
  auto refuse = [&](const auto &...text) {
    seal_error_ = octavo::concat("slot ", s.id, " \"", name, "\": ", text...);
    return OCTAVO_INTERNAL;
  };
  if (s.id != slots_.size()) return refuse("expected the id ", slots_.size());
  if (s.rows < 1 || s.cols < 1)
    return refuse("expected at least one row and column, found ", s.rows, " x ", s.cols);
  if (s.rows > (INT64_MAX / 4) / s.cols)
    return refuse("expected fewer than 2^61 elements, found ", s.rows, " x ", s.cols);
  if (s.role < 1 || s.role > OCTAVO_ROLE_NOISE) s.role = OCTAVO_ROLE_OTHER;
  if (octavo::element_bytes(s.dtype) == 0) return refuse("unknown dtype ", s.dtype);
  if (const uint32_t flags = s.flags & ~kSlotFlags; flags != 0)
    return refuse(not_known("flag", flags));
  if (s.combine > OCTAVO_COMBINE_SUM) return refuse(not_known("combine", s.combine));
  if (s.shard > OCTAVO_SHARD_WHOLE) return refuse(not_known("shard", s.shard));
  if (!has_owner(s.owner_kind, s.owner))
    return refuse(
        "expected the session, a parameter or a linear that was added as its owner, "
        "found ",
        s.owner, " of kind ", s.owner_kind);
  for (int verb = 0; verb <= OCTAVO_VERB_REDUCE; ++verb) {
    if (s.access[verb] > OCTAVO_ACCESS_ACCUMULATE)
      return refuse(not_known("access", s.access[verb]));
    if (s.access[verb] == OCTAVO_ACCESS_ACCUMULATE && s.dtype != OCTAVO_F32)
      return refuse("an accumulated slot must be f32");
    if (s.access[verb] == OCTAVO_ACCESS_ACCUMULATE && s.combine == OCTAVO_COMBINE_NONE)
      return refuse("an accumulated slot must say how it is combined");
  }
  const octavo::LoadedPlugin &p = *plugin();
  if (s.access[OCTAVO_VERB_QUANTIZE_WEIGHT] != OCTAVO_ACCESS_NONE && !p.has_quantize_weight)
    return refuse("has an access for quantize_weight, which the backend's table lacks");
  if (s.access[OCTAVO_VERB_END_STEP] != OCTAVO_ACCESS_NONE && !p.has_end_step)
    return refuse("has an access for end_step, which the backend's table lacks");
  for (int verb = OCTAVO_VERB_REDUCE + 1; verb < OCTAVO_VERB_LIMIT; ++verb)
    if (s.access[verb] != OCTAVO_ACCESS_NONE)
      return refuse("access for verb ", verb,
                    ", which is not known to this host, which could not call correctly");
  if (!has_initial(s))
    return refuse("expected an initial value that its dtype can hold, found ",
                  octavo::show(octavo::TomlValue(s.initial)));
  if (OCTAVO_DTYPE_BITS(s.dtype) != 32 && s.initial != 0)
    return refuse("expected initial 0 for a dtype of fewer than 32 bits");
  if ((s.role == OCTAVO_ROLE_WEIGHT || s.role == OCTAVO_ROLE_GRADIENT) &&
      s.owner_kind == OCTAVO_OWNER_PARAMETER && (s.flags & OCTAVO_SLOT_NATIVE) == 0 && !p.optimizer)
    return refuse("expected the interface " OCTAVO_OPTIMIZER_ID
                  ", since no host steps a weight or gradient that is not NATIVE, found none");
  if (s.shard == OCTAVO_SHARD_WHOLE && s.owner_kind != OCTAVO_OWNER_PARAMETER)
    return refuse("expected a parameter as owner of a WHOLE slot, found ", s.owner, " of kind ",
                  s.owner_kind);
  if (s.shard == OCTAVO_SHARD_WHOLE && (s.flags & OCTAVO_SLOT_REDUCE) != 0)
    return refuse("a WHOLE slot lives on one rank, so it cannot also be a REDUCE slot");
  if ((s.flags & OCTAVO_SLOT_REDUCE) != 0 && s.combine == OCTAVO_COMBINE_NONE)
    return refuse("a REDUCE slot must say how it is combined");
  if ((s.flags & OCTAVO_SLOT_PACKED) != 0 &&
      (octavo::element_bytes(s.dtype) != 1 || session_desc_.caps->pack_rows == 0 ||
       static_cast<uint64_t>(s.rows) % session_desc_.caps->pack_rows != 0 ||
       (s.flags & (OCTAVO_SLOT_CHECKPOINT | OCTAVO_SLOT_NATIVE)) != 0))
    return refuse("expected PACKED codes of 8 bits in whole panels of ",
                  session_desc_.caps->pack_rows, " rows, neither CHECKPOINT nor NATIVE, found ",
                  s.rows, " rows of ", OCTAVO_DTYPE_BITS(s.dtype), " bits with flags ", s.flags);
  if (!octavo::take_name(s.name))
    return refuse("expected a name of at most ", octavo::kMaxPluginText,
                  " bytes of UTF-8 without control characters");
  texts_.push_back(name);
  s.name = octavo::borrow(texts_.back());
  if (s.labels != nullptr) {
    std::vector<octavo_str> labels;
    for (int64_t i = 0; i < s.cols; ++i) {
      // The host's own names of linears and parameters, as a rule.
      if (!octavo::is_readable(s.labels[i]))
        return refuse("expected labels of at most ", octavo::kMaxPluginText, " bytes, found ",
                      octavo::take_text(s.labels[i]), " at column ", i);
      texts_.push_back(octavo::take_text(s.labels[i]));
      labels.push_back(octavo::borrow(texts_.back()));
    }
    labels_.push_back(std::move(labels));
    s.labels = labels_.back().data();
  }
  s.size = sizeof(s);
  slots_.push_back(s);
  return OCTAVO_OK;
}

octavo_status octavo_run::take_use(const octavo_slot_use &u) {
  if (u.slot >= slots_.size()) {
    seal_error_ = octavo::concat("a use names slot ", u.slot, ", expected one emitted before");
    return OCTAVO_INTERNAL;
  }
  if (!has_owner(u.owner_kind, u.owner)) {
    seal_error_ = octavo::concat("a use of slot ", u.slot, " names owner ", u.owner, " of kind ",
                                 u.owner_kind,
                                 ", expected the session, a parameter or a linear that was added");
    return OCTAVO_INTERNAL;
  }
  if (u.reserved != 0) {
    seal_error_ = octavo::concat("a use of slot ", u.slot, ": ", not_known("reserved", u.reserved));
    return OCTAVO_INTERNAL;
  }
  const octavo_slot &s = slots_[u.slot];
  const bool pooled_column = s.labels != nullptr && u.owner_kind != OCTAVO_OWNER_SESSION;
  const uint64_t end = static_cast<uint64_t>(u.first) + u.count;
  if (pooled_column && (u.count == 0 || end > static_cast<uint64_t>(s.cols))) {
    seal_error_ = octavo::concat("a use of slot ", u.slot, " names columns ", u.first, " to ", end,
                                 ", expected at most ", s.cols);
    return OCTAVO_INTERNAL;
  }
  if (!pooled_column && u.first != 0) {
    seal_error_ = octavo::concat("a use of slot ", u.slot, " starts at column ", u.first,
                                 ", expected 0 where no pool is distributed");
    return OCTAVO_INTERNAL;
  }
  new_uses_.push_back(u);
  return OCTAVO_OK;
}

bool octavo_run::has_gradient_slot(uint32_t linear) const {
  const std::deque<octavo_slot_use> *list = uses(OCTAVO_OWNER_LINEAR, linear);
  return list != nullptr && std::any_of(list->begin(), list->end(), [&](const octavo_slot_use &u) {
           const octavo_slot &s = slots_[u.slot];
           return s.role == OCTAVO_ROLE_GRADIENT && (s.flags & OCTAVO_SLOT_NATIVE) == 0 &&
                  s.access[OCTAVO_VERB_BACKWARD] > OCTAVO_ACCESS_READ;
         });
}

bool octavo_run::stores(uint32_t linear, uint32_t role) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const octavo_slot &s) {
    return s.owner_kind == OCTAVO_OWNER_PARAMETER && s.owner == linears_[linear].weight &&
           s.role == role && (s.flags & OCTAVO_SLOT_NATIVE) == 0;
  });
}

// That scales of codes are what can be one: a slot 0 that nobody chose is none.
void octavo_run::check_scales(size_t first) {
  for (size_t i = first; i < slots_.size(); ++i) {
    const octavo_slot &s = slots_[i];
    if (s.scale_slot == OCTAVO_NONE ||
        (s.scale_slot < slots_.size() && slots_[s.scale_slot].role == OCTAVO_ROLE_SCALE_INV))
      continue;
    seal_error_ = octavo::concat("slot ", s.id, " \"", octavo::take_text(s.name),
                                 "\": expected OCTAVO_NONE or a slot of role SCALE_INV as "
                                 "scale_slot, found ",
                                 s.scale_slot);
    return;
  }
}

// The keys of the slots that a seal emitted.
void octavo_run::name_slots() {
  while (slot_keys_.size() < slots_.size()) {
    const octavo_slot &s = slots_[slot_keys_.size()];
    const std::string_view name = octavo::view(s.name);
    std::string key = s.owner_kind == OCTAVO_OWNER_SESSION ? "session"
                      : s.owner_kind == OCTAVO_OWNER_PARAMETER
                          ? "parameter/" + parameter_name(s.owner)
                          : "linear/" + linear_name(s.owner);
    key.append("/").append(name);
    int &count = keys_[key];
    if (count++ > 0) {
      const std::string plain = key;
      while (!keys_.emplace(key = octavo::concat(plain, "@", count), 1).second) ++count;
    }
    slot_keys_.push_back(std::move(key));
  }
}

void octavo_run::seal() {
  if (session_ == nullptr) return;
  if (broken_)
    octavo::fail_run(OCTAVO_WRONG_STATE, "backend ", plugin()->id,
                     ": an earlier call broke the session; close the run and correct the plugin");
  have_alone("octavo_seal");
  const size_t slots_before = slots_.size();
  new_uses_.clear();
  seal_error_.clear();
  auto sink = octavo::make<octavo_slot_sink>(OCTAVO_KIND_SLOT_SINK);
  sink.ctx = this;
  sink.slot = [](void *ctx, const octavo_slot *s) {
    auto *run = static_cast<octavo_run *>(ctx);
    return run->seal_error_.empty() ? run->take_slot(*s) : OCTAVO_INTERNAL;
  };
  sink.use = [](void *ctx, const octavo_slot_use *u) {
    auto *run = static_cast<octavo_run *>(ctx);
    return run->seal_error_.empty() ? run->take_use(*u) : OCTAVO_INTERNAL;
  };
  octavo_status status = plugin()->backend.seal(session_, &sink);
  if (status == OCTAVO_OK && seal_error_.empty()) check_scales(slots_before);
  // A backend that goes on after the sink refused has emitted something that cannot be used.
  broken_ = status == OCTAVO_OK && !seal_error_.empty();
  if (broken_) status = OCTAVO_INTERNAL;
  if (status != OCTAVO_OK) {
    slots_.resize(slots_before);
    octavo::fail_run(
        status, "backend ", plugin()->id, ": seal failed",
        seal_error_.empty() ? octavo::concat(" with status ", status) : ": " + seal_error_);
  }
  name_slots();
  seal_ends_.push_back(slots_.size());
  sealed_parameters_ = parameter_count_;
  for (const octavo_slot_use &u : new_uses_) uses_[{u.owner_kind, u.owner}].push_back(u);
  while (plans_.size() < linear_count_) {
    auto plan = octavo::make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
    const auto linear = static_cast<uint32_t>(plans_.size());
    const octavo_status planned = plugin()->backend.linear_plan(session_, linear, &plan);
    if (planned != OCTAVO_OK)
      octavo::fail_run(planned, "backend ", plugin()->id, ": linear_plan of linear ", linear,
                       " failed with status ", planned);
    if (const std::string fault = fault_of(plan); !fault.empty())
      octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, ": linear_plan of linear ",
                       linear, ": ", fault);
    if (plan.gradient == OCTAVO_GRADIENT_SLOT && !has_gradient_slot(linear))
      octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, ": linear_plan of linear ",
                       linear,
                       ": expected a slot of role GRADIENT that backward writes among its "
                       "uses, since its gradient is SLOT, found none");
    if (plan.gradient != OCTAVO_GRADIENT_NONE && stores(linear, OCTAVO_ROLE_WEIGHT) &&
        !stores(linear, OCTAVO_ROLE_GRADIENT))
      octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, ": linear_plan of linear ",
                       linear,
                       ": expected its gradient in a slot of role GRADIENT that is not NATIVE, "
                       "since its weight is in one, found the host's own");
    if (plugin()->fused && (plan.flags & OCTAVO_LINEAR_NEEDS_X) == 0)
      if (const std::string fault = fault_of(*plugin()->fused, session_, linear); !fault.empty())
        octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id,
                         ": " OCTAVO_FUSED_ID " of linear ", linear, ": ", fault);
    plans_.push_back(plan);
  }
  if (seal_ends_.size() > 1) return;  // said once; reports follow later seals
  for (const std::string &warning : unmet()) octavo::warn(host(), "octavo.run", warning);
}
