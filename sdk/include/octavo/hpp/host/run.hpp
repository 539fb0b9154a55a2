// octavo/hpp/host/run.hpp: a run, from the configuration to a sealed model.
//
// A run must outlive its stores, its calls and all references obtained from it.
#ifndef OCTAVO_HPP_HOST_RUN_HPP
#define OCTAVO_HPP_HOST_RUN_HPP

#include <memory>
#include <string>
#include <utility>

#include "octavo/draft/gradients.h"
#include "octavo/draft/grouped.h"
#include "octavo/hpp/host/range.hpp"
#include "octavo/hpp/host/settings.hpp"
#include "octavo/hpp/roles.hpp"

namespace octavo {
inline namespace hpp {

// The verdict of add_parameter or add_linear. It owns its texts.
struct Verdict {
  uint32_t level = 0;
  uint32_t decision = OCTAVO_DECLINE;
  uint32_t reason = OCTAVO_REASON_NONE;
  std::string text, evidence, remedy;
  bool accepted() const { return decision != OCTAVO_DECLINE; }
};

// A parameter or linear of the model. If declined, the host keeps it in its own precision and `id`
// is OCTAVO_NONE.
struct Added {
  uint32_t id = OCTAVO_NONE;
  Verdict verdict;
  explicit operator bool() const { return verdict.accepted(); }
};

struct ParameterSpec {
  std::string name;
  int64_t rows = 1;
  int64_t cols = 1;
  uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  uint32_t dtype = OCTAVO_F32;
  uint32_t gradient_dtype = OCTAVO_F32;
};

class Run {
 public:
  // Throws Error if the configuration is wrong or nothing that it allows can run on this machine.
  // Diagnostics go to `host`, which must outlive the run; with null, the run creates its own Host.
  explicit Run(const Settings &settings = Settings(), Host *host = nullptr)
      : own_host_(host == nullptr ? std::make_unique<Host>() : nullptr),
        host_(host == nullptr ? own_host_.get() : host) {
    octavo_run *r = nullptr;
    host_->require(
        settings.with_desc(host_->get(),
                           [&](const octavo_open_desc &d) { return octavo_open(&d, &r); }),
        "octavo_open");
    run_.reset(r);
  }
  Run(Run &&) = default;
  Run &operator=(Run &&other) noexcept {
    run_ = std::move(other.run_);  // close the old run before its host
    own_host_ = std::move(other.own_host_);
    host_ = other.host_;
    return *this;
  }

  octavo_run *get() const { return run_.get(); }
  Host &host() const { return *host_; }

  Added add_parameter(const ParameterSpec &spec) {
    auto d = make<octavo_parameter_desc>(OCTAVO_KIND_PARAMETER_DESC);
    d.name = borrow(spec.name);
    d.rows = spec.rows, d.cols = spec.cols;
    d.dtype = spec.dtype, d.gradient_dtype = spec.gradient_dtype;
    d.flags = spec.flags;
    return added("octavo_add_parameter", [&](octavo_verdict *v, uint32_t *id) {
      return octavo_add_parameter(get(), &d, v, id);
    });
  }
  Added add_linear(const std::string &name, uint32_t weight) {
    auto d = make<octavo_linear_desc>(OCTAVO_KIND_LINEAR_DESC);
    d.name = borrow(name);
    d.weight = weight;
    return added("octavo_add_linear", [&](octavo_verdict *v, uint32_t *id) {
      return octavo_add_linear(get(), &d, v, id);
    });
  }
  void seal() { host_->require(octavo_seal(get()), "octavo_seal"); }

  // What the seals emitted; use as: for (const octavo_slot &s : run.slots()).
  auto slots() const {
    return range<octavo_slot>(octavo_run_slot_count(get()),
                              [r = get()](uint32_t i) { return octavo_run_slot(r, i); });
  }
  // The key of a slot in checkpoints.
  std::string slot_key(uint32_t id) const { return text(octavo_run_slot_key(get(), id)); }
  auto uses(uint32_t owner_kind, uint32_t owner) const {
    return range<octavo_slot_use>(octavo_run_use_count(get(), owner_kind, owner),
                                  [r = get(), owner_kind, owner](uint32_t i) {
                                    return octavo_run_use(r, owner_kind, owner, i);
                                  });
  }
  const octavo_linear_plan &plan(uint32_t linear) const {
    const octavo_linear_plan *p = octavo_run_plan(get(), linear);
    if (p == nullptr)
      throw Error("octavo_run_plan: expected a sealed linear, found " + std::to_string(linear),
                  OCTAVO_INVALID, {});
    return *p;
  }

  // The slot of this role in an object's list, for example a parameter's weight; null: none.
  const octavo_slot *slot(uint32_t owner_kind, uint32_t owner, uint32_t role) const {
    for (const octavo_slot_use &use : uses(owner_kind, owner)) {
      const octavo_slot *s = octavo_run_slot(get(), use.slot);
      if (s->role == role) return s;
    }
    return nullptr;
  }
  // Whether the backend keeps this tensor of the parameter in a slot of its own format, so that the
  // host's copy is not read.
  bool owns(uint32_t parameter, uint32_t role = OCTAVO_ROLE_WEIGHT) const {
    const octavo_slot *s = slot(OCTAVO_OWNER_PARAMETER, parameter, role);
    return s != nullptr && (s->flags & OCTAVO_SLOT_NATIVE) == 0;
  }

  // The tables, for verbs without a call class; null if the backend does not offer the interface.
  const octavo_backend *backend() const { return octavo_run_backend(get()); }
  // The table with this id; null where the backend has none.
  template <typename Table>
  const Table *interface(octavo_str id) const {
    return static_cast<const Table *>(octavo_run_interface(get(), id));
  }
  const octavo_optimizer *optimizer() const {
    return interface<octavo_optimizer>(OCTAVO_STR(OCTAVO_OPTIMIZER_ID));
  }
  const octavo_gradients *gradients() const {
    return interface<octavo_gradients>(OCTAVO_STR(OCTAVO_GRADIENTS_ID));
  }
  const octavo_fused *fused() const { return interface<octavo_fused>(OCTAVO_STR(OCTAVO_FUSED_ID)); }
  const octavo_grouped *grouped() const {
    return interface<octavo_grouped>(OCTAVO_STR(OCTAVO_GROUPED_ID));
  }
  const octavo_shard *shard() const { return interface<octavo_shard>(OCTAVO_STR(OCTAVO_SHARD_ID)); }
  octavo_session *session() const { return octavo_run_session(get()); }

  std::string precision() const { return text(octavo_run_precision(get())); }
  std::string backend_id() const { return text(octavo_run_backend_id(get())); }
  // Null if there is no backend.
  const octavo_plugin_info *plugin() const { return octavo_run_plugin(get()); }
  // A key of the configuration; null: there is none of this name.
  const octavo_setting *setting(std::string_view key) const {
    return octavo_run_setting(get(), borrow(key));
  }
  // The options of the session, or those of a linear that differ.
  auto options(uint32_t linear = OCTAVO_NONE) const {
    return range<octavo_setting>(
        octavo_run_option_count(get(), linear),
        [r = get(), linear](uint32_t i) { return octavo_run_option(r, linear, i); });
  }
  // One option of the session as text; empty: the backend has no such option.
  std::string option(std::string_view name) const {
    for (const octavo_setting &o : options())
      if (view(o.name) == name) return text(o.value);
    return {};
  }
  // What was requested, what was tried, what runs, where each layer went. Format: "text", "tree" or
  // "json".
  std::string report(std::string_view format = "text") const {
    Lines lines;
    host_->require(octavo_report(get(), borrow(format), Lines::line, &lines), "octavo_report");
    return lines.take();
  }

 private:
  struct Close {
    void operator()(octavo_run *r) const { octavo_close(r); }
  };
  template <typename Add>
  Added added(const char *call, Add add) {
    auto v = make<octavo_verdict>(OCTAVO_KIND_VERDICT);
    Added out;
    host_->require(add(&v, &out.id), call);
    out.verdict = {v.level, v.decision, v.reason, text(v.text), text(v.evidence), text(v.remedy)};
    if (!out.verdict.accepted()) out.id = OCTAVO_NONE;
    return out;
  }

  std::unique_ptr<Host> own_host_;
  Host *host_;
  std::unique_ptr<octavo_run, Close> run_;
};

}  // namespace hpp
}  // namespace octavo

#endif
