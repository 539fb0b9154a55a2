// What the suite is calling now, in memory that outlives the process of the check.
//
// A plugin may end that process at any moment; whoever waits for it then reads here in which verb.
#pragma once

#include <cstdint>
#include <string>

namespace octavo::conformance {

struct InFlight {
  char verb[160];
  int64_t rows;               // M; -1: the verb has none
  uint32_t x_dtype, y_dtype;  // 0: the verb has none
  char step[96];              // the sub-check under way
  int32_t record_error;       // errno of the completion record's write; 0: written, or not yet due
};

// The page; shared with child processes after share_in_flight.
InFlight &in_flight();
void share_in_flight();
// Before a call into the plugin.
void calling(const std::string &verb, int64_t rows = -1, uint32_t x_dtype = 0,
             uint32_t y_dtype = 0);
// "linear_forward of 'wide' (M = 17, x bfloat16, y float32)".
std::string in_flight_text(const InFlight &now);

}  // namespace octavo::conformance
