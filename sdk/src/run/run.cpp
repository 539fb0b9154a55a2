// Opens the chosen session and places parameters and layers.
#include "sdk/src/run/run.h"

#include <algorithm>

#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/negotiate/min_gain.h"

namespace {

// The name of a parameter or linear that a host describes: another one of the run would have its
// keys in checkpoints.
std::string name_of(octavo_str given, const char *object,
                    const std::unordered_set<std::string> &others) {
  if (given.data == nullptr && given.size != 0)
    octavo::fail_run(OCTAVO_INVALID, object, ": expected the address of a name of ", given.size,
                     " bytes, found null");
  if (given.size > octavo::kMaxPluginText)
    octavo::fail_run(OCTAVO_INVALID, object, ": expected a name of at most ",
                     octavo::kMaxPluginText, " bytes, found ", given.size, "; give a shorter one");
  std::string name(octavo::view(given));
  if (others.count(name) != 0)
    octavo::fail_run(
        OCTAVO_INVALID, object, ": expected a name that no other one of this run has, found \"",
        name, "\" again; name each by its place in the model, as in \"layers.0.attention.q\"");
  return name;
}

// The origin of an option that the host gives for one linear.
constexpr const char *kOfHost = "host";

// What to do about options of a rule that a backend does not follow: its own words, in the rule.
void point_at(const octavo::LayerRule &rule, const std::string &backend, octavo::Verdict &v) {
  octavo::Fix &fix = v.remedy.fix;
  const std::map<std::string, octavo::Setting> &given = octavo::options_for(rule, backend);
  const std::string prefix = "fp8." + backend + ".";
  if (v.reason != OCTAVO_REASON_OPTION && !fix.key.starts_with(prefix)) return;
  v.remedy.text = "in " + rule.key + ": " + v.remedy.text;
  const auto found =
      fix.key.starts_with(prefix) ? given.find(fix.key.substr(prefix.size())) : given.end();
  if (fix.key.empty()) return;
  fix.key = rule.key + "." + fix.key;
  fix.origin = found == given.end() ? "default" : found->second.origin;
  // An option that is to go may be all that the rule has.
  if (fix.value.empty() && given.size() == 1)
    fix = {.key = rule.key + ".place", .origin = fix.origin, .value = "\"fp8\""};
}

}  // namespace

octavo_run::octavo_run(octavo::Negotiation negotiation, std::unique_ptr<octavo_host> host)
    : negotiation_(std::move(negotiation)), host_(std::move(host)) {
  const octavo::Candidate *choice = negotiation_.choice();
  settings_ = octavo::settings_of(negotiation_);
  if (choice->is_precision) return;
  options_ = octavo::lend_options(choice->options);
  for (const octavo::EffectiveOption &o : choice->options) session_options_.put(o.name, o.setting);
  plugin_info_ = octavo::make<octavo_plugin_info>(OCTAVO_KIND_PLUGIN_INFO);
  plugin_info_.id = octavo::borrow(plugin()->id);
  plugin_info_.version = octavo::borrow(plugin()->version);
  plugin_info_.library = octavo::borrow(plugin()->library);
  plugin_info_.sha256 = octavo::borrow(plugin()->sha256);
  session_desc_ = octavo::describe_session(negotiation_, host_.get(), options_);
  trace_ = octavo::RunTrace::of(negotiation_.config, *plugin(), session_desc_, host_.get(),
                                negotiation_.trust.privileged);
  const octavo_status status =
      plugin()->backend.open_session(trace_ ? &trace_->desc() : &session_desc_, &session_);
  if (status != OCTAVO_OK || session_ == nullptr)
    octavo::fail_run(status != OCTAVO_OK ? status : OCTAVO_INTERNAL, "backend ", choice->id,
                     " accepted the session and then failed to open it: status ", status);
  if (trace_) trace_->attach(session_);
}

octavo_status octavo_run::wait_for_device() const {
  const octavo_memory *memory = negotiation_.device->memory();
  return memory == nullptr ? OCTAVO_OK : memory->synchronize(negotiation_.device->ctx());
}

void octavo_run::have_alone(const char *what) const {
  if (seal_ends_.empty()) return;  // no verb of the session is legal yet, so none is queued
  if (const octavo_status status = wait_for_device(); status != OCTAVO_OK)
    octavo::fail_run(status, what, ": the device failed in what was queued before: status ",
                     status);
}

octavo_run::~octavo_run() {
  if (session_ == nullptr) return;
  std::string thrown;
  octavo::call_plugin(&thrown, [&] {
    static_cast<void>(wait_for_device());  // a lost device closes, too
    plugin()->backend.close_session(session_);
    return OCTAVO_OK;
  });
  if (!thrown.empty())
    octavo::diagnose(host_.get(), OCTAVO_SEVERITY_WARNING, OCTAVO_INTERNAL, "octavo.run",
                     "backend " + plugin()->id + ": close_session failed" + thrown +
                         "; this is a defect of the plugin");
}

std::string octavo_run::precision() const {
  const octavo::Candidate *choice = negotiation_.choice();
  return choice->is_precision ? choice->id : "fp8";
}

// layers.skip, then the first rule for the name or its weight's, then layers.min_gain.
octavo_run::Decision octavo_run::decide(const std::string &name, const std::string &weight,
                                        int64_t n, int64_t k) const {
  const octavo::Config &config = negotiation_.config;
  std::vector<std::string> others = config[octavo::key::kSkip];
  for (const std::string &pattern : config[octavo::key::kSkip])
    if (octavo::matches(pattern, name)) {
      std::erase(others, pattern);
      return {octavo::Verdict{OCTAVO_LEVEL_LAYER,
                              OCTAVO_DECLINE,
                              OCTAVO_REASON_POLICY,
                              "runs in the host: layers.skip names it",
                              "pattern \"" + pattern + "\", " + config.origin(octavo::key::kSkip),
                              {"remove the pattern to run the layer in FP8",
                               config.change(octavo::key::kSkip, others)}}};
    }
  const octavo::LayerRule *rule = octavo::rule_for(config.layer_rules, name, weight);
  if (rule != nullptr && rule->is_of_host())
    return {octavo::Verdict{
                OCTAVO_LEVEL_LAYER,
                OCTAVO_DECLINE,
                OCTAVO_REASON_POLICY,
                "runs in the host: " + rule->key + " names it",
                "match = " + octavo::show(rule->match.value) + ", " + rule->match.origin,
                {"set place = \"fp8\" in " + rule->key + " to run its layers in FP8",
                 {.key = rule->key + ".place", .origin = rule->place->origin, .value = "\"fp8\""}}},
            rule};
  Decision decision = {octavo::too_small(config, negotiation_.device->caps(), n, k), rule};
  if (decision.kept) decision.rule = nullptr;
  return decision;
}

const std::vector<octavo::EffectiveOption> &octavo_run::options_of(
    const octavo::LayerRule *rule) const {
  static const std::vector<octavo::EffectiveOption> none;
  return rule == nullptr ? none : negotiation_.options_of(*rule);
}

// What the host gives for this linear stands above the rule.
octavo::LentSettings octavo_run::differing(const octavo_linear_desc &d,
                                           const octavo::LayerRule *rule) const {
  if (d.options == nullptr && d.option_count != 0)
    octavo::fail_run(OCTAVO_INVALID, "linear \"", octavo::view(d.name),
                     "\": expected the address of ", d.option_count, " options, found null");
  octavo::LentSettings own;
  for (const auto &session : session_options_.entries()) {
    octavo::Setting setting = session.setting;
    for (const octavo::EffectiveOption &o : options_of(rule))
      if (o.name == session.name) setting = o.setting;
    for (uint64_t i = d.option_count; i > 0; --i)
      if (octavo::view(d.options[i - 1].name) == session.name)
        setting = {octavo::from_abi(d.options[i - 1].value), kOfHost};
    octavo::widen(session.setting.value, setting.value);
    if (octavo::show(setting.value) != octavo::show(session.setting.value))
      own.put(session.name, std::move(setting));
  }
  return own;
}

// As strict as a rule of octavo.toml. A name that the backend does not list is its own to decline.
void octavo_run::check_options(const octavo_linear_desc &d) const {
  if (d.option_count == 0) return;
  std::map<std::string, octavo::Setting> given;
  for (uint64_t i = 0; i < d.option_count; ++i) {
    const std::string name(octavo::view(d.options[i].name));
    if (session_options_.find(name) != nullptr)
      given[name] = {octavo::from_abi(d.options[i].value), kOfHost};
  }
  const octavo::LoadedPlugin &backend = *plugin();
  octavo::effective_options(octavo::declared_options(backend.backend, backend.id), backend.id,
                            given, octavo::concat("linear \"", octavo::view(d.name), "\""));
}

const octavo::LentSettings &octavo_run::options(uint32_t linear) const {
  static const octavo::LentSettings none;
  if (linear == OCTAVO_NONE) return session_options_;
  return linear < linears_.size() ? linears_[linear].options : none;
}

std::vector<std::string> octavo_run::unmet() const {
  std::vector<std::string> all;
  if (session_ == nullptr || layers_.empty()) return all;
  const auto check = [&](const std::string &key, const std::string &pattern) {
    const auto is_met = [&](const auto &named) { return octavo::matches(pattern, named.name); };
    if (std::none_of(layers_.begin(), layers_.end(), is_met) &&
        std::none_of(parameters_.begin(), parameters_.end(), is_met))
      all.push_back(key + ": no layer or weight matches \"" + pattern + "\"");
  };
  if (negotiation_.config.origin(octavo::key::kSkip) != "default")
    for (const std::string &pattern : negotiation_.config[octavo::key::kSkip])
      check(octavo::key::kSkip.name, pattern);
  for (const octavo::LayerRule &rule : negotiation_.config.layer_rules) {
    for (const std::string &pattern : rule.patterns()) check(rule.key + ".match", pattern);
    const octavo::LayerPlacement *first = nullptr;
    bool is_followed = options_of(&rule).empty();
    for (const octavo::LayerPlacement &layer : layers_) {
      if (layer.rule != &rule) continue;
      first = first == nullptr ? &layer : first;
      is_followed = is_followed || layer.verdict.decision != OCTAVO_DECLINE;
    }
    if (first != nullptr && !is_followed)
      all.push_back(octavo::concat(rule.key, ": no layer runs in FP8 with its options; ",
                                   first->name, ": ", first->verdict.text));
  }
  if (linear_count_ == 0)
    all.push_back(octavo::concat("no layer runs in FP8: ", layers_.size(),
                                 " linear layers are not converted, ", layers_.front().name, ": ",
                                 layers_.front().verdict.text));
  return all;
}

octavo_status octavo_run::add_parameter(const octavo_parameter_desc &d, octavo_verdict *v,
                                        uint32_t *id) {
  const std::string name = name_of(d.name, "a parameter", parameter_names_);
  *id = OCTAVO_NONE;
  if (session_ == nullptr) {
    *id = parameter_count_++;
    parameters_.push_back({name, d.rows, d.cols, {}});
    parameter_names_.insert(name);
    verdicts_.push_back({OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                         "kept by the host: no backend runs", "", ""});
    octavo::lend_verdict(verdicts_.back(), v);
    return OCTAVO_OK;
  }
  have_alone("octavo_add_parameter");
  octavo_parameter_desc desc = d;
  Decision decision;
  if ((d.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0)
    decision = decide(name, name, d.rows, d.cols);
  // Such a weight is still a parameter of the model (optimizer states), but no linear's.
  if (decision.kept) desc.flags &= ~static_cast<uint32_t>(OCTAVO_PARAMETER_LINEAR_WEIGHT);
  auto own = octavo::make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  const octavo_status status = plugin()->backend.add_parameter(session_, &desc, &own, id);
  check_decision(own, "parameter", name);
  verdicts_.push_back(octavo::copy_verdict(own));
  octavo::lend_verdict(verdicts_.back(), v);
  if (status != OCTAVO_OK || own.decision == OCTAVO_DECLINE) {
    *id = OCTAVO_NONE;
    return status;
  }
  broken_ = *id != parameter_count_;
  if (broken_)
    octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, " gave parameter \"", name,
                     "\" id ", *id, ", expected ", parameter_count_);
  ++parameter_count_;
  if (trace_) trace_->name_parameter(name);
  parameters_.push_back({name, d.rows, d.cols, std::move(decision)});
  parameter_names_.insert(name);
  return OCTAVO_OK;
}

// A backend with a decision of its own may have used up an id or not.
void octavo_run::check_decision(const octavo_verdict &v, const char *object,
                                const std::string &name) {
  if (v.decision <= OCTAVO_ACCEPT_EMULATED) return;
  broken_ = true;
  octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, " gave ", object, " \"", name,
                   "\" the decision ", v.decision,
                   "; expected 0 (decline), 1 (accept) or 2 (accept emulated)");
}

octavo_status octavo_run::place(const octavo_linear_desc &d, octavo::Verdict verdict,
                                const octavo::LayerRule *rule, octavo_verdict *v) {
  const Parameter &p = parameters_[d.weight];
  layers_.push_back({std::string(octavo::view(d.name)), p.rows, p.cols, verdict, rule});
  verdicts_.push_back(std::move(verdict));
  octavo::lend_verdict(verdicts_.back(), v);
  return OCTAVO_OK;
}

octavo_status octavo_run::add_linear(const octavo_linear_desc &d, octavo_verdict *v, uint32_t *id) {
  const std::string name = name_of(d.name, "a linear", linear_names_);
  if (d.weight >= parameters_.size())
    octavo::fail_run(OCTAVO_INVALID, "linear \"", name, "\": expected a parameter id below ",
                     parameters_.size(), ", found ", d.weight);
  *id = OCTAVO_NONE;
  if (session_ == nullptr)
    return place(d,
                 {OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_POLICY,
                  "runs in the host: precision is " + precision(),
                  "mixed_precision = \"" + negotiation_.config[octavo::key::kMixedPrecision] + "\"",
                  negotiation_.config[octavo::key::kMixedPrecision] == "fp8"
                      ? octavo::Remedy("fix what the candidates before this one were refused for")
                      : octavo::set_key("mixed_precision", "\"fp8\"", " to run the layer in FP8")},
                 nullptr, v);
  const Parameter &weight = parameters_[d.weight];
  Decision decision = decide(name, weight.name, weight.rows, weight.cols);
  if (!decision.kept && weight.decision.kept) decision = weight.decision;
  if (decision.kept) return place(d, std::move(*decision.kept), decision.rule, v);
  have_alone("octavo_add_linear");
  octavo::LentSettings differing_options = differing(d, decision.rule);
  check_options(d);
  std::vector<octavo_option_value> options;
  for (uint64_t i = 0; i < d.option_count; ++i)
    if (const std::string_view option = octavo::view(d.options[i].name);
        session_options_.find(option) == nullptr || differing_options.find(option) != nullptr)
      options.push_back(d.options[i]);
  for (const auto &o : differing_options.entries())
    if (o.setting.origin != kOfHost) options.push_back({o.lent.name, o.lent.value});
  octavo_linear_desc desc = d;
  desc.options = options.empty() ? nullptr : options.data();
  desc.option_count = options.size();
  auto own = octavo::make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  const octavo_status status = plugin()->backend.add_linear(session_, &desc, &own, id);
  check_decision(own, "linear", name);
  octavo::Verdict verdict = octavo::copy_verdict(own);
  if (status != OCTAVO_OK) {
    *id = OCTAVO_NONE;
    verdicts_.push_back(std::move(verdict));
    octavo::lend_verdict(verdicts_.back(), v);
    return status;
  }
  if (verdict.decision == OCTAVO_DECLINE) {
    *id = OCTAVO_NONE;
    if (!options_of(decision.rule).empty()) point_at(*decision.rule, plugin()->id, verdict);
  } else if (*id != linear_count_++) {
    broken_ = true;
    octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, " gave linear \"", name, "\" id ",
                     *id, ", expected ", linear_count_ - 1);
  }
  if (verdict.decision != OCTAVO_DECLINE) {
    linears_.push_back({name, std::move(differing_options), d.weight});
    linear_names_.insert(name);
    if (trace_) trace_->name_linear(name);
  }
  return place(d, std::move(verdict), decision.rule, v);
}

const std::deque<octavo_slot_use> *octavo_run::uses(uint32_t owner_kind, uint32_t owner) const {
  const auto found = uses_.find({owner_kind, owner});
  return found == uses_.end() ? nullptr : &found->second;
}

const octavo_linear_plan *octavo_run::plan(uint32_t linear) const {
  return linear < plans_.size() ? &plans_[linear] : nullptr;
}
