// Run: one chosen backend, its session, and what its seals emitted.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "sdk/src/negotiate/negotiate.h"
#include "sdk/src/run/run_trace.h"

namespace octavo {

struct LayerPlacement {
  std::string name;
  int64_t rows = 0;  // N
  int64_t cols = 0;  // K
  Verdict verdict;
  const LayerRule *rule = nullptr;  // which decided; null: none did
};

template <typename... Part>
[[noreturn]] void fail_run(octavo_status status, const Part &...text) {
  throw Failure(status, "octavo.run", text...);
}

}  // namespace octavo

// The handle of octavo.h. Addresses of slots, uses and plans stay valid until it is closed.
struct octavo_run {
 public:
  octavo_run(octavo::Negotiation negotiation, std::unique_ptr<octavo_host> host);
  ~octavo_run();
  octavo_run(const octavo_run &) = delete;
  octavo_run &operator=(const octavo_run &) = delete;

  octavo_status add_parameter(const octavo_parameter_desc &d, octavo_verdict *v, uint32_t *id);
  octavo_status add_linear(const octavo_linear_desc &d, octavo_verdict *v, uint32_t *id);
  void seal();
  // What the configuration asks for and the layers so far do not do.
  std::vector<std::string> unmet() const;

  const octavo_host *host() const { return host_.get(); }
  bool is_usable() const { return true; }
  const octavo::Negotiation &negotiation() const { return negotiation_; }
  const octavo::LoadedPlugin *plugin() const { return negotiation_.choice()->plugin; }
  // The tables that hosts call: the plugin's, or those that write a trace.
  const octavo::LoadedPlugin &tables() const { return trace_ ? trace_->tables() : *plugin(); }
  octavo_session *session() const { return session_; }
  const octavo_session_desc *session_desc() const { return session_ ? &session_desc_ : nullptr; }
  std::string precision() const;
  const octavo_plugin_info *plugin_info() const {
    return plugin() == nullptr ? nullptr : &plugin_info_;
  }
  const octavo::LentSettings &settings() const { return settings_; }
  // Of the session, or those of a linear that differ; none where there is no such linear.
  const octavo::LentSettings &options(uint32_t linear) const;

  const std::deque<octavo_slot> &slots() const { return slots_; }
  // Of octavo_run_slot_key, by slot.
  const std::deque<std::string> &slot_keys() const { return slot_keys_; }
  // The codes of a slot in row-major order.
  void codes(uint32_t slot, const void *memory, void *out) const;
  const std::deque<octavo_slot_use> *uses(uint32_t owner_kind, uint32_t owner) const;
  const octavo_linear_plan *plan(uint32_t linear) const;
  uint32_t parameter_count() const { return parameter_count_; }
  uint32_t linear_count() const { return linear_count_; }
  const std::string &linear_name(uint32_t linear) const { return linears_[linear].name; }
  // Whether a seal covers all that was added.
  bool is_sealed() const {
    return session_ == nullptr || (!seal_ends_.empty() && sealed_parameters_ == parameter_count_ &&
                                   plans_.size() == linear_count_);
  }
  const std::vector<octavo::LayerPlacement> &layers() const { return layers_; }
  const std::string &parameter_name(uint32_t parameter) const {
    return parameters_[parameter].name;
  }
  // The options of the chosen backend that a rule gives to its layers; null: none.
  const std::vector<octavo::EffectiveOption> &options_of(const octavo::LayerRule *rule) const;
  // How many slots there were after each seal.
  const std::vector<size_t> &seal_ends() const { return seal_ends_; }

 private:
  // What the configuration decides about one name, whatever the backend.
  struct Decision {
    std::optional<octavo::Verdict> kept{};    // why it is not converted
    const octavo::LayerRule *rule = nullptr;  // null: none is for it, or another key decided
  };
  struct Parameter {
    std::string name;
    int64_t rows;
    int64_t cols;
    Decision decision;  // one that keeps it keeps its linears, too
  };
  // One that the backend took.
  struct Linear {
    std::string name;
    octavo::LentSettings options;  // those that differ from the session's
    uint32_t weight;               // parameter
  };

  // Waits for what hosts queued on the device: a call that has a session to itself, as the contract
  // has it, comes after that.
  octavo_status wait_for_device() const;
  void have_alone(const char *what) const;  // before such a call; throws
  void check_decision(const octavo_verdict &v, const char *object, const std::string &name);
  octavo_status place(const octavo_linear_desc &d, octavo::Verdict verdict,
                      const octavo::LayerRule *rule, octavo_verdict *v);
  Decision decide(const std::string &name, const std::string &weight, int64_t n, int64_t k) const;
  octavo::LentSettings differing(const octavo_linear_desc &d, const octavo::LayerRule *rule) const;
  void check_options(const octavo_linear_desc &d) const;
  octavo_status take_slot(const octavo_slot &s);
  void name_slots();
  octavo_status take_use(const octavo_slot_use &u);
  // Whether a slot or a use can belong to it.
  bool has_owner(uint32_t kind, uint32_t owner) const;
  bool has_gradient_slot(uint32_t linear) const;
  // Whether the tensor of its weight with this role is in slots.
  bool stores(uint32_t linear, uint32_t role) const;
  void check_scales(size_t first);

  octavo::Negotiation negotiation_;
  std::unique_ptr<octavo_host> host_;
  octavo::LentSettings settings_;
  octavo::LentSettings session_options_;
  octavo_plugin_info plugin_info_{};
  std::vector<octavo_option_value> options_;
  octavo_session_desc session_desc_{};
  std::unique_ptr<octavo::RunTrace> trace_;
  octavo_session *session_ = nullptr;
  std::deque<octavo_slot> slots_;
  std::deque<std::string> slot_keys_;
  std::map<std::string, int> keys_;  // and how many slots asked for each
  std::vector<size_t> seal_ends_;
  uint32_t sealed_parameters_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<octavo_slot_use>> uses_;
  std::vector<octavo_slot_use> new_uses_;  // of the seal in progress
  std::string seal_error_;
  bool broken_ = false;  // the backend and this object disagree about what was added or sealed
  std::deque<octavo_linear_plan> plans_;
  std::deque<std::string> texts_;               // names and labels of slots
  std::deque<std::vector<octavo_str>> labels_;  // of pools
  std::deque<octavo::Verdict> verdicts_;        // whose texts were lent
  std::vector<Parameter> parameters_;
  std::deque<Linear> linears_;  // by id
  std::unordered_set<std::string> parameter_names_, linear_names_;
  std::vector<octavo::LayerPlacement> layers_;
  uint32_t parameter_count_ = 0;
  uint32_t linear_count_ = 0;
};
