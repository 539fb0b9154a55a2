// What the options choose: the tables of recipes and profiles, and the values by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe.h"

namespace octavo::te {

// Defaults of Transformer Engine's recipe classes DelayedScaling, Float8CurrentScaling,
// Float8BlockScaling and MXFP8BlockScaling.
struct RecipeRow {
  const char *name;
  Scaling scaling;
  const char *profile;
  const char *format;
  uint32_t operand_granularity;
  uint32_t weight_granularity;
};

// `rule`: of end_step for delayed scaling, else of every cast.
struct ProfileRow {
  const char *name;
  Scaling scaling;
  uint32_t rule;
};

// The option values of a session. Absent ones are 0, false or empty.
class Choices {
 public:
  explicit Choices(const octavo_session_desc &desc) : desc_(desc) {}

  std::string_view text(std::string_view name) const;
  int64_t integer(std::string_view name) const { return value(name).integer; }
  bool flag(std::string_view name) const { return value(name).integer != 0; }
  double real(std::string_view name) const { return value(name).real; }
  // "margin = 3": what was found.
  std::string shown(std::string_view name) const;

  const RecipeRow &recipe() const;
  const ProfileRow &profile() const;
  std::string_view format() const;
  bool is(Scaling scaling) const { return recipe().scaling == scaling; }

 private:
  const octavo_value &value(std::string_view name) const;

  const octavo_session_desc &desc_;
};

// Options that are refused or contradict each other.
void refuse_choices(const Choices &c, std::vector<Refusal> *refusals);

}  // namespace octavo::te
