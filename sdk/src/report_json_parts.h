// The parts that several models have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "manifest.h"
#include "toml.h"
#include "verdict.h"

namespace octavo {

nlohmann::ordered_json to_json(const TomlValue &value);
// `apply`: how to carry out the remedy; empty: nothing is said.
nlohmann::ordered_json to_json(const Verdict &v, const std::string &apply = {});
nlohmann::ordered_json verdicts_json(const std::vector<Verdict> &verdicts);
// What the manifest says about the plugin: hints, which its code may contradict.
nlohmann::ordered_json provides_json(const Manifest &m);

}  // namespace octavo
