// [[layers.rule]]: what differs for some layers. The first rule that names a layer, or its weight,
// decides.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sdk/src/config/config.h"

namespace octavo {

// Takes the entries of all rules, in any order, then checks each rule as a whole.
class LayerRuleReader {
 public:
  static bool is_of_rules(const std::vector<std::string> &path) {
    return path.size() >= 2 && path[0] == "layers" && path[1] == "rule";
  }
  // One entry of any layer of the configuration. Throws Failure(OCTAVO_INVALID).
  void accept(const std::vector<std::string> &path, TomlValue value, const std::string &origin,
              const std::string &where);
  // The rules in order. Throws Failure(OCTAVO_INVALID) for one without patterns, without an effect
  // or with two, and for a pattern that an earlier rule has.
  std::vector<LayerRule> take() const;

 private:
  std::map<size_t, LayerRule> rules_;
};

// The first rule that names one of the two; null: none does.
const LayerRule *rule_for(const std::vector<LayerRule> &rules, const std::string &layer,
                          const std::string &weight);

// The options of a rule for one backend; empty: the rule changes none of them.
const std::map<std::string, Setting> &options_for(const LayerRule &rule,
                                                  const std::string &backend);

}  // namespace octavo
