// octavo/hpp/roles.hpp: the names of slot roles, as reports show them.
#ifndef OCTAVO_HPP_ROLES_HPP
#define OCTAVO_HPP_ROLES_HPP

#include <iterator>

#include "octavo/slots.h"

namespace octavo {
inline namespace hpp {

// "scale_inv", "weight_cache", ...; "other" for an unknown role.
inline const char *role_name(uint32_t role) {
  static const char *const names[] = {
      "other",     "weight",    "master_weight", "gradient",     "exp_avg", "exp_avg_sq",
      "scale",     "scale_inv", "amax",          "amax_history", "counter", "weight_cache",
      "nonfinite", "other",     "saturated",     "underflow",    "signal",  "noise"};
  return role < std::size(names) ? names[role] : names[0];
}

}  // namespace hpp
}  // namespace octavo

#endif
