// One row a requirement: what was asked, what is there, and the key to change.
#include "sdk/src/config/requirements.h"

#include <algorithm>

#include "sdk/src/base/text.h"
#include "sdk/src/config/toml.h"

namespace octavo {
namespace {

struct Named {
  const char *name;
  uint64_t bit;
};

constexpr Named kEncodings[] = {{"float8_e4m3fn", OCTAVO_DTYPE_BIT(OCTAVO_E4M3FN)},
                                {"float8_e5m2", OCTAVO_DTYPE_BIT(OCTAVO_E5M2)},
                                {"float8_e8m0fnu", OCTAVO_DTYPE_BIT(OCTAVO_E8M0FNU)}};
constexpr Named kScaling[] = {{"tensor", UINT64_C(1) << OCTAVO_PER_TENSOR},
                              {"row", UINT64_C(1) << OCTAVO_PER_ROW},
                              {"block_1x128", UINT64_C(1) << OCTAVO_BLOCK_1X128},
                              {"block_128x128", UINT64_C(1) << OCTAVO_BLOCK_128X128},
                              {"block_1x32", UINT64_C(1) << OCTAVO_BLOCK_1X32},
                              {"block_32x32", UINT64_C(1) << OCTAVO_BLOCK_32X32}};

template <size_t N>
std::vector<std::string> names_of(const Named (&table)[N], uint64_t bits = ~UINT64_C(0)) {
  std::vector<std::string> names;
  for (const Named &n : table)
    if ((n.bit & bits) != 0) names.push_back(n.name);
  return names;
}

template <size_t N>
std::vector<std::string> missing(const std::vector<std::string> &wanted, const Named (&table)[N],
                                 uint64_t bits) {
  const std::vector<std::string> there = names_of(table, bits);
  std::vector<std::string> absent;
  for (const std::string &name : wanted)
    if (std::find(there.begin(), there.end(), name) == there.end()) absent.push_back(name);
  return absent;
}

int rank_of(const std::string &speed) {
  return speed == "native" ? 2 : speed == "vector" ? 1 : 0;
}

// `list` without `names`, in TOML.
std::string without(const std::vector<std::string> &list, const std::vector<std::string> &names) {
  std::vector<std::string> left;
  for (const std::string &one : list)
    if (std::find(names.begin(), names.end(), one) == names.end()) left.push_back(one);
  return show(TomlValue(left));
}

}  // namespace

std::vector<std::string> encoding_names() {
  return names_of(kEncodings);
}

std::vector<std::string> scaling_names() {
  return names_of(kScaling);
}

const char *speed_class(const octavo_kernels_caps &caps) {
  if ((caps.flags & OCTAVO_CAPS_EMULATED) == 0) return "native";
  return view(caps.id).ends_with("baseline") ? "emulated" : "vector";
}

void check_fp8_requirements(const Config &config, const octavo_kernels_caps &caps,
                            const std::string &backend, const std::string &recipe,
                            std::vector<Verdict> &verdicts) {
  const std::string kernels = "kernels " + std::string(view(caps.id)) + ": ";
  const auto refuse = [&](uint32_t level, const std::string &key, const std::string &text,
                          const std::string &evidence, const std::string &instead) {
    verdicts.push_back({level, OCTAVO_DECLINE, OCTAVO_REASON_REQUIRE, key + ": " + text, evidence,
                        "set " + key + " = " + instead + ", or run where the requirement is met"});
  };
  const auto flag = [&](key::Flag key, bool holds, const char *text, const char *found) {
    if (config[key] && !holds)
      refuse(OCTAVO_LEVEL_DEVICE, key.name, text, kernels + found, "false");
  };
  flag(key::kNative, (caps.flags & OCTAVO_CAPS_EMULATED) == 0,
       "FP8 units are required, none are here", "FP8 is emulated");
  flag(key::kDeterministic, (caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0,
       "results that repeat bit for bit are required, these kernels do not promise them",
       "OCTAVO_CAPS_DETERMINISTIC is not stated");
  flag(key::kGraphCapture, (caps.flags & OCTAVO_CAPS_CAPTURE_SAFE) != 0,
       "calls that can be captured are required, these kernels do not promise them",
       "OCTAVO_CAPS_CAPTURE_SAFE is not stated");
  const std::string speed = speed_class(caps);
  if (rank_of(speed) < rank_of(config[key::kSpeed]))
    refuse(OCTAVO_LEVEL_DEVICE, key::kSpeed.name,
           "\"" + config[key::kSpeed] + "\" is required, these kernels are \"" + speed + "\"",
           kernels + "speed class " + speed,
           show(TomlValue(std::string(speed == "emulated" ? "any" : speed))));
  const auto list = [&](key::List key, const auto &table, uint64_t bits, const char *what) {
    const std::vector<std::string> absent = missing(config[key], table, bits);
    if (!absent.empty())
      refuse(OCTAVO_LEVEL_DEVICE, key.name, "these kernels lack " + (what + enumerate(absent)),
             kernels + enumerate(names_of(table, bits)), without(config[key], absent));
  };
  list(key::kEncodings, kEncodings, caps.dtypes, "");
  list(key::kScaling, kScaling, caps.granularities, "scales of ");
  const std::vector<std::string> &recipes = config[key::kRecipes];
  if (recipes.empty() || std::find(recipes.begin(), recipes.end(), recipe) != recipes.end()) return;
  std::vector<std::string> allowed = recipes;
  if (!recipe.empty()) allowed.push_back(recipe);
  refuse(OCTAVO_LEVEL_SESSION, key::kRecipes.name,
         "one of " + enumerate(recipes) + " is required, backend " + backend +
             (recipe.empty() ? " has no option recipe" : " would run " + recipe),
         recipe.empty() ? "no option recipe" : "recipe = \"" + recipe + "\"",
         recipe.empty() ? "[]" : show(TomlValue(allowed)));
}

}  // namespace octavo
