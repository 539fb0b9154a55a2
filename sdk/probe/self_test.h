// One 16 x 16 layer through the plugin on the CPU kernels: does it keep its word?
#pragma once

#include <functional>
#include <string>

#include "sdk/src/loader.h"

namespace octavo::probe {

using Say = std::function<void(const std::string &)>;

// Asks for options and a verdict on a session with defaults. False, with a note, when the self-test
// has to be left out: the plugin says no, which is its right.
bool describe(const LoadedPlugin &plugin, const Say &note);

// Opens a session, seals one linear, casts its weight and multiplies twice. Returns the lie that
// the plugin was caught at: an output that is not finite, two outputs that differ, bytes beyond the
// stated sizes. Empty: none. A failure with a status is a note: hosts get it again, in its place.
std::string self_test(const LoadedPlugin &plugin, const Say &note);

}  // namespace octavo::probe
