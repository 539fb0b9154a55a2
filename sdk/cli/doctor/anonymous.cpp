// A list of what may be shown, not of what may not: a variable that nobody thought of stays hidden.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "sdk/cli/doctor/doctor.h"
#include "sdk/src/base/variables.h"

namespace octavo::cli::doctor {
namespace {

constexpr std::string_view kSettings[] = {"OCTAVO_MIXED_PRECISION",    "OCTAVO_BACKEND",
                                          "OCTAVO_FORCE_KERNELS",      "OCTAVO_CUDA_GEMM",
                                          "OCTAVO_CUDA_TUNE",          "OCTAVO_CUDA_GEMM_SMS",
                                          "OCTAVO_CUDA_GEMM_WORKSPACE"};
constexpr std::string_view kOptions = "OCTAVO_FP8_";
constexpr size_t kLongestWord = 32;

// Words such as delayed, 0.5 and true; not patterns of layers' names.
bool is_plain(const std::string &value) {
  return !value.empty() && value.size() <= kLongestWord &&
         std::all_of(value.begin(), value.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' ||
                  c == '-' || c == '+';
         });
}

std::string shown_value(const std::string &name, const std::string &value) {
  const bool is_setting =
      name.starts_with(kOptions) ||
      std::find(std::begin(kSettings), std::end(kSettings), name) != std::end(kSettings);
  return is_setting && is_plain(value) ? value : "(set)";
}

Json only(const Json &from, std::initializer_list<const char *> keys) {
  Json some = Json::object();
  for (const char *key : keys)
    if (from.contains(key)) some[key] = from[key];
  return some;
}

}  // namespace

Json variables() {
  Json all = Json::object();
  for (const std::string &name : variables_with("OCTAVO_"))
    all[name] = shown_value(name, std::getenv(name.c_str()));
  for (const char *name : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"})
    if (std::getenv(name) != nullptr) all[name] = "(set)";
  return all;
}

Json anonymous(const Json &j) {
  Json shown = only(j, {"octavo", "abi", "headers", "build", "system", "kernel", "libc",
                        "variables", "runs", "kernels", "speed"});
  if (j.contains("machine")) shown["machine"] = only(j["machine"], {"cpu", "cuda"});
  if (j.contains("backend")) shown["backend"] = only(j["backend"], {"id", "version", "sha256"});
  if (j.contains("python")) shown["python"] = only(j["python"], {"python", "octavo", "torch"});
  // Texts may hold paths, names of layers and of files.
  shown["first"] =
      j["first"].is_null() ? Json() : only(j["first"], {"severity", "about", "reason"});
  for (const Json &p : j.contains("plugins") ? j["plugins"] : Json::array()) {
    Json one = only(p, {"name", "version", "sha256", "accepted"});
    if (!p["verdicts"].empty()) one["refused"] = only(p["verdicts"][0], {"stage", "reason"});
    shown["plugins"].push_back(one);
  }
  return shown;
}

}  // namespace octavo::cli::doctor
