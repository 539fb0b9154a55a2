// From the remedy of a verdict to the edit or the command that carries it out.
#include <algorithm>

#include "sdk/src/negotiate/negotiate.h"

namespace octavo {
namespace {

// Where a key was set, whether it is a core key or an option of the candidate; nothing for a key
// that neither has.
std::optional<std::string> origin_of(const Negotiation &n, const Candidate *c,
                                     const std::string &key) {
  if (const Setting *setting = n.config.find(key)) return setting->origin;
  if (c == nullptr) return std::nullopt;
  for (const EffectiveOption &o : c->options)
    if ("fp8." + c->id + "." + o.name == key) return o.setting.origin;
  return std::nullopt;
}

// Without this candidate: by the backend that ships with liboctavo, unless it was named already,
// else without FP8. Nobody but the user decides this, so it is a remedy and not a fallback.
Fix without(const Negotiation &n, const Candidate &c) {
  const Config &config = n.config;
  const auto is_named = [&](const std::string &id) {
    return std::any_of(n.candidates.begin(), n.candidates.end(),
                       [&](const Candidate &one) { return one.id == id; });
  };
  const FoundManifest *own = n.discovery.find("te");
  std::vector<std::string> list = c.is_fallback ? config[key::kFallback] : config[key::kPreference];
  std::erase(list, c.id);
  if (c.is_fallback || n.device == nullptr || is_named("te") || own == nullptr ||
      own->origin != kOwnPlace) {
    if (!c.is_fallback) list = config[key::kFallback];
    if (std::find(list.begin(), list.end(), "bf16") == list.end()) list.push_back("bf16");
    return config.change(key::kFallback, list);
  }
  if (config[key::kBackend] != "auto") return config.change(key::kBackend, "te");
  list.push_back("te");
  return config.change(key::kPreference, list);
}

}  // namespace

Source source_of(const Config &config) {
  return Source(config.has_file ? config.name : std::string(), config.text);
}

std::string how_to_apply(const Source &source, const Negotiation &n, const Candidate *c,
                         const Verdict &v) {
  if (v.decision != OCTAVO_DECLINE) return {};
  Fix fix = v.remedy.fix;
  if (!fix.command.empty() || (!fix.key.empty() && !fix.origin.empty())) return source.apply(fix);
  if (const auto origin = fix.key.empty() ? std::nullopt : origin_of(n, c, fix.key)) {
    fix.origin = *origin;
    return source.apply(fix);
  }
  if (c != nullptr) return source.apply(without(n, *c));
  // A layer that is not converted because another precision was fallen back to.
  const Candidate *refused = nullptr;
  const Verdict *first =
      n.choice() != nullptr && n.choice()->is_fallback ? first_refusal(n, &refused) : nullptr;
  return first != nullptr && n.choice()->is_precision ? how_to_apply(source, n, refused, *first)
                                                      : std::string();
}

}  // namespace octavo
