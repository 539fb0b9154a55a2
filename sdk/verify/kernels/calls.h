// Which functions of kernels the checks compare, and the closed list of what they do not.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "octavo/hpp/kernels_tables.hpp"

namespace octavo::conformance::kernels {

struct NotCompared {
  const char *name;    // a function of a table, or what of a call is meant
  const char *reason;  // one sentence
};
std::span<const NotCompared> not_compared();

// The function's name in its table.
template <typename Table, typename Member>
const char *name_of_call(Member Table::*member) {
  const char *name = "a call without a name";
  each_call<Table>([&](auto call) {
    if constexpr (std::is_same_v<std::remove_const_t<decltype(call.member)>, Member Table::*>)
      if (call.member == member) name = call.name;
  });
  return name;
}
// All of them, of octavo_kernels and of every table of octavo/draft.
std::vector<std::string> names_of_calls();

// What was compared with the reference, in this process: how often each function, and of the
// questions to `ability` each call with each dtype and granularity, and with each of its flags.
struct Compared {
  std::map<std::string, uint64_t> functions;
  std::set<std::array<uint32_t, 3>> formats;  // call, dtype, granularity
  std::set<std::array<uint32_t, 2>> flags;    // call, flags

  void add(const std::vector<const char *> &called, const octavo_ability &question);
};
Compared &compared();

}  // namespace octavo::conformance::kernels
