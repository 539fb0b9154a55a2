// Opens the chosen session and places parameters and layers.
#include "sdk/src/run/run.h"

#include <algorithm>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/wall.h"
#include "sdk/src/negotiate/min_gain.h"

namespace {

// The name of a parameter or linear that a host describes.
std::string name_of(octavo_str given, const char *object) {
  if (given.data == nullptr && given.size != 0)
    octavo::fail_run(OCTAVO_INVALID, object, ": expected the address of a name of ", given.size,
                     " bytes, found null");
  return std::string(octavo::view(given));
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
    octavo::fail_run(status != OCTAVO_OK ? status : OCTAVO_INTERNAL, "backend ", choice->id,
                     " accepted the session and then failed to open it: status ", status);
}

octavo_run::~octavo_run() {
  if (session_ == nullptr) return;
  std::string thrown;
  octavo::call_plugin(&thrown, [&] {
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

// Why a linear of this name and size stays with the host, whatever the backend: layers.skip, then
// layers.min_gain.
std::optional<octavo::Verdict> octavo_run::keep(const std::string &name, int64_t n,
                                                int64_t k) const {
  const octavo::Config &config = negotiation_.config;
  std::vector<std::string> others = config[octavo::key::kSkip];
  for (const std::string &pattern : config[octavo::key::kSkip])
    if (octavo::matches(pattern, name)) {
      std::erase(others, pattern);
      return octavo::Verdict{OCTAVO_LEVEL_LAYER,
                             OCTAVO_DECLINE,
                             OCTAVO_REASON_POLICY,
                             "runs in the host: layers.skip names it",
                             "pattern \"" + pattern + "\", " + config.origin(octavo::key::kSkip),
                             {"remove the pattern to run the layer in FP8",
                              config.change(octavo::key::kSkip, others)}};
    }
  return octavo::too_small(config, negotiation_.device->caps(), n, k);
}

std::vector<std::string> octavo_run::unmet() const {
  std::vector<std::string> all;
  if (session_ == nullptr || layers_.empty()) return all;
  for (const std::string &pattern : negotiation_.config[octavo::key::kSkip]) {
    const auto is_met = [&](const auto &named) { return octavo::matches(pattern, named.name); };
    if (std::none_of(layers_.begin(), layers_.end(), is_met) &&
        std::none_of(parameters_.begin(), parameters_.end(), is_met))
      all.push_back("layers.skip: no layer or weight matches \"" + pattern + "\"");
  }
  if (linear_count_ == 0)
    all.push_back(octavo::concat("no layer runs in FP8: ", layers_.size(),
                                 " linear layers stay with the host, ", layers_.front().name, ": ",
                                 layers_.front().verdict.text));
  return all;
}

octavo_status octavo_run::add_parameter(const octavo_parameter_desc &d, octavo_verdict *v,
                                        uint32_t *id) {
  const std::string name = name_of(d.name, "a parameter");
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
  parameters_.push_back({name, d.rows, d.cols, std::move(kept)});
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
                                octavo_verdict *v) {
  const Parameter &p = parameters_[d.weight];
  layers_.push_back({std::string(octavo::view(d.name)), p.rows, p.cols, verdict});
  verdicts_.push_back(std::move(verdict));
  octavo::lend_verdict(verdicts_.back(), v);
  return OCTAVO_OK;
}

octavo_status octavo_run::add_linear(const octavo_linear_desc &d, octavo_verdict *v, uint32_t *id) {
  const std::string name = name_of(d.name, "a linear");
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
                 v);
  const Parameter &weight = parameters_[d.weight];
  std::optional<octavo::Verdict> kept = keep(name, weight.rows, weight.cols);
  if (!kept) kept = weight.kept;
  if (kept) return place(d, std::move(*kept), v);
  auto own = octavo::make<octavo_verdict>(OCTAVO_KIND_VERDICT);
  const octavo_status status = plugin()->backend.add_linear(session_, &d, &own, id);
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
  } else if (*id != linear_count_++) {
    broken_ = true;
    octavo::fail_run(OCTAVO_INTERNAL, "backend ", plugin()->id, " gave linear \"", name, "\" id ",
                     *id, ", expected ", linear_count_ - 1);
  }
  return place(d, std::move(verdict), v);
}

const std::deque<octavo_slot_use> *octavo_run::uses(uint32_t owner_kind, uint32_t owner) const {
  const auto found = uses_.find({owner_kind, owner});
  return found == uses_.end() ? nullptr : &found->second;
}

const octavo_linear_plan *octavo_run::plan(uint32_t linear) const {
  return linear < plans_.size() ? &plans_[linear] : nullptr;
}
