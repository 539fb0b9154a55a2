// Takes what a backend emits at seal: slots, uses and the plans of linears, each checked.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "dtype.h"
#include "failure.h"
#include "run.h"
#include "text.h"

namespace {

constexpr const char *kDomain = "octavo.run";

[[noreturn]] void fail(octavo_status status, const std::string &text) {
  throw octavo::Failure(status, kDomain, text);
}

// Whether the value of a 32-bit slot's elements is one of its dtype; other dtypes have 0 only.
bool has_initial(const octavo_slot &s) {
  if (s.dtype == OCTAVO_I32) return s.initial >= INT32_MIN && s.initial <= INT32_MAX;
  return std::abs(s.initial) <= static_cast<double>(FLT_MAX);
}

}  // namespace

octavo_status octavo_run::take_slot(const octavo_slot &given) {
  octavo_slot s{};
  std::memcpy(&s, &given, std::min<size_t>(given.size, sizeof(s)));
  const std::string name(octavo::view(s.name));
  auto refuse = [&](const std::string &text) {
    seal_error_ = "slot " + std::to_string(s.id) + " \"" + name + "\": " + text;
    return OCTAVO_INTERNAL;
  };
  if (s.id != slots_.size()) return refuse("expected the id " + std::to_string(slots_.size()));
  if (s.rows < 1 || s.cols < 1)
    return refuse("expected at least one row and column, found " + std::to_string(s.rows) + " x " +
                  std::to_string(s.cols));
  if (s.rows > (INT64_MAX / 4) / s.cols)
    return refuse("expected fewer than 2^61 elements, found " + std::to_string(s.rows) + " x " +
                  std::to_string(s.cols));
  if (s.role < 1 || s.role > OCTAVO_ROLE_NOISE) s.role = OCTAVO_ROLE_OTHER;
  if (octavo::element_bytes(s.dtype) == 0)
    return refuse("unknown dtype " + std::to_string(s.dtype));
  for (int verb = 0; verb <= OCTAVO_VERB_REDUCE; ++verb) {
    if (s.access[verb] > OCTAVO_ACCESS_ACCUMULATE)
      return refuse("access " + std::to_string(s.access[verb]) +
                    " is not known to this host, which could not call correctly");
    if (s.access[verb] == OCTAVO_ACCESS_ACCUMULATE && s.dtype != OCTAVO_F32)
      return refuse("an accumulated slot must be f32");
  }
  if (!has_initial(s))
    return refuse("expected an initial value that its dtype can hold, found " +
                  octavo::show(octavo::TomlValue(s.initial)));
  if (OCTAVO_DTYPE_BITS(s.dtype) != 32 && s.initial != 0)
    return refuse("expected initial 0 for a dtype of fewer than 32 bits");
  if (s.shard == OCTAVO_SHARD_WHOLE &&
      (s.owner_kind != OCTAVO_OWNER_PARAMETER || s.owner >= parameter_count_))
    return refuse("expected a parameter as owner of a WHOLE slot, found " +
                  std::to_string(s.owner) + " of kind " + std::to_string(s.owner_kind));
  if (s.shard == OCTAVO_SHARD_WHOLE && (s.flags & OCTAVO_SLOT_REDUCE) != 0)
    return refuse("a WHOLE slot lives on one rank, so it cannot be a REDUCE slot, too");
  texts_.push_back(name);
  s.name = octavo::str(texts_.back());
  if (s.labels != nullptr) {
    std::vector<octavo_str> labels;
    for (int64_t i = 0; i < s.cols; ++i) {
      texts_.emplace_back(octavo::view(s.labels[i]));
      labels.push_back(octavo::str(texts_.back()));
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
    seal_error_ = "a use names slot " + std::to_string(u.slot) + ", expected one emitted before";
    return OCTAVO_INTERNAL;
  }
  const uint32_t owners[] = {0, 1, parameter_count_, linear_count_};
  if (u.owner_kind < OCTAVO_OWNER_SESSION || u.owner_kind > OCTAVO_OWNER_LINEAR ||
      u.owner >= owners[u.owner_kind]) {
    seal_error_ = "a use of slot " + std::to_string(u.slot) + " names owner " +
                  std::to_string(u.owner) + " of kind " + std::to_string(u.owner_kind) +
                  ", expected the session, a parameter or a linear that was added";
    return OCTAVO_INTERNAL;
  }
  const octavo_slot &s = slots_[u.slot];
  const bool pooled_column = s.labels != nullptr && u.owner_kind != OCTAVO_OWNER_SESSION;
  const uint64_t end = static_cast<uint64_t>(u.first) + u.count;
  if (pooled_column && (u.count == 0 || end > static_cast<uint64_t>(s.cols))) {
    seal_error_ = "a use of slot " + std::to_string(u.slot) + " names columns " +
                  std::to_string(u.first) + " to " + std::to_string(end) + ", expected at most " +
                  std::to_string(s.cols);
    return OCTAVO_INTERNAL;
  }
  if (!pooled_column && u.first != 0) {
    seal_error_ = "a use of slot " + std::to_string(u.slot) + " starts at column " +
                  std::to_string(u.first) + ", expected 0 where no pool is shared out";
    return OCTAVO_INTERNAL;
  }
  new_uses_.push_back(u);
  return OCTAVO_OK;
}

void octavo_run::seal() {
  if (session_ == nullptr) return;
  if (broken_)
    fail(OCTAVO_WRONG_STATE, "backend " + plugin()->id +
                                 ": an earlier call broke the session; close the run and correct "
                                 "the plugin");
  const size_t slots_before = slots_.size();
  new_uses_.clear();
  seal_error_.clear();
  octavo_slot_sink sink{};
  sink.size = sizeof(sink);
  sink.kind = OCTAVO_KIND_SLOT_SINK;
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
  // A backend that goes on after the sink refused has emitted something that cannot be used.
  broken_ = status == OCTAVO_OK && !seal_error_.empty();
  if (broken_) status = OCTAVO_INTERNAL;
  if (status != OCTAVO_OK) {
    slots_.resize(slots_before);
    fail(status,
         "backend " + plugin()->id + ": seal failed" +
             (seal_error_.empty() ? " with status " + std::to_string(status) : ": " + seal_error_));
  }
  seal_ends_.push_back(slots_.size());
  for (const octavo_slot_use &u : new_uses_) uses_[{u.owner_kind, u.owner}].push_back(u);
  while (plans_.size() < linear_count_) {
    octavo_linear_plan plan{};
    plan.size = sizeof(plan);
    plan.kind = OCTAVO_KIND_LINEAR_PLAN;
    const octavo_status planned =
        plugin()->backend.linear_plan(session_, static_cast<uint32_t>(plans_.size()), &plan);
    if (planned != OCTAVO_OK)
      fail(planned, "backend " + plugin()->id + ": linear_plan of linear " +
                        std::to_string(plans_.size()) + " failed with status " +
                        std::to_string(planned));
    if (plan.saved.row_multiple < 1 || plan.forward_workspace.row_multiple < 1 ||
        plan.backward_workspace.row_multiple < 1)
      fail(OCTAVO_INTERNAL, "backend " + plugin()->id + ": linear_plan of linear " +
                                std::to_string(plans_.size()) +
                                ": expected a row_multiple of at least 1 in every extent, found 0");
    plans_.push_back(plan);
  }
}
