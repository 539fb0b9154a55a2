// Opens the chosen session, places layers, and keeps what the backend emits at seal.
#include "run.h"

#include <algorithm>
#include <cstring>

#include "dtype.h"
#include "failure.h"
#include "min_gain.h"
#include "text.h"

namespace {

constexpr const char *kDomain = "octavo.run";

[[noreturn]] void fail(octavo_status status, const std::string &text) {
  throw octavo::Failure(status, kDomain, text);
}

}  // namespace

octavo_run::octavo_run(octavo::Negotiation negotiation, std::unique_ptr<octavo_host> host)
    : negotiation_(std::move(negotiation)), host_(std::move(host)) {
  const octavo::Candidate *choice = negotiation_.choice();
  if (choice->is_precision) return;
  options_ = octavo::lend_options(choice->options);
  session_desc_ = octavo::describe_session(negotiation_, host_.get(), options_);
  const octavo_status status = plugin()->backend.open_session(&session_desc_, &session_);
  if (status != OCTAVO_OK || session_ == nullptr)
    fail(status != OCTAVO_OK ? status : OCTAVO_INTERNAL,
         "backend " + choice->id + " accepted the session and then failed to open it: status " +
             std::to_string(status));
}

octavo_run::~octavo_run() {
  if (session_ != nullptr) plugin()->backend.close_session(session_);
}

std::string octavo_run::precision() const {
  const octavo::Candidate *choice = negotiation_.choice();
  return choice->is_precision ? choice->id : "fp8";
}

// Why a linear of this name and size stays with the host, whatever the backend: layers.skip, then
// layers.min_gain.
std::optional<octavo::Verdict> octavo_run::keep(const std::string &name, int64_t n,
                                                int64_t k) const {
  const octavo::Config &config = negotiation_.config;
  for (const std::string &pattern : config.skip)
    if (octavo::matches(pattern, name))
      return octavo::Verdict{OCTAVO_LEVEL_LAYER,
                             OCTAVO_DECLINE,
                             OCTAVO_REASON_POLICY,
                             "runs in the host: layers.skip names it",
                             "pattern \"" + pattern + "\", " + config.origin("layers.skip"),
                             "remove the pattern to run the layer in FP8"};
  return octavo::too_small(config, negotiation_.device->caps(), n, k);
}

octavo_status octavo_run::add_parameter(const octavo_parameter_desc &d, octavo_verdict *v,
                                        uint32_t *id) {
  const std::string name(octavo::view(d.name));
  *id = OCTAVO_NONE;
  if (session_ == nullptr) {
    *id = parameter_count_++;
    parameters_.push_back({name, d.rows, d.cols, {}});
    verdicts_.push_back({OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                         "kept by the host: no backend runs", "", ""});
    octavo::lend_verdict(verdicts_.back(), v);
    return OCTAVO_OK;
  }
  octavo_parameter_desc desc = d;
  std::optional<octavo::Verdict> kept;
  if ((d.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0) kept = keep(name, d.rows, d.cols);
  // Such a weight is still a parameter of the model (optimizer states), but no linear's.
  if (kept) desc.flags &= ~static_cast<uint32_t>(OCTAVO_PARAMETER_LINEAR_WEIGHT);
  octavo_verdict own{};
  own.size = sizeof(own);
  own.kind = OCTAVO_KIND_VERDICT;
  const octavo_status status = plugin()->backend.add_parameter(session_, &desc, &own, id);
  verdicts_.push_back(octavo::copy_verdict(own));
  octavo::lend_verdict(verdicts_.back(), v);
  if (status != OCTAVO_OK || own.decision == OCTAVO_DECLINE) {
    *id = OCTAVO_NONE;
    return status;
  }
  broken_ = *id != parameter_count_;
  if (broken_)
    fail(OCTAVO_INTERNAL, "backend " + plugin()->id + " gave parameter \"" + name + "\" id " +
                              std::to_string(*id) + ", expected " +
                              std::to_string(parameter_count_));
  ++parameter_count_;
  parameters_.push_back({name, d.rows, d.cols, std::move(kept)});
  return OCTAVO_OK;
}

octavo_status octavo_run::place(const octavo_linear_desc &d, octavo::Verdict verdict,
                                octavo_verdict *v) {
  const Parameter &p = parameters_[d.weight];
  layers_.push_back({std::string(octavo::view(d.name)), p.rows, p.cols, verdict});
  verdicts_.push_back(std::move(verdict));
  octavo::lend_verdict(verdicts_.back(), v);
  return OCTAVO_OK;
}

octavo_status octavo_run::add_linear(const octavo_linear_desc &d, octavo_verdict *v, uint32_t *id) {
  const std::string name(octavo::view(d.name));
  if (d.weight >= parameters_.size())
    fail(OCTAVO_INVALID, "linear \"" + name + "\": expected a parameter id below " +
                             std::to_string(parameters_.size()) + ", found " +
                             std::to_string(d.weight));
  *id = OCTAVO_NONE;
  if (session_ == nullptr)
    return place(d,
                 {OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_POLICY,
                  "runs in the host: precision is " + precision(),
                  "mixed_precision = \"" + negotiation_.config.mixed_precision + "\"", ""},
                 v);
  const Parameter &weight = parameters_[d.weight];
  std::optional<octavo::Verdict> kept = keep(name, weight.rows, weight.cols);
  if (!kept) kept = weight.kept;
  if (kept) return place(d, std::move(*kept), v);
  octavo_verdict own{};
  own.size = sizeof(own);
  own.kind = OCTAVO_KIND_VERDICT;
  const octavo_status status = plugin()->backend.add_linear(session_, &d, &own, id);
  octavo::Verdict verdict = octavo::copy_verdict(own);
  if (status != OCTAVO_OK) {
    verdicts_.push_back(std::move(verdict));
    octavo::lend_verdict(verdicts_.back(), v);
    return status;
  }
  if (verdict.decision == OCTAVO_DECLINE) {
    *id = OCTAVO_NONE;
  } else if (*id != linear_count_++) {
    broken_ = true;
    fail(OCTAVO_INTERNAL, "backend " + plugin()->id + " gave linear \"" + name + "\" id " +
                              std::to_string(*id) + ", expected " +
                              std::to_string(linear_count_ - 1));
  }
  return place(d, std::move(verdict), v);
}

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

const std::deque<octavo_slot_use> *octavo_run::uses(uint32_t owner_kind, uint32_t owner) const {
  const auto found = uses_.find({owner_kind, owner});
  return found == uses_.end() ? nullptr : &found->second;
}

const octavo_linear_plan *octavo_run::plan(uint32_t linear) const {
  return linear < plans_.size() ? &plans_[linear] : nullptr;
}
