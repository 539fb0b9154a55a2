// A list of what may be shown, not of what may not: a variable that nobody thought of stays hidden.
#include "sdk/cli/env/private.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace octavo::cli::env {
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

}  // namespace

std::string shown_value(const std::string &name, const std::string &value) {
  const bool is_setting =
      name.starts_with(kOptions) ||
      std::find(std::begin(kSettings), std::end(kSettings), name) != std::end(kSettings);
  return is_setting && is_plain(value) ? value : "(set)";
}

}  // namespace octavo::cli::env
