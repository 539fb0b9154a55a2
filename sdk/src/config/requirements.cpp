// One row a requirement: what was asked, what is there, and the key to change.
#include "sdk/src/config/requirements.h"

#include <algorithm>

#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/toml.h"

namespace octavo {
namespace {

// A name of the configuration, and the call that shows whether the kernels have it.
struct Named {
  const char *name;
  uint32_t call;
  uint32_t dtype;
  uint32_t granularity;
  uint32_t other = OCTAVO_PER_TENSOR;  // of a gemm's b
};

constexpr uint32_t kCast = OCTAVO_KIND_QUANTIZE, kProduct = OCTAVO_KIND_GEMM;
constexpr Named kEncodings[] = {
    {"float8_e4m3fn", kCast, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR},
    {"float8_e5m2", kCast, OCTAVO_E5M2, OCTAVO_PER_TENSOR},
    {"float8_e8m0fnu", kCast, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32}};  // the dtype of its scales
constexpr Named kScaling[] = {
    {"tensor", kProduct, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, OCTAVO_PER_TENSOR},
    {"row", kProduct, OCTAVO_E4M3FN, OCTAVO_PER_ROW, OCTAVO_PER_ROW},
    {"block_1x128", kProduct, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128},
    {"block_128x128", kProduct, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
    {"block_1x32", kProduct, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},
    {"block_32x32", kProduct, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32}};

template <size_t N>
std::vector<std::string> names_of(const Named (&table)[N], const Serves &serves) {
  std::vector<std::string> names;
  for (const Named &n : table) {
    auto question = make<octavo_ability>(OCTAVO_KIND_ABILITY);
    question.call = n.call;
    question.dtype = n.dtype;
    question.granularity = n.granularity;
    if (n.call == kProduct) {
      question.b_dtype = n.dtype;
      question.b_granularity = n.other;
    }
    if (serves(question)) names.push_back(n.name);
  }
  return names;
}

bool everything(const octavo_ability &) {
  return true;
}

int rank_of(const std::string &speed) {
  return speed == "native" ? 2 : speed == "vector" ? 1 : 0;
}

// `list` without `names`.
std::vector<std::string> left_of(const std::vector<std::string> &list,
                                 const std::vector<std::string> &names) {
  std::vector<std::string> left;
  for (const std::string &one : list)
    if (std::find(names.begin(), names.end(), one) == names.end()) left.push_back(one);
  return left;
}

}  // namespace

std::vector<std::string> encoding_names() {
  return names_of(kEncodings, everything);
}

std::vector<std::string> scaling_names() {
  return names_of(kScaling, everything);
}

const char *speed_class(const octavo_kernels_caps &caps) {
  if ((caps.flags & OCTAVO_CAPS_EMULATED) == 0) return "native";
  return view(caps.id).ends_with("baseline") ? "emulated" : "vector";
}

void check_fp8_requirements(const Config &config, const octavo_kernels_caps &caps,
                            const Serves &serves, const std::string &backend,
                            const std::vector<std::string> &recipes,
                            std::vector<Verdict> &verdicts) {
  const std::string kernels = "kernels " + std::string(view(caps.id)) + ": ";
  const auto refuse = [&](uint32_t level, const std::string &key, const std::string &text,
                          const std::string &evidence, const std::string &instead) {
    verdicts.push_back({level, OCTAVO_DECLINE, OCTAVO_REASON_REQUIRE, key + ": " + text, evidence,
                        set_key(key, instead, ", or run where the requirement is met")});
  };
  const auto flag = [&](key::Flag key, bool holds, const char *text, const char *found) {
    if (config[key] && !holds)
      refuse(OCTAVO_LEVEL_DEVICE, key.name, text, kernels + found, "false");
  };
  flag(key::kNative, (caps.flags & OCTAVO_CAPS_EMULATED) == 0,
       "FP8 units are required, none are here", "FP8 is emulated");
  flag(key::kDeterministic, (caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0,
       "bit-identical results are required, these kernels do not promise them",
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
  const auto list = [&](key::List key, const auto &table, const char *what) {
    if (config[key].empty()) return;
    const std::vector<std::string> there = names_of(table, serves);
    const std::vector<std::string> absent = left_of(config[key], there);
    if (!absent.empty())
      refuse(OCTAVO_LEVEL_DEVICE, key.name, "these kernels lack " + (what + enumerate(absent)),
             kernels + enumerate(there), show(TomlValue(left_of(config[key], absent))));
  };
  list(key::kEncodings, kEncodings, "");
  list(key::kScaling, kScaling, "scales of ");
  const std::vector<std::string> &required = config[key::kRecipes];
  const std::vector<std::string> other = left_of(recipes, required);
  if (required.empty() || other.empty()) return;
  const std::string &recipe = other.front();
  std::vector<std::string> allowed = required;
  if (!recipe.empty()) allowed.push_back(recipe);
  refuse(OCTAVO_LEVEL_SESSION, key::kRecipes.name,
         "one of " + enumerate(required) + " is required, backend " + backend +
             (recipe.empty() ? " has no option recipe" : " would run " + recipe),
         recipe.empty() ? "no option recipe" : "recipe = \"" + recipe + "\"",
         recipe.empty() ? "[]" : show(TomlValue(allowed)));
}

}  // namespace octavo
