// One 16 x 16 layer through the plugin on the CPU kernels: does it keep the contract?
#pragma once

#include <string>

#include "sdk/src/plugin/loader.h"

namespace octavo::probe {

// A host whose messages are lines on standard error, where the caller finds the last ones.
const octavo_host *helper_host();

using Say = void (*)(const std::string &);

// What the helper sends while it tries a plugin.
struct Voice {
  Say note;  // for those who look closely
  Say warn;  // for every reader of a report: something was not tried
  Say call;  // before a function of the plugin is called
};

// Asks for options and a verdict on a session with defaults. False, with a warning, when the
// self-test has to be left out: the plugin declines, which is its right.
bool describe(const LoadedPlugin &plugin, const Voice &voice);

// Opens a session, seals one linear, casts its weight and multiplies twice. Returns the fault
// that was found: a function that fails, an output that is not finite or is not the product, two
// outputs that differ, bytes beyond the stated sizes. Empty: none.
std::string self_test(const LoadedPlugin &plugin, const Voice &voice);

}  // namespace octavo::probe
