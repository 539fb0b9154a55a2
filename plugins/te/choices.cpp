// The tables of recipes and profiles, and option values by name.
#include "choices.h"

#include <cstdio>

#include "plugins/common/setup.h"

namespace octavo::te {

using plugin::view;

namespace {

constexpr RecipeRow kRecipes[] = {
    {"delayed", Scaling::kDelayed, "te2-delayed-fused", "HYBRID", OCTAVO_PER_TENSOR,
     OCTAVO_PER_TENSOR},
    {"current", Scaling::kCurrent, "te2-current", "HYBRID", OCTAVO_PER_TENSOR, OCTAVO_PER_TENSOR},
    {"block", Scaling::kBlock, "te2-block", "E4M3", OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
    {"mx", Scaling::kMx, "te2-mx", "E4M3", OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},
};

constexpr ProfileRow kProfiles[] = {
    {"te2-delayed-fused", Scaling::kDelayed, OCTAVO_RULE_QUOTIENT},
    {"te2-delayed-unfused", Scaling::kDelayed, OCTAVO_RULE_RECIPROCAL},
    {"te2-current", Scaling::kCurrent, OCTAVO_RULE_QUOTIENT},
    {"te2-block", Scaling::kBlock, OCTAVO_RULE_POW2},
    {"te2-mx", Scaling::kMx, OCTAVO_RULE_MX_UP},
    {"ocp-mx", Scaling::kMx, OCTAVO_RULE_MX_FLOOR},
};

template <typename Row, size_t N>
const Row &row_of(const Row (&rows)[N], std::string_view name) {
  for (const Row &row : rows)
    if (row.name == name) return row;
  return rows[0];
}

}  // namespace

const octavo_value &Choices::value(std::string_view name) const {
  static constexpr octavo_value none{};
  for (uint64_t i = 0; i < desc_.option_count; ++i)
    if (view(desc_.options[i].name) == name) return desc_.options[i].value;
  return none;
}

std::string_view Choices::text(std::string_view name) const {
  return view(value(name).text);
}

std::string Choices::shown(std::string_view name) const {
  const octavo_value &v = value(name);
  std::string out(name);
  out += " = ";
  if (v.type == OCTAVO_VALUE_TEXT) return out + '"' + std::string(view(v.text)) + '"';
  if (v.type == OCTAVO_VALUE_BOOL) return out + (v.integer != 0 ? "true" : "false");
  if (v.type == OCTAVO_VALUE_INT) return out + std::to_string(v.integer);
  char number[40];
  std::snprintf(number, sizeof(number), "%.9g", v.real);
  return out + number;
}

const RecipeRow &Choices::recipe() const {
  return row_of(kRecipes, flag("use_mxfp8_block_scaling") ? "mx" : text("recipe"));
}

const ProfileRow &Choices::profile() const {
  const std::string_view given = text("profile");
  return row_of(kProfiles, given == "default" || given.empty() ? recipe().profile : given);
}

std::string_view Choices::format() const {
  const std::string_view given = text("fp8_format");
  return given == "default" || given.empty() ? recipe().format : given;
}

}  // namespace octavo::te
